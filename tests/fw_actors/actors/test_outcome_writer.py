"""Outcomes are written in groups, and none of them depends on another (B-215)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeVar, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from fw_actors.actors.outcome_writer import (
    BATCH_SECONDS,
    BATCH_SIZE,
    DISK_SECONDS,
    OutcomeWriter,
    Record,
    Recorded,
)
from fw_actors.errors import OverloadedError
from fw_actors.rules.delivery import DeliveryStatus, Ending
from fw_actors.runtime import ActorError, Ref, SeededEntropy, TrioClock, open_runtime
from fw_actors.store import LeasedJob, Store, Tx
from fw_actors.webhooks.claims import LeasedDelivery
from fw_actors.webhooks.deliveries import AttemptOutcome, Deliveries
from supervisors import actor_child, open_supervisor
from tests.site_kit import START_MS

pytestmark = pytest.mark.usefixtures("on_both_stores")

T = TypeVar("T")

LEASE_SECONDS = 40


class Names(NamedTuple):
    """Stands in for what attempts make of deliveries."""

    names: list[str]
    next_at: int | None


class Memory:
    """Stands in for store and statements: remembers what was written, and in which groups."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.overloaded = 0
        self.unwritable: set[str] = set()
        self.lost: set[str] = set()
        self.due: dict[str, int] = {}
        """When some are due again."""
        self.on_disk = 0
        """How many outcomes a power failure would leave."""
        self.waits: list[float] = []
        """When the disk was waited for, on trio's clock."""
        self._group: list[str] = []

    async def write(self, fn: Callable[[Tx], T], *, durable: bool = True) -> T:
        await trio.sleep(0.01)
        if self.overloaded:
            self.overloaded -= 1
            raise OverloadedError("The disk is full.")
        self._group = []
        result = fn(cast("Tx", None))
        if self._group:
            self.groups.append(self._group)
        if durable:
            self.on_disk = len(self.written)
            self.waits.append(trio.current_time())
        return result

    def outcome_batch(self, attempts: Sequence[tuple[LeasedDelivery, AttemptOutcome]]) -> Names:
        names = [due.delivery for due, _ in attempts]
        if self.unwritable.intersection(names):
            raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
        return Names(names, min((self.due[n] for n in names if n in self.due), default=None))

    def settle_all(self, tx: Tx, judged: Names) -> list[DeliveryStatus | None]:
        return [self._settle(delivery) for delivery in judged.names]

    def _settle(self, delivery: str) -> DeliveryStatus | None:
        self._group.append(delivery)
        return None if delivery in self.lost else DeliveryStatus.SENT

    @property
    def written(self) -> list[str]:
        return [delivery for group in self.groups for delivery in group]


class Log:
    """Remembers events, with the delivery that each is about."""

    def __init__(self) -> None:
        self.said: list[tuple[str, object]] = []

    def info(self, event: str, **fields: object) -> None:
        self.said.append((event, fields.get("delivery")))

    debug = warning = error = info


class Desk:
    """A running OutcomeWriter, and the askers around it."""

    def __init__(self, askers: trio.Nursery) -> None:
        self.memory, self.log = Memory(), Log()
        self.answers: dict[str, Recorded | ActorError] = {}
        """By delivery, in the order in which they came."""
        self.writer: Ref
        self.lease_end = 0
        self._askers = askers

    async def record(self, *deliveries: str) -> None:
        """Hand over outcomes, in this order and all at once; the answers come to `answers`."""
        for delivery in deliveries:
            self._askers.start_soon(self._ask, delivery)
            await wait_all_tasks_blocked()

    def recorded(self) -> list[Recorded]:
        """Return what was recorded since this was asked last, in the order of the answers."""
        taken, self.answers = self.answers, {}
        return [answer for answer in taken.values() if isinstance(answer, Recorded)]

    def error(self, delivery: str) -> str:
        """Return why an outcome was not recorded."""
        answer = self.answers[delivery]
        assert isinstance(answer, Recorded)
        return answer.error

    async def _ask(self, delivery: str) -> None:
        job = LeasedJob(1, "webhook", "hook", delivery, "", "", "", 0, 0, "token")
        due = LeasedDelivery(job, None, self.lease_end, delivery, b"{}", 0, 6, "Queued")
        try:
            answer = await self.writer.ask(
                Record(due, AttemptOutcome(Ending.DELIVERED, self.lease_end))
            )
        except ActorError as error:
            self.answers[delivery] = error
        else:
            self.answers[delivery] = answer


