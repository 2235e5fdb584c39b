"""Outcomes are written in groups, and are independent of each other (B-215)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import NamedTuple, TypeVar, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from fw_actors.actors.outcome_writer import (
    BATCH_SECONDS,
    BATCH_SIZE,
    FLUSH_INTERVAL_SECONDS,
    ORDERED_BATCH_SECONDS,
    OutcomeWriter,
    Record,
    Recorded,
)
from fw_actors.errors import OverloadedError
from fw_actors.rules.delivery import DeliveryStatus, OutcomeKind
from fw_actors.runtime import ActorError, Ref, SeededEntropy, TrioClock, open_runtime
from fw_actors.store import LeasedJob, Store, Tx
from fw_actors.webhooks.claims import LeasedDelivery
from fw_actors.webhooks.deliveries import AttemptOutcome, Deliveries
from supervisors import actor_child, open_supervisor
from tests.site_kit import START_MS

pytestmark = pytest.mark.usefixtures("on_both_stores")

T = TypeVar("T")

LEASE_SECONDS = 40
WRITE_SECONDS = 0.0101  # the duration of a write here, and a little more


class NamedBatch(NamedTuple):
    """Stands in for a batch of outcomes."""

    names: list[str]
    next_at: int | None


class RecordingStore:
    """Stands in for store and statements: records the written groups."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.write_seconds = 0.01
        self.sent = 0
        self.left_waiting: list[int] = []
        """The number of outcomes that each group left waiting."""
        self.overloaded = 0
        self.unwritable: set[str] = set()
        self.lost: set[str] = set()
        self.due: dict[str, int] = {}
        """The times of the next attempts, by delivery."""
        self.on_disk = 0
        """The number of outcomes that would survive a power failure."""
        self.waits: list[float] = []
        """The times of syncs, on trio's clock."""
        self._group: list[str] = []

    async def write(self, fn: Callable[[Tx], T], *, durable: bool = True) -> T:
        await trio.sleep(self.write_seconds)
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

    def outcome_batch(
        self, attempts: Sequence[tuple[LeasedDelivery, AttemptOutcome]]
    ) -> NamedBatch:
        names = [due.delivery for due, _ in attempts]
        if self.unwritable.intersection(names):
            raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
        self.left_waiting.append(self.sent - len(self.written) - len(names))
        return NamedBatch(names, min((self.due[n] for n in names if n in self.due), default=None))

    def settle_all(self, tx: Tx, batch: NamedBatch) -> list[DeliveryStatus | None]:
        return [self._settle(delivery) for delivery in batch.names]

    def _settle(self, delivery: str) -> DeliveryStatus | None:
        self._group.append(delivery)
        return None if delivery in self.lost else DeliveryStatus.SENT

    @property
    def written(self) -> list[str]:
        return [delivery for group in self.groups for delivery in group]


class DeliveryLog:
    """Records events with their delivery."""

    def __init__(self) -> None:
        self.said: list[tuple[str, object]] = []

    def info(self, event: str, **fields: object) -> None:
        self.said.append((event, fields.get("delivery")))

    debug = warning = error = info


