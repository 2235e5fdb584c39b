"""The slots of receivers: a receiver is scheme, host and port (B-230, B-231, B-232, B-233)."""

from __future__ import annotations

import itertools
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from fw_actors.actors.delivery import Attempt, AttemptsInFlight, SlotFreed
from fw_actors.actors.dispatcher import BATCH_SECONDS
from fw_actors.actors.queue_worker import WakeUp
from fw_actors.errors import OverloadedError
from fw_actors.http import Endpoint, ReceiverResponse, parse_endpoint
from fw_actors.http.exchange import MakeHeaders
from fw_actors.runtime import KeyedPool, Message
from fw_actors.store import Tx
from fw_actors.webhooks.claims import ClaimedBatch
from fw_actors.webhooks.deliveries import Deliveries
from tests.fw_actors.actors.delivery_kit import DeliverySite, ScriptedReceiver, delivering
from tests.fw_actors.actors.store_delays import delay_writes
from tests.mail_kit import RecordingLog

pytestmark = pytest.mark.usefixtures("on_both_stores")


class HostReceivers(ScriptedReceiver):
    """Several receivers by host: those named `bad…` hang, the others answer at once."""

    async def post(
        self, target: Endpoint, body: bytes, make_headers: MakeHeaders, *, timeout: float
    ) -> ReceiverResponse:
        self.answers = ["timeout"] if target.origin.host.startswith("bad") else ["200"]
        return await super().post(target, body, make_headers, timeout=timeout)

    def at(self, host: str) -> list[float]:
        """Return the times of the posts to a host."""
        return [got.at for got in self.posts if f"//{host}" in got.url]


async def until_less(post: DeliverySite, waiting: int) -> None:
    """Wait until fewer deliveries wait."""
    with trio.fail_after(10):
        for _ in itertools.repeat(None):
            if len(await waiting_jobs(post)) < waiting:
                return
            await trio.sleep(0.001)


async def waiting_jobs(post: DeliverySite) -> list[dict[str, Any]]:
    return [job for job in await post.jobs() if job["next_at"] is not None]


class CountingReceiver(ScriptedReceiver):
    """Counts the deliveries that wait when it gets one."""

    site: DeliverySite
    waiting = 0

    async def post(
        self, target: Endpoint, body: bytes, make_headers: MakeHeaders, *, timeout: float
    ) -> ReceiverResponse:
        self.waiting = len(await waiting_jobs(self.site))
        return await super().post(target, body, make_headers, timeout=timeout)