@asynccontextmanager
async def open_desk(*, slots: int = 4 * BATCH_SIZE) -> AsyncIterator[Desk]:
    clock = TrioClock(START_MS)
    async with trio.open_nursery() as askers:
        desk = Desk(askers)
        desk.lease_end = clock.now() + LEASE_SECONDS * 1000
        memory = desk.memory
        async with open_runtime(clock=clock, entropy=SeededEntropy(1), log=desk.log) as runtime:
            desk.writer = runtime.ref("outcomes")

            def make() -> OutcomeWriter:
                store, deliveries = cast("Store", memory), cast("Deliveries", memory)
                return OutcomeWriter(store, deliveries, clock, desk.log, slots=slots)

            async with open_supervisor(runtime, "desk", [actor_child("outcomes", make)]):
                yield desk


async def test_outcomes_that_come_while_one_is_written_are_written_together(
    autojump_clock: MockClock,
) -> None:
    """Outcomes are written in groups (B-215)."""
    async with open_desk() as desk:
        await desk.record("first")
        await trio.sleep(BATCH_SECONDS + 0.005)
        await desk.record("second", "third", "fourth")
        await trio.sleep(1)
        assert desk.memory.groups == [["first"], ["second", "third", "fourth"]]
        assert desk.answers == dict.fromkeys(
            desk.memory.written, Recorded(DeliveryStatus.SENT, None)
        )


async def test_a_few_outcomes_are_waited_for_and_enough_are_written_at_once(
    autojump_clock: MockClock,
) -> None:
    async with open_desk() as desk:
        await desk.record(*(str(number) for number in range(BATCH_SIZE)))
        await trio.sleep(0.0101)  # what a write takes here
        assert [len(group) for group in desk.memory.groups] == [BATCH_SIZE]
        await desk.record("one")
        await trio.sleep(0.0101)
        assert len(desk.memory.groups) == 1
        await trio.sleep(BATCH_SECONDS)
        assert desk.memory.groups[1] == ["one"]


@pytest.mark.parametrize(
    ("slots", "enough"), [(1, 1), (7, 1), (40, 10), (100 * BATCH_SIZE, BATCH_SIZE)]
)
async def test_a_quarter_of_all_places_is_enough_to_be_written_at_once(
    slots: int, enough: int, autojump_clock: MockClock
) -> None:
    """An outcome that waits holds a slot, of which there may be few."""
    async with open_desk(slots=slots) as desk:
        await desk.record(*(str(number) for number in range(enough - 1)))
        await trio.sleep(BATCH_SECONDS / 2)
        await desk.record("last")
        await trio.sleep(0.0101)  # what a write takes here; too soon for what only a timer writes
        assert [len(group) for group in desk.memory.groups] == [enough]


async def test_an_outcome_that_cannot_be_written_holds_up_no_other(
    autojump_clock: MockClock,
) -> None:
    async with open_desk() as desk:
        desk.memory.unwritable = {"bad"}
        await desk.record("good", "bad", "better")
        await trio.sleep(1)
        assert desk.memory.written == ["good", "better"]
        assert desk.error("bad").startswith("UnicodeEncodeError")
        del desk.answers["bad"]
        assert desk.answers == dict.fromkeys(
            desk.memory.written, Recorded(DeliveryStatus.SENT, None)
        )
    assert [event for event, _ in desk.log.said if event == "delivery.group_split"] != []


