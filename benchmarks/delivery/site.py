"""A site with events to deliver, and the service as a worker on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Final

import msgspec
import sqlalchemy as sa
import trio

from benchmarks.delivery.events import EVENT, SECRET, data
from fw_actors.config import Config, load
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import ADMINISTRATOR
from fw_actors.ops.site import Site
from fw_actors.runtime import Clock, SystemClock
from fw_actors.store import Statement
from fw_actors.store.schema import JOB
from fw_actors.webhooks.events import QUEUE
from supervisors.service import process
from supervisors.service.logs import configure
from supervisors.service.tree import RunningService, open_service

EVENTS_A_TRANSACTION: Final = 500
POLL_SECONDS: Final = 0.05  # each poll is felt: it takes the interpreter's lock many times
LAST: Final = 500  # so many deliveries take longer than that; near the end the looks are closer
LAST_POLL_SECONDS: Final = 0.003
AN_HOUR_MS: Final = 3_600_000


class HeldClock:
    """The machine's clock, an hour slow until it is released: till then nothing is due."""

    now: Callable[[], int]
    """Return milliseconds since the epoch (UTC)."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self.now = lambda: self._clock.now() - AN_HOUR_MS

    def release(self) -> None:
        """Tell the right time from now on, as directly as the service's own clock does."""
        self.now = self._clock.now


def site_in(folder: Path, *, slots: int | None = None) -> Config:
    """Make a site with the defaults of production; `slots`: of one receiver."""
    process.prepare()
    ops = {} if slots is None else {"perReceiverConcurrency": slots}
    policy = {"site": {"name": "bench"}, "ops": ops}
    (folder / "fw.json").write_bytes(msgspec.json.encode(policy))
    return site_of(folder)


def site_of(folder: Path) -> Config:
    """Load the site that was made in `folder`."""
    return load({"FW_SECRET_KEY": "a key of the benchmarks, forty characters"}, folder)


@asynccontextmanager
async def serving(config: Config, clock: Clock) -> AsyncIterator[RunningService]:
    """Run the service as a worker, its log in a file as a service's is."""
    with (config.folder / "service.log").open("a") as stream:
        deployment = config.deployment
        log = configure(
            style=deployment.log_format,
            level=deployment.log_level,
            clock=SystemClock(),
            stream=stream,
            scrubber=config.scrubber,
        )
        async with open_service(config, log=log, front=False, clock=clock) as service:
            yield service


async def subscribe(
    site: Site, urls: Sequence[str], event: str = EVENT, *, ordering: str = "none"
) -> list[str]:
    """Make a Webhook for each URL; return their names."""

    def work(fw: Fw) -> list[str]:
        made = []
        for url in urls:
            hook = fw.new_doc(
                "Webhook", url=url, event_type="Custom", custom_event=event, secret=SECRET,
                ordering=ordering,
            )  # fmt: skip
            hook.insert()
            made.append(hook.name)
        return made

    return await site.write(ADMINISTRATOR, work)


async def record(site: Site, events: int, documents: int = 0) -> None:
    """Emit so many events, each to all Webhooks; about so many documents in turn, if any."""
    happened = data()
    about = [{"doctype": "Role", "name": f"Role {number}"} for number in range(documents)]
    await site.write(ADMINISTRATOR, partial(_make, about))
    turn = cycle(about or [None])
    for begin in range(0, events, EVENTS_A_TRANSACTION):
        count = min(EVENTS_A_TRANSACTION, events - begin)

        def emit(fw: Fw, count: int = count) -> None:
            for _ in range(count):
                fw.webhooks.emit(EVENT, happened, reference=next(turn))

        await site.write(ADMINISTRATOR, emit)


def _make(documents: Sequence[Mapping[str, str]], fw: Fw) -> None:
    for each in documents:
        fw.new_doc(**each).insert()


async def until_none_is_left(site: Site, hooks: Collection[str]) -> None:
    """Wait until no delivery of these Webhooks waits or is in flight."""
    # Those that wait for an earlier one of their document are due at no time.
    open_ones = sa.or_(JOB.c.next_at.is_not(None), JOB.c.ordering_key.is_not(None))
    of_them = sa.and_(JOB.c.queue == QUEUE, JOB.c.partition.in_(list(hooks)), open_ones)
    some = sa.select(JOB.c.id).where(of_them).limit(LAST).subquery()
    count = Statement(sa.select(sa.func.count()).select_from(some))  # compiled once
    while left := await site.store.read(lambda tx: tx.scalar(count)):  # noqa: ASYNC110
        await trio.sleep(POLL_SECONDS if left >= LAST else LAST_POLL_SECONDS)