class WriterHarness:
    """A running OutcomeWriter, and tasks that send outcomes to it."""

    def __init__(self, askers: trio.Nursery) -> None:
        self.memory, self.log = RecordingStore(), DeliveryLog()
        self.answers: dict[str, Recorded | ActorError] = {}
        """By delivery, in order of arrival."""
        self.writer: Ref
        self.lease_end = 0
        self.lease_seconds = dict[str, int]()
        """By delivery, if they differ from `LEASE_SECONDS`."""
        self.ordered: set[str] = set()
        """The deliveries of Webhooks with an order."""
        self._askers = askers

    async def record(self, *deliveries: str) -> None:
        """Send outcomes in this order and concurrently; their answers go to `answers`."""
        for delivery in deliveries:
            self._askers.start_soon(self._ask, delivery)
            await wait_all_tasks_blocked()

    async def record_at_once(self, *deliveries: str) -> None:
        """Send outcomes before the OutcomeWriter has handled any of them."""
        for delivery in deliveries:
            self._askers.start_soon(self._ask, delivery)
        await wait_all_tasks_blocked()

    async def record_alone(self, delivery: str) -> None:
        """Record the first outcome after a pause, which waits for no others."""
        await self.record(delivery)
        await trio.sleep(WRITE_SECONDS)

    def recorded(self) -> list[Recorded]:
        """Return the answers recorded since the last call, in their order."""
        taken, self.answers = self.answers, {}
        return [answer for answer in taken.values() if isinstance(answer, Recorded)]

    def error(self, delivery: str) -> str:
        """Return the error of an outcome that was not recorded."""
        answer = self.answers[delivery]
        assert isinstance(answer, Recorded)
        return answer.error

    async def _ask(self, delivery: str) -> None:
        self.memory.sent += 1
        job = LeasedJob(1, "webhook", "hook", delivery, "", "", "", 0, 0, "token")
        seconds = self.lease_seconds.get(delivery, LEASE_SECONDS)
        lease_end = self.lease_end + (seconds - LEASE_SECONDS) * 1000
        due = LeasedDelivery(
            job, None, lease_end, delivery, b"{}", 0, 6, "Queued", delivery in self.ordered
        )
        try:
            answer = await self.writer.ask(
                Record(due, AttemptOutcome(OutcomeKind.DELIVERED, self.lease_end))
            )
        except ActorError as error:
            self.answers[delivery] = error
        else:
            self.answers[delivery] = answer


@asynccontextmanager
async def open_harness(*, slots: int = 4 * BATCH_SIZE) -> AsyncIterator[WriterHarness]:
    clock = TrioClock(START_MS)
    async with trio.open_nursery() as askers:
        harness = WriterHarness(askers)
        harness.lease_end = clock.now() + LEASE_SECONDS * 1000
        memory = harness.memory
        async with open_runtime(clock=clock, entropy=SeededEntropy(1), log=harness.log) as runtime:
            harness.writer = runtime.ref("outcomes")

            def make() -> OutcomeWriter:
                store, deliveries = cast("Store", memory), cast("Deliveries", memory)
                return OutcomeWriter(store, deliveries, clock, harness.log, slots=slots)

            async with open_supervisor(runtime, "harness", [actor_child("outcomes", make)]):
                yield harness


async def test_outcomes_arriving_during_write_form_single_group(
    autojump_clock: MockClock,
) -> None:
    """Outcomes are written in groups (B-215)."""
    async with open_harness() as harness:
        await harness.record("first")
        await trio.sleep(BATCH_SECONDS + 0.005)
        await harness.record("second", "third", "fourth")
        await trio.sleep(1)
        assert harness.memory.groups == [["first"], ["second", "third", "fourth"]]
        assert harness.answers == dict.fromkeys(
            harness.memory.written, Recorded(DeliveryStatus.SENT, None)
        )


@pytest.mark.parametrize("seed", range(3))
async def test_outcome_group_has_all_outcomes_that_wait(
    seed: int, autojump_clock: MockClock
) -> None:
    """Also while the disk is so slow that a timer has always fired: an actor handles one message of
    its mailbox for each of its timers' (B-215)."""
    random = Random(seed)
    async with open_harness() as harness:
        for number in range(200):
            harness.memory.write_seconds = random.uniform(0.0, FLUSH_INTERVAL_SECONDS)
            await harness.record(str(number))
            await trio.sleep(random.choice([0.0, 0.0, 0.0, BATCH_SECONDS]))
        await trio.sleep(1)
        assert len(harness.memory.written) == 200
        assert set(harness.memory.left_waiting) == {0}


