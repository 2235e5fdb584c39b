"""Erasure of bodies, which keeps records and Audit Events (B-360 to B-364)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from fw_actors.errors import ConflictError, NotFoundError, PermissionDeniedError, ValidationError
from fw_actors.rules.findings import ServiceState
from fw_actors.webhooks.diagnostics import delivery_report
from fw_actors.webhooks.erasure import erasable, erase, erase_many, payload_batches
from tests.fw_actors.actors.delivery_kit import URL, ScriptedReceiver, delivering
from tests.fw_actors.virtual_site_kit import VirtualSite
from tests.fw_actors.webhooks.claim_kit import ScriptedDeliveries, emit
from tests.plans import Access, accesses, unsought

pytestmark = pytest.mark.usefixtures("on_both_stores")
DAY = 86_400_000


async def erased(
    deliveries: ScriptedDeliveries, delivery: str, user: str = "Administrator"
) -> str | PermissionDeniedError:
    site = deliveries.site.site
    return await site.write(user, lambda fw: erase(fw, site.audit, delivery))


async def bodies(site: VirtualSite) -> list[tuple[Any, ...]]:
    """Return whether body, answer and answers of earlier attempts are left, by delivery."""
    return await site.sql(
        "SELECT payload IS NOT NULL AS a, response_body IS NOT NULL AS b, (SELECT count(*) FROM"
        " fw_delivery_attempt WHERE delivery = name AND response_body IS NOT NULL) AS c,"
        " erased IS NOT NULL AS d, status, attempts FROM doc_webhook_delivery ORDER BY name"
    )


async def test_erase_removes_bodies_and_keeps_record(site: VirtualSite) -> None:
    """An Audit Event records the erasure; a second one does nothing (B-360)."""
    deliveries = ScriptedDeliveries(site)
    delivery = await deliveries.ended("REFUSED")
    await site.add_account("boss", "System Manager", password=None)
    await deliveries.replay(delivery)
    await deliveries.attempt("REFUSED")
    before = await bodies(site)
    first, second = await erased(deliveries, delivery), await erased(deliveries, delivery)
    events = await site.sql("SELECT target FROM doc_audit_event WHERE action = 'webhook.erase'")
    assert [tuple(map(int, row[:4])) for row in before] == [(1, 1, 1, 0)]
    assert [(*map(int, row[:4]), *row[4:]) for row in await bodies(site)] == [
        (0, 0, 0, 1, "Failed", 1)
    ]
    assert first == second
    assert events == [(delivery,)]


async def test_replay_refuses_erased_delivery(site: VirtualSite) -> None:
    """The refusal states the time of the erasure (B-361)."""
    deliveries = ScriptedDeliveries(site)
    delivery = await deliveries.ended("REFUSED")
    at = await erased(deliveries, delivery)
    with pytest.raises(ConflictError, match=f"was erased at {at}; it cannot be sent again"):
        await deliveries.replay(delivery, "Administrator")
    report = await site.do(lambda fw: delivery_report(fw, delivery))
    document = report.as_json(ServiceState(running=True))
    assert document["erased"] == at
    assert [each["request"] for each in document["recorded"]] == [None]


async def test_erased_delivery_shows_no_request(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Its body is erased, and the signature of that body is of no use (B-361)."""

    async with delivering(tmp_path, ScriptedReceiver(["200"])) as post:

        async def requests() -> list[Any]:
            report = await post.site.read("Administrator", lambda fw: delivery_report(fw, delivery))
            document = report.as_json(ServiceState(running=True))
            return [each["request"] for each in document["recorded"]]

        await post.webhook()
        [delivery] = await post.emit()
        await post.settled(delivery)
        [shown] = await requests()
        assert shown.url == URL
        await post.site.write("Administrator", lambda fw: erase(fw, post.site.audit, delivery))
        assert await requests() == [None]


async def test_erase_refuses_delivery_in_progress(site: VirtualSite) -> None:
    """A delivery in progress still needs its body (B-362)."""
    deliveries = ScriptedDeliveries(site)
    delivery = await deliveries.ended("TRANSIENT")
    with pytest.raises(ConflictError, match="only Sent and Failed"):
        await erased(deliveries, delivery)
    assert await site.do(lambda fw: erasable(fw, until=2**50)) == []
    assert await site.do(lambda fw: erase_many(fw, site.site.audit, [delivery])) == []


