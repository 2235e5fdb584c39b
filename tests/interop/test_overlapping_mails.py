"""Mails that are prepared while their account is deleted or renamed on PostgreSQL.

As in `test_overlapping_writes`: the first transaction is held until the second one waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from fw_actors.access.links import Links
from fw_actors.access.users import add_user
from fw_actors.actors.mailer import Mailer
from fw_actors.mail import Template
from fw_actors.ops import mail_queue
from fw_actors.ops.mail_queue import MailComposer
from fw_actors.ops.site import Site
from fw_actors.rules.delivery import Backoff
from fw_actors.store import LeasedJob, Tx, jobs
from tests.interop.overlap_kit import Overlap
from tests.mail_kit import RecordingTransport


class OverlappedStore:
    """Stands for the store of a Mailer: beside its first write runs `second`."""

    def __init__(self, overlap: Overlap, second: Callable[[], Any]) -> None:
        self._overlap, self._second = overlap, second
        self.refusal: Any = None

    async def write(self, fn: Callable[[Tx], Any]) -> Any:
        found, self.refusal = await self._overlap(fn, self._second)
        if isinstance(found, Exception):
            raise found
        return found


@pytest.mark.parametrize("act", ["delete", "rename"])
async def test_mail_prepared_beside_end_of_its_account_does_not_deadlock(
    site: Site, overlap: Overlap, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """An account is locked before its jobs, as a deletion and a rename do (B-430)."""
    await site.write("Administrator", lambda fw: add_user(fw, "ida", "ida@x.test"))
    links = Links(site.config.auth, site.entropy, "https://x.test")

    def queue(tx: Tx) -> LeasedJob:
        site.mail_queue.to_user(tx, Template.INVITATION, "ida", owner="Administrator")
        [job] = jobs.claim(tx, mail_queue.QUEUE, "", 1, 60_000, "a token")
        return job

    def end(fw: Any) -> None:
        ida = fw.get_doc("User", "ida")
        ida.delete() if act == "delete" else ida.rename("eve")

    job = await site.store.write(queue)
    renew = jobs.renew

    def renewed(*given: Any) -> Any:
        user = renew(*given)
        overlap.meet()
        return user

    monkeypatch.setattr(jobs, "renew", renewed)
    store: Any = OverlappedStore(overlap, partial(site.write, "Administrator", end))
    transport = RecordingTransport(outcomes=[TimeoutError()])
    mailer = Mailer(
        store, MailComposer(links, "site"), transport, Backoff(30.0, 3600.0),
        site.config.scrubber,
    )  # fmt: skip
    with pytest.raises(TimeoutError):
        await mailer.carry_out(job)
    assert [mail.recipient for _, mail in transport.taken] == ["ida@x.test"]
    assert store.refusal is None