async def test_receiver_slots_double_per_answer_up_to_limit(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Slow start, up to perReceiverConcurrency."""
    receiver = ScriptedReceiver(["200"], busy=0.5)
    async with delivering(tmp_path, receiver, per_receiver_concurrency=4) as post:
        await post.webhook()
        made = [(await post.emit())[0] for _ in range(11)]
        for delivery in made:
            await post.settled(delivery)
    begun = sorted({round(got.at, 1) for got in receiver.posts})
    waves = [sum(1 for got in receiver.posts if round(got.at, 1) == at) for at in begun]
    assert waves[:3] == [1, 2, 4]
    assert receiver.peak == 4


async def test_slow_start_sends_waves_without_pause(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Slow start costs its round trips, and no pause between them."""
    receiver = ScriptedReceiver(["200"], busy=0.1)
    async with delivering(tmp_path, receiver, per_receiver_concurrency=16) as post:
        await post.webhook()
        made = await emitted(post, 15)
        for delivery in made:
            await post.settled(delivery)
    first = receiver.posts[0].at
    waves = [round((got.at - first) * 1000) for got in receiver.posts]
    assert waves == [0] + [100] * 2 + [200] * 8 + [300] * 4


async def test_slow_answers_are_batched_before_next_claim(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Slow answers are batched like refusals, so many slow receivers do not cost a claim each."""
    receiver = ScriptedReceiver(["200"], busy=1.5)
    async with delivering(tmp_path, receiver, per_receiver_concurrency=8) as post:
        await post.webhook()
        made = [(await post.emit())[0] for _ in range(3)]
        for delivery in made:
            await post.settled(delivery)
    times = [got.at for got in receiver.posts]
    pauses = [after - before - 1.5 for before, after in pairwise(times)]
    assert pauses == pytest.approx([BATCH_SECONDS] * 2, abs=0.001)


async def test_slow_answer_resets_receiver_to_single_slot(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """An attempt that waits over 1 s for an answer's head resets the receiver to one slot."""
    receiver = ScriptedReceiver(["200"], busy=1.5)
    async with delivering(tmp_path, receiver, per_receiver_concurrency=8) as post:
        await post.webhook()
        made = [(await post.emit())[0] for _ in range(6)]
        for delivery in made:
            await post.settled(delivery)
    assert receiver.peak == 1


async def test_hanging_receivers_delay_no_healthy_receiver(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """An event for a healthy receiver goes out within 1 s while any 40 others hang."""
    hosts = HostReceivers(["200"])
    async with delivering(tmp_path, hosts, delivery_concurrency=64) as post:
        for number in range(40):
            await post.webhook(f"https://bad{number}.example/", event="bad.made", timeout=60)
        await post.webhook("https://good.example/", event="good.made")
        for _ in range(5):
            await post.emit("bad.made")
        await trio.sleep(30)
        for second in range(20):
            await post.emit("good.made")
            await trio.sleep(1)
            assert len(hosts.at("good.example")) == second + 1
    assert hosts.peak <= 64


@pytest.mark.parametrize("ended", ["disabled", "deleted"])
async def test_deliveries_of_ended_webhook_delay_no_healthy_receiver(
    tmp_path: Path, autojump_clock: MockClock, ended: str
) -> None:
    """They fail without being sent, and may be a million (B-233)."""
    receiver = CountingReceiver(["200"])
    async with delivering(tmp_path, receiver, delivery_concurrency=32) as post:
        receiver.site = post
        webhook = await post.webhook("https://ended.test/hook", event="to.ended")
        await post.webhook(event="to.healthy")
        waiting = 600

        def work(tx: Tx) -> None:
            fw = post.site.handle(tx, "Administrator")
            fw.webhooks.emit_many([{"name": "to.ended", "data": {}}] * waiting)
            doc = fw.get_doc("Webhook", webhook)
            if ended == "deleted":
                doc.delete()
            else:
                doc.enabled = 0
                doc.save()

        await post.site.store.write(work)
        await until_less(post, waiting)
        left = len(await waiting_jobs(post))
        [delivery] = await post.emit("to.healthy")
        await post.settled(delivery)
        assert receiver.waiting > left - 4 * 32


@pytest.mark.parametrize("fresh", ["https://h0.test/other", "https://fresh.test/hook"])
async def test_backlogs_delay_no_event_of_another_webhook(
    tmp_path: Path, autojump_clock: MockClock, fresh: str
) -> None:
    """Neither at the same receiver, nor at others that could use all slots (B-237)."""
    receiver = ScriptedReceiver(["200"], busy=0.2)
    async with delivering(
        tmp_path, receiver, delivery_concurrency=16, per_receiver_concurrency=8
    ) as post:
        for number in range(4):
            await post.webhook(f"https://h{number}.test/hook", event="to.all")
        await post.webhook(fresh, event="to.fresh")

        def work(tx: Tx) -> None:
            webhooks = post.site.handle(tx, "Administrator").webhooks
            webhooks.emit_many([{"name": "to.all", "data": {}}] * 200)

        await post.site.store.write(work)
        await trio.sleep(2)
        began = trio.current_time()
        for _ in range(3):
            await post.settled((await post.emit("to.fresh"))[0])
        assert trio.current_time() - began < 4
        assert len(await waiting_jobs(post)) > 400


async def test_webhooks_of_same_receiver_share_slots(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A receiver is scheme, host and port, for any number of Webhooks."""
    receiver = ScriptedReceiver(["200"], busy=0.5)
    async with delivering(tmp_path, receiver, per_receiver_concurrency=2) as post:
        await post.webhook("https://one.example/a", event="both.made")
        await post.webhook("https://one.example/b", event="both.made")
        for _ in range(5):
            await post.emit("both.made")
        await trio.sleep(10)
    assert len(receiver.posts) == 10
    assert receiver.peak == 2


async def test_due_deliveries_beyond_slots_wait_in_store(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Memory does not grow with due rows: 200 are queued, and one is in flight."""
    receiver = ScriptedReceiver(["hang"])
    async with delivering(tmp_path, receiver) as post:
        await post.webhook(timeout=60)
        for _ in range(200):
            await post.emit()
        await trio.sleep(5)
        assert receiver.in_flight == 1
        assert len([job for job in await post.jobs() if job["lease"]]) == 1


async def test_restarted_dispatcher_leases_only_free_slots(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Attempts of before keep their slots; only a delivery that can start is leased."""
    receiver = ScriptedReceiver(["200"], busy=20.0)
    async with delivering(tmp_path, receiver, delivery_concurrency=4) as post:
        for number in range(8):
            event = "first.made" if number < 4 else "second.made"
            await post.webhook(f"https://r{number}.example/", event=event, timeout=60)
        await post.emit("first.made")
        await trio.sleep(1)
        assert receiver.in_flight == 4
        post.runtime.ref("dispatcher").stop(trio.current_time() + 5)
        await trio.sleep(1)
        await post.emit("second.made")
        await trio.sleep(2)
        assert len([job for job in await post.jobs() if job["lease"]]) == 4
        await trio.sleep(45)
        assert await post.jobs() == []
    assert receiver.peak == 4
    assert receiver.times == [0, 0, 0, 0, 20, 20, 20, 20]


async def test_leased_delivery_without_slot_is_returned_uncounted(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """It is returned before its lease ends, and not counted as a death of its worker; the slot of
    its receiver is free again.
    """
    receiver = ScriptedReceiver(["timeout", "200"])
    async with delivering(tmp_path, receiver, delivery_concurrency=1) as post:
        await post.webhook(timeout=10)
        due = await post.lease()
        elsewhere = parse_endpoint("https://elsewhere.example/")
        assert post.pool[due.delivery].tell(Attempt(due, elsewhere))  # the one slot
        [delivery] = await post.emit()
        await trio.sleep(5.2)  # between two polls
        assert [job["deaths"] for job in await post.jobs()] == [0, 0]
        assert [job["subject"] for job in await post.jobs() if job["lease"]] == [due.delivery]
        with trio.fail_after(20):
            found = await post.settled(delivery)
    assert (found["status"], found["attempts"]) == ("Sent", 1)
    assert receiver.times[1] <= 12


async def test_idle_receivers_beyond_number_of_slots_are_forgotten(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Else each host that a Webhook has ever named would stay in memory."""
    async with delivering(tmp_path, ScriptedReceiver(["200"]), delivery_concurrency=2) as post:
        for number in range(8):
            await post.webhook(f"https://h{number}.example/hook")
        for _ in range(3):
            for delivery in await post.emit():
                await post.settled(delivery)
        assert len(await receivers(post)) <= 3


@pytest.mark.parametrize("busy", [False, True])
async def test_leased_delivery_without_actor_is_returned_and_claimed_again(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    """The pool may refuse one; its receiver's slot is free again at once. If the store is too busy
    to release the lease, the lease expires."""
    receiver, tell, release = ScriptedReceiver(["200"]), KeyedPool.tell, Deliveries.release
    begin, refused = AttemptsInFlight.begin, list[str]()
    in_use: set[AttemptsInFlight] = set()

    def begin_noted(attempts: AttemptsInFlight, *given: Any) -> Attempt:
        in_use.add(attempts)
        return begin(attempts, *given)

    def refuse_once(pool: KeyedPool, key: str, message: Message) -> bool:
        if refused:
            return tell(pool, key, message)
        refused.append(key)
        return False

    def overloaded(*given: Any) -> bool:
        if busy:
            raise OverloadedError
        return release(*given)

    monkeypatch.setattr(AttemptsInFlight, "begin", begin_noted)
    monkeypatch.setattr(KeyedPool, "tell", refuse_once)
    monkeypatch.setattr(Deliveries, "release", overloaded)
    log = RecordingLog()
    async with delivering(tmp_path, receiver, log=log, per_receiver_concurrency=1) as post:
        await post.webhook(timeout=10)
        first, second = [await post.emit(), await post.emit()]
        for [delivery] in (first, second):
            assert (await post.settled(delivery))["attempts"] == 1
        [shown] = await receivers(post)
    assert refused == first
    assert (shown["in_flight"], [attempts.count for attempts in in_use]) == (0, [0])
    assert log.of("actor_failed") == []
    assert [got.at > 39 for got in receiver.posts] == [False, busy]


async def emitted(post: DeliverySite, count: int) -> list[str]:
    """Emit events for one Webhook in one transaction; return their deliveries."""
    return await post.site.write(
        "Administrator",
        lambda fw: [fw.webhooks.emit("invoice.paid", {})["deliveries"][0] for _ in range(count)],
    )


async def test_slots_return_although_mailbox_of_dispatcher_is_full(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Otherwise a receiver would get nothing until a restart."""
    receiver = ScriptedReceiver(["200"], busy=0.5)
    async with delivering(tmp_path, receiver, per_receiver_concurrency=4) as post:
        await post.webhook()
        made = await emitted(post, 20)
        await trio.sleep(1.2)
        assert receiver.in_flight == 4
        dispatcher = post.runtime.ref("dispatcher")
        dispatcher.suspend()  # as while a poll waits for the store
        while dispatcher.tell(WakeUp()):
            pass
        await trio.sleep(1)
        assert receiver.in_flight == 0
        dispatcher.resume()
        with trio.fail_after(10):
            for delivery in made:
                await post.settled(delivery)
        [shown] = await receivers(post)
    assert (shown["in_flight"], receiver.peak) == (0, 4)


async def test_slots_are_used_although_outcomes_are_recorded_during_claim(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that finds no slot, and ends after outcomes are recorded, is no pause (B-237)."""
    receiver = ScriptedReceiver(["200"])
    async with delivering(
        tmp_path, receiver, delivery_concurrency=4, per_receiver_concurrency=4
    ) as post:

        def delay(answer: object) -> float:
            return (6 if isinstance(answer, ClaimedBatch) else 4) * BATCH_SECONDS

        await post.webhook()
        delay_writes(monkeypatch, post.site.store, after=delay)
        for delivery in await emitted(post, 40):
            await post.settled(delivery)
    times = [got.at for got in receiver.posts]
    assert max(after - before for before, after in pairwise(times)) < 0.5


async def test_restarted_dispatcher_counts_attempts_of_before(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of a receiver holds over a failure of the Dispatcher (B-231)."""
    receiver = ScriptedReceiver(["200"], busy=0.5)
    async with delivering(tmp_path, receiver, per_receiver_concurrency=4) as post:
        await post.webhook()
        made = await emitted(post, 60)
        await trio.sleep(1.2)
        assert receiver.in_flight == 4
        claim = Deliveries.claim

        def fail_once(*_: object) -> None:
            monkeypatch.setattr(Deliveries, "claim", claim)
            raise RuntimeError("a defect")

        monkeypatch.setattr(Deliveries, "claim", fail_once)
        post.dispatcher()
        await trio.testing.wait_all_tasks_blocked()
        assert Deliveries.claim is claim
        [after] = await receivers(post)
        for delivery in made:
            await post.settled(delivery)
        [last] = await receivers(post)
    assert (after["in_flight"], after["window"]) == (4, 1)
    assert (last["in_flight"], receiver.peak) == (0, 4)


async def test_attempt_without_actor_uses_no_slot_of_new_dispatcher(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """It was in the mailbox of an actor that has ended."""
    async with delivering(tmp_path, ScriptedReceiver(["200"])) as post:
        await post.webhook()
        due = await post.lease()
        attempts = AttemptsInFlight(post.runtime.ref("nobody"))
        attempt = attempts.begin(due, None)
        assert attempts.running_by_receiver({due.delivery}) == {None: 1}
        assert attempts.running_by_receiver(set()) == {}
        attempts.end(attempt, SlotFreed(None))
        assert list(attempts.take_freed()) == []


async def receivers(post: DeliverySite) -> Any:
    """Return the receivers as the console shows them."""
    return (await post.runtime.ref("dispatcher").inspect()).described["receivers"]