async def test_erase_denies_user_without_replay_permission(site: VirtualSite) -> None:
    deliveries = ScriptedDeliveries(site)
    delivery = await deliveries.ended("REFUSED")
    await site.add_account("clerk", password=None)
    assert isinstance(await erased(deliveries, delivery, "clerk"), PermissionDeniedError)
    with pytest.raises(NotFoundError):
        await erased(deliveries, "msg_none")


async def test_erasable_selects_by_webhook_document_and_time(site: VirtualSite) -> None:
    """Deliveries are selected by Webhook, document and time (B-363)."""
    deliveries = ScriptedDeliveries(site)
    name = await deliveries.ended("REFUSED")
    await site.sql("UPDATE doc_webhook_delivery SET reference_doctype = 'Customer',"
                     " reference_name = 'C-1'")  # fmt: skip

    async def matching(**criteria: Any) -> list[str]:
        return await site.do(lambda fw: erasable(fw, **criteria))

    with pytest.raises(ValidationError):
        await matching()
    assert await matching(reference=("Customer", "C-2")) == []
    assert await matching(webhook="other", reference=("Customer", "C-1")) == []
    assert await matching(until=0) == []
    assert await matching(reference=("Customer", "C-1")) == [name]
    assert await matching(until=2**50) == [name]


async def test_erasable_excludes_end_of_time_range(site: VirtualSite) -> None:
    """As in all ranges of times (B-369)."""
    deliveries = ScriptedDeliveries(site)
    name = await deliveries.ended("REFUSED")
    [(last,)] = await site.sql("SELECT last_attempt FROM doc_webhook_delivery")
    assert await site.do(lambda fw: erasable(fw, until=last)) == []
    assert await site.do(lambda fw: erasable(fw, until=last + 1)) == [name]


async def test_erase_many_erases_listed_deliveries_once(site: VirtualSite) -> None:
    """Each erasure is recorded; one that another call has erased is left out (B-363)."""
    deliveries, audit = ScriptedDeliveries(site), site.site.audit
    names = [await deliveries.ended("REFUSED")]
    names += [row["name"] for row in await site.deliveries() if row["name"] not in names]
    assert await site.do(lambda fw: erase_many(fw, audit, [*names, "msg_none"])) == sorted(names)
    assert await site.do(lambda fw: erase_many(fw, audit, names)) == []
    assert await site.do(lambda fw: erasable(fw, until=2**50)) == []
    events = await site.sql("SELECT target FROM doc_audit_event WHERE action = 'webhook.erase'")
    assert sorted(target for (target,) in events) == sorted(names)


async def test_erase_many_requires_replay_permission(site: VirtualSite) -> None:
    await site.add_account("clerk", password=None)
    write = site.site.write
    with pytest.raises(PermissionDeniedError):
        await write("clerk", lambda fw: erasable(fw, until=1))
    with pytest.raises(PermissionDeniedError):
        await write("clerk", lambda fw: erase_many(fw, site.site.audit, []))


async def test_erase_many_reads_only_listed_deliveries(site: VirtualSite) -> None:
    """A batch costs the same among any number of erased deliveries (B-363)."""
    audit = site.site.audit

    def seen(fw: Any) -> list[Access]:
        return accesses(fw.tx, lambda: erase_many(fw, audit, ["msg_a", "msg_b"]))

    assert unsought(await site.do(seen), doc_webhook_delivery="name") == []


async def test_erasable_reads_only_matching_deliveries(site: VirtualSite) -> None:
    def seen(fw: Any) -> list[Access]:
        return [
            *accesses(fw.tx, lambda: erasable(fw, webhook="w")),
            *accesses(fw.tx, lambda: erasable(fw, reference=("Note", "a"))),
            *accesses(fw.tx, lambda: erasable(fw, until=1)),
        ]

    by = "webhook reference_doctype reference_name status last_attempt"
    assert unsought(await site.do(seen), doc_webhook_delivery=by) == []