async def test_outcome_writer_writes_full_batch_immediately(
    autojump_clock: MockClock,
) -> None:
    async with open_harness() as harness:
        await harness.record_alone("before")
        await harness.record(*(str(number) for number in range(BATCH_SIZE)))
        await trio.sleep(WRITE_SECONDS)
        assert [len(group) for group in harness.memory.groups] == [1, BATCH_SIZE]
        await harness.record("one")
        await trio.sleep(WRITE_SECONDS)
        assert len(harness.memory.groups) == 2
        await trio.sleep(BATCH_SECONDS)
        assert harness.memory.groups[2] == ["one"]


async def test_outcome_after_pause_is_written_at_once(autojump_clock: MockClock) -> None:
    """Nothing is gained by waiting for others."""
    async with open_harness() as harness:
        for each in ("first", "second"):
            await harness.record(each)
            await trio.sleep(WRITE_SECONDS)
            assert harness.memory.groups[-1] == [each]
            await trio.sleep(BATCH_SECONDS)


async def test_outcome_of_ordered_delivery_waits_for_less_time(autojump_clock: MockClock) -> None:
    """The next delivery of its document is sent only afterwards."""
    async with open_harness() as harness:
        harness.ordered = {"ordered"}
        for each in ("ordered", "other"):
            await harness.record_alone("before")
            await harness.record(each)
            await trio.sleep(ORDERED_BATCH_SECONDS + WRITE_SECONDS)
            assert (harness.memory.groups[-1] == [each]) == (each == "ordered")
            await trio.sleep(2 * BATCH_SECONDS)


async def test_outcomes_arriving_together_after_pause_form_single_group(
    autojump_clock: MockClock,
) -> None:
    """The others do not wait for the write of the first (B-215)."""
    async with open_harness() as harness:
        await harness.record_at_once("first", "second", "third")
        await trio.sleep(WRITE_SECONDS)
        assert [sorted(group) for group in harness.memory.groups] == [["first", "second", "third"]]


@pytest.mark.parametrize(
    ("slots", "enough"), [(1, 1), (7, 1), (40, 10), (100 * BATCH_SIZE, BATCH_SIZE)]
)
async def test_outcome_batch_is_full_at_quarter_of_slots(
    slots: int, enough: int, autojump_clock: MockClock
) -> None:
    """A waiting outcome holds a slot, and slots may be few."""
    async with open_harness(slots=slots) as harness:
        await harness.record_alone("before")
        await harness.record(*(str(number) for number in range(enough - 1)))
        await trio.sleep(BATCH_SECONDS / 2)
        await harness.record("last")
        await trio.sleep(WRITE_SECONDS)  # before the timer could fire
        assert [len(group) for group in harness.memory.groups] == [1, enough]


async def test_unwritable_outcome_blocks_no_other_outcome(
    autojump_clock: MockClock,
) -> None:
    async with open_harness() as harness:
        harness.memory.unwritable = {"bad"}
        await harness.record("good", "bad", "better")
        await trio.sleep(1)
        assert harness.memory.written == ["good", "better"]
        assert harness.error("bad").startswith("UnicodeEncodeError")
        del harness.answers["bad"]
        assert harness.answers == dict.fromkeys(
            harness.memory.written, Recorded(DeliveryStatus.SENT, None)
        )
    assert [event for event, _ in harness.log.said if event == "delivery.group_split"] != []


async def test_recorded_answer_names_first_retry_of_group(
    autojump_clock: MockClock,
) -> None:
    """A wait may be shorter than the poll interval of one second (B-191, B-197)."""
    async with open_harness() as harness:
        harness.memory.due = {"later": START_MS + 900, "soon": START_MS + 100, "bad": START_MS}
        await harness.record_alone("before")
        harness.recorded()
        await harness.record("later", "sent", "soon")
        await trio.sleep(1)
        assert {one.next_at for one in harness.recorded()} == {START_MS + 100}
        harness.memory.unwritable = {"bad"}
        await harness.record_alone("before")
        harness.recorded()
        await harness.record("bad", "later", "sent")  # written singly
        await trio.sleep(1)
        assert {one.next_at for one in harness.recorded()} == {START_MS + 900, None}