async def test_an_answer_says_when_the_first_retry_of_its_group_is_due(
    autojump_clock: MockClock,
) -> None:
    """Waits may be shorter than the second after which it looks in any case (B-191, B-197)."""
    async with open_desk() as desk:
        desk.memory.due = {"later": START_MS + 900, "soon": START_MS + 100, "bad": START_MS}
        await desk.record("later", "sent", "soon")
        await trio.sleep(1)
        assert {one.next_at for one in desk.recorded()} == {START_MS + 100}
        desk.memory.unwritable = {"bad"}
        await desk.record("bad", "later", "sent")  # each alone
        await trio.sleep(1)
        assert {one.next_at for one in desk.recorded()} == {START_MS + 900, None}


async def test_a_lost_lease_is_answered_without_a_status(autojump_clock: MockClock) -> None:
    """If the lease's row is gone, the outcome is dropped and logged (B-211)."""
    async with open_desk() as desk:
        desk.memory.lost = {"late"}
        await desk.record("late", "early")
        await trio.sleep(1)
        assert desk.answers == {
            "late": Recorded(None, None),
            "early": Recorded(DeliveryStatus.SENT, None),
        }


async def test_an_overloaded_store_is_asked_again(autojump_clock: MockClock) -> None:
    async with open_desk() as desk:
        desk.memory.overloaded = 5
        await desk.record("patient")
        await trio.sleep(5)
        assert desk.memory.written == ["patient"]


async def test_a_store_that_stays_overloaded_costs_the_outcome_when_its_lease_has_ended(
    autojump_clock: MockClock,
) -> None:
    """The next worker sends the delivery again: at least once."""
    async with open_desk() as desk:
        desk.memory.overloaded = 1_000_000
        await desk.record("hopeless")
        await trio.sleep(LEASE_SECONDS - 2)
        assert desk.answers == {}
        await trio.sleep(4)
        assert desk.error("hopeless").startswith("OverloadedError")


async def test_a_stop_writes_everything_that_was_handed_over(autojump_clock: MockClock) -> None:
    """Deliveries survive a stop, which drains (O-36)."""
    async with open_desk() as desk:
        await desk.record(*(str(number) for number in range(600)))
    assert desk.memory.written == [str(number) for number in range(600)]


async def test_an_outcome_by_itself_is_waited_for_on_the_disk(autojump_clock: MockClock) -> None:
    async with open_desk() as desk:
        for number in range(3):
            await desk.record(str(number))
            await trio.sleep(DISK_SECONDS + 0.02)
            assert desk.memory.on_disk == number + 1
        await trio.sleep(10)
        assert len(desk.memory.waits) == 3


async def test_under_load_the_disk_is_waited_for_ten_times_a_second(
    autojump_clock: MockClock,
) -> None:
    """A group that waits holds up all claims behind it."""
    async with open_desk(slots=8) as desk:
        for number in range(435):
            await desk.record(str(number))
            await trio.sleep(0.0023)  # so that nothing falls on one instant with a write
        assert len(desk.memory.groups) > 50
        assert 9 <= len(desk.memory.waits) <= 11


async def test_what_the_disk_was_not_waited_for_it_has_a_moment_later(
    autojump_clock: MockClock,
) -> None:
    async with open_desk() as desk:
        await desk.record("first")
        await trio.sleep(BATCH_SECONDS + 0.02)
        await desk.record("second")
        await trio.sleep(BATCH_SECONDS + 0.02)
        assert (len(desk.memory.written), desk.memory.on_disk) == (2, 1)
        desk.memory.overloaded = 3
        await trio.sleep(DISK_SECONDS)
        assert desk.memory.on_disk == 1
        await trio.sleep(3)
        assert desk.memory.on_disk == 2
        await trio.sleep(10)
        assert len(desk.memory.waits) == 2


async def test_a_stop_waits_for_the_disk(autojump_clock: MockClock) -> None:
    async with open_desk() as desk:
        await desk.record("first")
        await trio.sleep(BATCH_SECONDS + 0.02)
        await desk.record("second")
        await trio.sleep(BATCH_SECONDS + 0.02)
        assert desk.memory.on_disk == 1
    assert desk.memory.on_disk == 2