async def test_payload_sweep_erases_old_bodies_in_bounded_steps(site: VirtualSite) -> None:
    """The age of a final delivery is counted from its last attempt (B-364)."""
    deliveries = ScriptedDeliveries(site)
    for _ in range(3):
        await deliveries.ended("REFUSED")
    ended = [name for (name,) in await site.sql("SELECT name FROM doc_webhook_delivery")]
    await site.sql("UPDATE doc_webhook_delivery SET status = 'Failed', last_attempt = creation")
    later = ended[-1]
    await site.sql(
        "UPDATE doc_webhook_delivery SET last_attempt = last_attempt - :by WHERE name <> :later",
        by=2 * DAY, later=later,
    )  # fmt: skip
    sent, failed = payload_batches(1, 1)
    store = site.site.store
    counts = [await store.write(step) for step in (sent, *(failed,) * len(ended))]
    kept = await site.sql("SELECT name FROM doc_webhook_delivery WHERE erased IS NULL")
    assert counts == [0, *(1,) * (len(ended) - 1), 0]
    assert kept == [(later,)]


class SweptDays:
    """Failed deliveries, and the sweep of a service that is started anew each day."""

    def __init__(self, site: VirtualSite, clock: MockClock) -> None:
        self._site, self._clock, self._deliveries = site, clock, ScriptedDeliveries(site)

    async def delivery(self, ago: int = 2 * DAY) -> str:
        """Make a delivery that failed `ago` (ms)."""
        if not await self._site.sql("SELECT name FROM doc_webhook"):
            await self._site.subscribe()
        (name,) = await emit(self._site, "N-1")
        await self._deliveries.attempt("REFUSED")
        await self._site.sql(
            "UPDATE doc_webhook_delivery SET last_attempt = last_attempt - :ago WHERE name = :it",
            ago=ago, it=name,
        )  # fmt: skip
        return name

    async def restore(self, delivery: str) -> None:
        """Undo an erasure: as if another transaction had locked the row."""
        await self._site.sql(
            "UPDATE doc_webhook_delivery SET erased = NULL WHERE name = :it", it=delivery
        )

    async def sweep(self) -> int:
        """Sweep once; return the number of erased deliveries."""
        _, failed = payload_batches(1, 1)
        count = 0
        while await self._site.site.store.write(failed):
            count += 1
        return count

    def next_day(self) -> None:
        self._clock.jump(DAY / 1000)


async def test_payload_sweep_revisits_missed_rows_next_day(
    site: VirtualSite, autojump_clock: MockClock
) -> None:
    """A row that another transaction had locked is skipped at first (PostgreSQL)."""
    days = SweptDays(site, autojump_clock)
    missed = await days.delivery()
    first = await days.sweep()
    await days.restore(missed)
    days.next_day()
    assert (first, await days.sweep()) == (1, 1)


async def test_payload_sweep_skips_erased_deliveries_of_earlier_days(
    site: VirtualSite, autojump_clock: MockClock
) -> None:
    """A sweep reads the deliveries of two days, however many were erased before (B-364)."""
    days = SweptDays(site, autojump_clock)
    early = await days.delivery()
    counts = [await days.sweep()]
    for _ in range(2):
        days.next_day()
        await days.delivery()
        counts.append(await days.sweep())
    await days.restore(early)  # the sweep would find it if it still read it
    days.next_day()
    counts.append(await days.sweep())
    assert counts == [1, 1, 1, 0]


async def test_payload_sweep_revisits_missed_rows_after_quick_sweeps(
    site: VirtualSite, autojump_clock: MockClock
) -> None:
    """Sweeps by the command line, one right after the other, may all find the same lock."""
    days = SweptDays(site, autojump_clock)
    missed = await days.delivery()
    counts = [await days.sweep() for _ in range(3)]
    await days.restore(missed)
    assert (counts, await days.sweep()) == ([1, 0, 0], 1)


async def test_payload_sweep_begins_anew_after_clock_was_set_back(
    site: VirtualSite, autojump_clock: MockClock
) -> None:
    """Deliveries then end earlier than those that were erased while the clock was ahead."""
    days = SweptDays(site, autojump_clock)
    await days.delivery(ago=2 * DAY)
    counts = [await days.sweep()]
    days.next_day()
    counts.append(await days.sweep())
    await days.delivery(ago=20 * DAY)
    await site.sql(
        "UPDATE fw_meta SET value = replace(value, '\"moved\":', '\"moved\":9')"
        " WHERE key = 'payload_sweep.Failed'"
    )
    counts.append(await days.sweep())
    assert counts == [1, 0, 1]


def test_payload_sweep_without_days_erases_nothing() -> None:
    assert payload_batches(0, 1000) == ()
