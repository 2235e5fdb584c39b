"""One view of the processes of a service (H-176)."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
import trio
from trio.testing import MockClock

from fw_actors.actors.console import Console, PauseReach, RequestHandler, ServiceConsole
from fw_actors.actors.console_view import (
    NO_STORE,
    ConsoleSample,
    ConsoleView,
    DeadLetterShown,
    Node,
    Receiver,
    Trace,
    merge_histories,
    merge_views,
    with_stored,
)
from fw_actors.config import ProcessPlace
from fw_actors.errors import OverloadedError
from fw_actors.ops.console_facts import StoredReceiver, StoreFacts
from supervisors.service.control_channel import PeerAnswers

ACTOR = Node("/service/mailer", "mailer", "actor", "running", 1, 0, 64, 1, 0, 7, 0.5, 0, 1, "")
HEALTHY = Receiver("https://a.test:443", 1, 2, 8, "healthy")


def view_of(*receivers: Receiver, number: int = 5, at: int = 10) -> ConsoleView:
    return ConsoleView(
        number=number,
        at=at,
        every=1.0,
        tree=[ACTOR],
        rates={"Sent": 1.5},
        in_flight=1,
        slots=256,
        receivers=list(receivers),
        store=NO_STORE,
        dead_letters=1,
        last_dead_letters=[DeadLetterShown("mailer", "Poll", "full", at)],
        traces=[Trace("mailer", at, 0, [])],
        numbers={"deadlines": 2},
    )


def test_merged_view_lists_actors_below_named_process() -> None:
    view = merge_views(view_of(), {1: view_of(), 2: view_of()}, 2, {2: 3})
    assert [(n.path, n.name, n.level, n.restarts) for n in view.tree] == [
        ("/process 1", "process 1", 0, 0),
        ("/process 1/service/mailer", "mailer@1", 2, 1),
        ("/process 2", "process 2", 0, 3),
        ("/process 2/service/mailer", "mailer@2", 2, 1),
    ]
    assert [trace.actor for trace in view.traces] == ["mailer@1", "mailer@2"]


def test_merged_view_marks_process_not_answering() -> None:
    view = merge_views(view_of(), {1: view_of()}, 2, {})
    assert [(n.name, n.state) for n in view.tree if n.kind == "process"] == [
        ("process 1", "running"),
        ("process 2", "not answering"),
    ]


def test_merged_view_adds_numbers_and_keeps_own_store() -> None:
    own = msgspec.structs.replace(view_of(), store=StoreFacts([], [], [], [], []))
    view = merge_views(own, {1: own, 2: view_of()}, 2, {})
    assert (view.in_flight, view.slots, view.dead_letters) == (2, 512, 2)
    assert (view.rates, view.numbers) == ({"Sent": 3.0}, {"deadlines": 4})
    assert (view.number, view.store) == (5, own.store)


def test_merged_view_shows_receiver_once_with_worst_health() -> None:
    failing = Receiver("https://a.test:443", 2, 1, 8, "failing", 3, 77, "connect: refused")
    view = merge_views(view_of(), {1: view_of(HEALTHY), 2: view_of(failing)}, 2, {})
    assert view.receivers == [
        Receiver("https://a.test:443", 3, 3, 16, "failing", 3, 77, "connect: refused")
    ]


def test_merged_view_sorts_unhealthy_receivers_first() -> None:
    paused = Receiver("https://b.test:443", 0, 1, 8, "paused")
    view = merge_views(view_of(), {1: view_of(HEALTHY), 2: view_of(paused)}, 2, {})
    assert [each.health for each in view.receivers] == ["paused", "healthy"]


def test_merged_view_sorts_newest_dead_letters_first() -> None:
    view = merge_views(view_of(), {1: view_of(at=10), 2: view_of(at=20)}, 2, {})
    assert [letter.recipient for letter in view.last_dead_letters] == ["mailer@2", "mailer@1"]


def test_stored_receiver_keeps_failing_health_over_restart() -> None:
    stored = StoredReceiver("https://a.test:443", 2, 40, False, 3, 77, "status: 503", None)
    (shown,) = with_stored([HEALTHY], [stored])
    assert (shown.health, shown.failures, shown.failing_since) == ("failing", 3, 77)
    assert (shown.waiting, shown.webhooks, shown.last_error) == (40, 2, "status: 503")


def test_stored_receiver_with_waiting_deliveries_is_shown() -> None:
    waits = StoredReceiver("https://b.test:443", 1, 5, False, 0, None, "", 9)
    idle = StoredReceiver("https://c.test:443", 1, 0, False, 0, None, "", 9)
    assert with_stored([], [waits, idle]) == [
        Receiver("https://b.test:443", 0, 0, 0, "untried", webhooks=1, waiting=5, last_success=9)
    ]


def test_merged_view_counts_stored_deliveries_once() -> None:
    stored = StoredReceiver("https://a.test:443", 1, 40, False, 0, None, "", None)
    own = msgspec.structs.replace(
        view_of(), store=msgspec.structs.replace(NO_STORE, receivers=[stored])
    )
    view = merge_views(own, {1: view_of(HEALTHY), 2: view_of(HEALTHY)}, 2, {})
    assert [(each.waiting, each.in_flight) for each in view.receivers] == [(40, 2)]


def test_merged_history_adds_samples_of_same_ten_seconds() -> None:
    one = [ConsoleSample(10_000, 1.0, 1, 7, 2.0), ConsoleSample(20_001, 1.5, 1, 8, 2.0)]
    other = [ConsoleSample(20_900, 0.5, 2, 8, 1.0)]
    assert merge_histories([one, other]) == [
        ConsoleSample(10_000, 1.0, 1, 7, 2.0),
        ConsoleSample(20_900, 2.0, 3, 8, 3.0),
    ]


class SlowPeerProcess:
    """The other process of two, which answers after a second."""

    def __init__(self) -> None:
        self.place = ProcessPlace(1, 2)
        self.requests: list[str] = []

    def register(self, request: str, handler: RequestHandler) -> None:
        """Ignore the registration."""

    async def gather(
        self, request: str, argument: object = None, *, to: int | None = None
    ) -> PeerAnswers:
        self.requests.append(request)
        await trio.sleep(1)
        return PeerAnswers({2: msgspec.to_builtins(view_of())})


async def test_service_console_watchers_share_request_to_other_processes(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(Console, "__init__", lambda *_: None)
    numbers = iter((5, 5, 6, 5))

    async def view(self: Console, after: int = 0) -> ConsoleView:
        return view_of(number=next(numbers))

    monkeypatch.setattr(Console, "view", view)
    other = SlowPeerProcess()
    nothing = cast("Any", None)
    console = ServiceConsole(nothing, nothing, nothing, nothing, other)
    seen = []

    async def watch() -> None:
        seen.append((await console.view()).number)

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(watch)
    assert (seen, other.requests) == ([5, 5], ["view"])
    await watch()
    await watch()  # a slow watcher, for which a newer view exists
    assert (seen, other.requests) == ([5, 5, 6, 6], ["view", "view"])


class FrozenPeerProcess(SlowPeerProcess):
    """The other process of two, which does not answer."""

    async def gather(
        self, request: str, argument: object = None, *, to: int | None = None
    ) -> PeerAnswers:
        return PeerAnswers(unanswered=[2])


@pytest.mark.parametrize("action", ["pause", "resume"])
async def test_service_console_reports_missing_answer_about_unknown_receiver(
    monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """404 said that no process knows the receiver, which the process without an answer may."""
    monkeypatch.setattr(Console, "__init__", lambda *_: None)

    async def set_paused(self: Console, message: object) -> PauseReach:
        return PauseReach(is_known=False)

    monkeypatch.setattr(Console, "set_paused", set_paused)
    nothing = cast("Any", None)
    console = ServiceConsole(nothing, nothing, nothing, nothing, FrozenPeerProcess())
    with pytest.raises(OverloadedError, match="These processes did not answer: 2"):
        await getattr(console, action)("Administrator", HEALTHY.origin)