async def test_outcome_of_lost_lease_is_answered_without_status(autojump_clock: MockClock) -> None:
    """If the lease's row is gone, the outcome is dropped and logged (B-211)."""
    async with open_harness() as harness:
        harness.memory.lost = {"late"}
        await harness.record("late", "early")
        await trio.sleep(1)
        assert harness.answers == {
            "late": Recorded(None, None),
            "early": Recorded(DeliveryStatus.SENT, None),
        }


async def test_outcome_writer_retries_overloaded_store(autojump_clock: MockClock) -> None:
    async with open_harness() as harness:
        harness.memory.overloaded = 5
        await harness.record("patient")
        await trio.sleep(5)
        assert harness.memory.written == ["patient"]


async def test_outcome_is_dropped_at_lease_end_under_overload(
    autojump_clock: MockClock,
) -> None:
    """The next worker sends the delivery again (at least once)."""
    async with open_harness() as harness:
        harness.memory.overloaded = 1_000_000
        await harness.record("hopeless")
        await trio.sleep(LEASE_SECONDS - 2)
        assert harness.answers == {}
        await trio.sleep(4)
        assert harness.error("hopeless").startswith("OverloadedError")


async def test_outcomes_wait_for_overloaded_store_until_last_lease_ends(
    autojump_clock: MockClock,
) -> None:
    """The end of one lease drops no outcome whose lease is valid: it would be sent again."""
    async with open_harness() as harness:
        harness.lease_seconds = {"short": 5}
        harness.memory.overloaded = 1_000_000
        await harness.record_at_once("short", "long")
        await trio.sleep(LEASE_SECONDS / 2)
        assert harness.answers == {}
        harness.memory.overloaded = 0
        await trio.sleep(2)
        assert sorted(harness.memory.written) == ["long", "short"]


async def test_outcome_writer_stop_writes_pending_outcomes(autojump_clock: MockClock) -> None:
    """Deliveries survive a stop, which drains (O-36)."""
    async with open_harness() as harness:
        await harness.record(*(str(number) for number in range(600)))
    assert harness.memory.written == [str(number) for number in range(600)]


async def test_single_outcome_is_written_durably(autojump_clock: MockClock) -> None:
    async with open_harness() as harness:
        for number in range(3):
            await harness.record(str(number))
            await trio.sleep(FLUSH_INTERVAL_SECONDS + 0.02)
            assert harness.memory.on_disk == number + 1
        await trio.sleep(10)
        assert len(harness.memory.waits) == 3


async def test_outcome_writer_syncs_ten_times_per_second_under_load(
    autojump_clock: MockClock,
) -> None:
    """A durable group delays all claims behind it."""
    async with open_harness(slots=8) as harness:
        for number in range(435):
            await harness.record(str(number))
            await trio.sleep(0.0023)  # so that no instant coincides with a write
        assert len(harness.memory.groups) > 50
        assert 9 <= len(harness.memory.waits) <= 11


async def test_lazily_written_outcome_is_synced_shortly_afterwards(
    autojump_clock: MockClock,
) -> None:
    async with open_harness() as harness:
        await harness.record("first")
        await trio.sleep(BATCH_SECONDS + 0.02)
        await harness.record("second")
        await trio.sleep(BATCH_SECONDS + 0.02)
        assert (len(harness.memory.written), harness.memory.on_disk) == (2, 1)
        harness.memory.overloaded = 3
        await trio.sleep(FLUSH_INTERVAL_SECONDS)
        assert harness.memory.on_disk == 1
        await trio.sleep(3)
        assert harness.memory.on_disk == 2
        await trio.sleep(10)
        assert len(harness.memory.waits) == 2


async def test_outcome_writer_stop_syncs_to_disk(autojump_clock: MockClock) -> None:
    async with open_harness() as harness:
        await harness.record("first")
        await trio.sleep(BATCH_SECONDS + 0.02)
        await harness.record("second")
        await trio.sleep(BATCH_SECONDS + 0.02)
        assert harness.memory.on_disk == 1
    assert harness.memory.on_disk == 2
