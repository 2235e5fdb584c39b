"""Views and samples of one process, in virtual time (H-173, O-224)."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from fw_actors.actors.console import COST_RATIO, Console, RequestHandler, ServiceConsole
from fw_actors.actors.console_view import MAX_SAMPLES
from fw_actors.actors.metrics import Counter
from fw_actors.config import ProcessPlace
from fw_actors.ops.console_facts import ConsoleFacts
from fw_actors.store import Tx, jobs
from supervisors.service.control_channel import PeerAnswers
from tests.fw_actors.virtual_site_kit import VirtualSite, site

__all__ = ["site"]

pytestmark = pytest.mark.usefixtures("autojump_clock")


class IdleRuntime:
    """A runtime without actors."""

    def snapshot(self) -> Any:
        return SimpleNamespace(
            tree=(), walk=lambda: iter(()), dead_letters={}, last_dead_letters=(), deadlines=0,
            workers=0, workers_parked=0, late_replies=0,
        )  # fmt: skip


class BusyDispatcher:
    """A dispatcher with three attempts in flight."""

    async def inspect(self, seconds: float) -> Any:
        return SimpleNamespace(described={"slots": 8, "free": 5})


class SilentPeerProcess:
    """A process whose neighbour does not answer."""

    place = ProcessPlace(1, 2)

    def __init__(self) -> None:
        self.known: dict[str, RequestHandler] = {}

    def register(self, what: str, handler: RequestHandler) -> None:
        self.known[what] = handler

    async def gather(
        self, what: str, argument: object = None, *, to: int | None = None
    ) -> PeerAnswers:
        return PeerAnswers(unanswered=[2])


def parts(site: VirtualSite) -> tuple[Any, Any, Any, Any]:
    delivered = Counter(("Sent",))
    return site.site, cast("Any", IdleRuntime()), cast("Any", BusyDispatcher()), delivered


@pytest.fixture
def reads(site: VirtualSite, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times at which the store's facts were read."""
    found: list[float] = []
    read = ConsoleFacts.read

    def noted(self: Any, tx: Tx) -> Any:
        found.append(trio.current_time())
        return read(self, tx)

    monkeypatch.setattr(ConsoleFacts, "read", noted)
    return found


async def test_console_view_reads_store_in_watched_process_only(
    site: VirtualSite, reads: list[float]
) -> None:
    others = SilentPeerProcess()
    console = ServiceConsole(*parts(site), others)
    await others.known["view"](None)
    assert reads == []
    await site.subscribe()
    assert len((await console.view()).store.receivers) == 1
    assert len(reads) == 1


async def test_console_samples_an_hour_without_watchers(
    site: VirtualSite, reads: list[float], autojump_clock: MockClock
) -> None:
    console = Console(*parts(site))
    await site.site.store.write(lambda tx: jobs.enqueue(tx, queue="webhook", partition="w"))
    async with trio.open_nursery() as nursery:
        await nursery.start(console.keep_history)
        await trio.sleep(2 * 3600)
        nursery.cancel_scope.cancel()
    samples = await console.history()
    assert len(samples) == MAX_SAMPLES
    steps = {after.at - before.at for before, after in pairwise(samples)}
    assert steps == {10_000}
    assert (samples[-1].in_flight, samples[-1].waiting, samples[-1].deliveries) == (3, 1, 0.0)
    assert reads == []


async def test_console_reads_slow_store_for_fortieth_of_time(
    site: VirtualSite,
    reads: list[float],
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = site.site.store.read

    async def slowly(*args: Any, **given: Any) -> Any:
        await trio.sleep(2)
        return await read(*args, **given)

    monkeypatch.setattr(site.site.store, "read", slowly)
    console = Console(*parts(site))
    number, end = 0, trio.current_time() + 300
    while trio.current_time() < end:
        number = (await console.view(after=number)).number
    pauses = [after - before for before, after in pairwise(reads)]
    assert pauses
    assert min(pauses) >= 2 * COST_RATIO
