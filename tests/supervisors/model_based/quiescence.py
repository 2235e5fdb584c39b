"""The invariants at quiescence, when all tasks wait, and after the end."""

from __future__ import annotations

from collections import Counter

import trio
from trio.testing import wait_all_tasks_blocked

from fw_actors.runtime import (
    EventKind,
    KeyedPool,
    TopicOverflow,
)
from fw_actors.runtime.cell import ActorCell, ActorState
from tests.supervisors.model_based.messages import (
    CALLERS,
    EPSILON,
    KEYS,
    POOL,
    POOLS,
    SINGLE_ACTORS,
    TOPIC,
    WORKER_POOL,
    InstanceRecord,
)
from tests.supervisors.model_based.model import RuntimeModel
from tests.supervisors.model_based.scripted_actors import ScriptedActor


class QuiescenceChecks(RuntimeModel):
    """Checks the invariants that hold when no task can continue."""

    async def check_repeatedly(self) -> None:
        """Wait for quiescence at random times, and check the invariants."""
        while True:
            await trio.sleep(self.rng.uniform(0, 0.4))
            await wait_all_tasks_blocked()
            self.check_quiescence()

    def check_quiescence(self) -> None:
        """Check that everything that waits has a reason to wait."""
        for name, ref in self.refs.items():
            self._check_cell(name, ref.cell)
        for pool in self.pools.values():
            self._check_pool(pool)
        self._check_waits()
        self._check_watches()
        self._check_stops()
        self._check_worker_pool()
        self._check_messages()
        self._check_topic()
        self._check_deadlines()
        self._check_snapshot()

    def _check_stops(self) -> None:
        for name, instance, deadline in self.stopped:
            self.expect(
                self.now() <= deadline + EPSILON
                or self.refs[name].cell.actor is not instance.actor
                or self.swallows_cancellation,
                "runs after the deadline of its stop",
                name,
            )

    def _check_worker_pool(self) -> None:
        if self.worker_pool.depth:
            free = [cell.name for cell in self.worker_pool.workers if not self._is_blocked(cell)]
            self.expect(not free, f"a message waits for free workers {free}", WORKER_POOL)
        if self.worker_pool.waiting:
            self.expect(
                self.worker_pool.depth >= self.worker_pool.capacity,
                "senders wait for room",
                WORKER_POOL,
            )

    def _check_messages(self) -> None:
        for record in self.records:
            if record.is_request and not record.call_ended and record.in_order:
                self.expect(not record.answered, f"{record!r} has its answer, but waits", record.to)
                self.expect(record.error is None, f"{record!r} has failed, but waits", record.to)
                self.expect(self.now() <= record.due + EPSILON, f"{record!r} waits", record.to)
        self.records = [
            record for record in self.records if not (record.is_request and record.call_ended)
        ]

    def _check_topic(self) -> None:
        topic = self.topic.snapshot()
        if topic.waiting:
            full = [
                member
                for member in topic.members
                if member.overflow is TopicOverflow.WAIT and member.depth >= member.capacity
            ]
            self.expect(bool(full), "publishers wait, but no member is full", TOPIC)
        for member in topic.members:
            if member.overflow is not TopicOverflow.UNSUBSCRIBE:
                self.expect(member.depth <= 8, "a queue over its capacity", TOPIC)

    def _check_pool(self, pool: KeyedPool) -> None:
        for cell in pool.cells():
            self._check_cell(cell.name, cell)
            known = cell.actor is not None or cell.is_parked
            failed = pool.failed_keys.get(cell.key)
            if cell.is_parked and not pool.is_held and failed is not None:
                in_time = failed.start_at >= self.now() - EPSILON
                self.expect(in_time, "its restart is late", cell.name)
            self.expect(known, "a key without an instance", cell.name)
        statistics = pool.statistics()
        self.expect(statistics.cells <= 2 * pool.capacity, "too many actors", pool.name)
        self.expect(
            statistics.alarm_set or not statistics.idle, "idle without a deadline", pool.name
        )

    def _check_waits(self) -> None:
        """Check that no handlers wait in a cycle, and that those with `give_up` do give up."""
        waits = {
            name: instance.waits_for
            for name, instance in self.current.items()
            if instance.busy and instance.waits_for is not None
        }
        for name, waits_for in waits.items():
            path, last = [name], waits_for
            while last in waits and last not in path:
                path.append(last)
                last = waits[last]
            record = self.current[last].record if last in self.current else None
            reply_kept = record is not None and record.reply_kept
            self.expect(last not in path or reply_kept, f"waits in the cycle {path}", name)
        for instance in self.instances:
            parent = instance.record if instance.busy and instance.gives_up else None
            while parent is not None and not parent.answered:
                self.expect(
                    not parent.call_ended, f"continues to handle {instance.record!r}", instance.name
                )
                parent = parent.parent

    def _check_watches(self) -> None:
        """Check that repeating watches have reported every start and every end."""
        self.collect_events()
        for watcher, instance in self.current.items():
            cell = self.cell(watcher)
            if cell is None or cell.actor is not instance.actor or self._is_blocked(cell):
                continue
            for number, (to, before) in instance.repeating_watches.items():
                watched = self.cell(to)
                now = 0 if watched is None or watched.actor is None else watched.incarnation
                for start in self.started.get(to, ()):
                    if start > before:
                        self.expect(
                            (number, start) in instance.ups, f"no Up {start} of {to}", watcher
                        )
                        ended = start == now or (number, start) in instance.downs
                        self.expect(ended, f"no Down {start} of {to}", watcher)

    def collect_events(self) -> None:
        """Take the events that the listener has received."""
        for event in self.listener.take_all():
            self.events.append(event)
            if event.kind is EventKind.STARTED:
                self.started.setdefault(event.name, []).append(event.incarnation)

    def _check_cell(self, name: str, cell: ActorCell) -> None:
        if cell.mailbox.waiting:
            self.expect(cell.mailbox.depth >= cell.mailbox.capacity, "senders wait for room", name)
        actor = cell.actor
        if isinstance(actor, ScriptedActor):
            self._check_work(name, cell, actor)
            closed = cell.mailbox.is_closed and cell.state is ActorState.RUNNING
            if name in self.refs:
                self.expect(not closed, "runs with a closed mailbox", name)
        if self._is_blocked(cell):
            return
        self.expect(cell.mailbox.depth == 0, f"{cell.mailbox.depth} messages wait", name)
        if isinstance(actor, ScriptedActor):
            self._check_operations(name, cell, actor.instance)

    def _check_work(self, name: str, cell: ActorCell, actor: ScriptedActor) -> None:
        instance = actor.instance
        done = any(ended is not None for ended in instance.reporting_work.values())
        held = cell.state in (ActorState.SUSPENDED, ActorState.STARTING)
        if instance.queued_work and not (instance.busy or done or held):
            running = instance.running_work + instance.pending_asks
            limit = self.policy_of(actor).max_work
            self.expect(running >= limit, "work waits although there is room", name)

    def _check_operations(self, name: str, cell: ActorCell, instance: InstanceRecord) -> None:
        pool = self.pools.get(name.partition("/")[0])
        ends = cell.stop_requested if pool is None else pool.is_closed or pool.is_held
        for due, _ in () if ends else instance.timers.values():  # the end has cancelled them
            self.expect(due >= self.now() - EPSILON, "a timer is late", name)
        for ended in instance.reporting_work.values():
            self.expect(ended is None, "finished work waits", name)

    def _is_blocked(self, cell: ActorCell) -> bool:
        """Return whether the cell has a reason to handle no message now."""
        actor = cell.actor
        if not isinstance(actor, ScriptedActor) or actor.instance.busy:
            return True
        waits_for_work = cell.full_of_work or cell.mailbox_held or cell.stop_requested
        held = cell.state in (ActorState.SUSPENDED, ActorState.STARTING)
        return held or bool(waits_for_work and cell.works)

    def _check_deadlines(self) -> None:
        """Check that each pending deadline belongs to something that still waits."""
        cells = [ref.cell for ref in self.refs.values()]
        cells += self.worker_pool.workers
        keyed = [cell for pool in self.pools.values() for cell in pool.cells()]
        timers = sum(cell.timers for cell in (*cells, *keyed))
        asks = sum(record.is_request and not record.call_ended for record in self.records)
        others = 2 * len(cells) + 2 * len(keyed) + len(POOLS) + CALLERS
        pending = self.runtime.snapshot().deadlines
        limit = timers + asks + others
        self.expect(pending <= limit, f"{pending} deadlines, not up to {limit}", "runtime")

    def _check_snapshot(self) -> None:
        nodes = {node.name: node for node in self.runtime.snapshot().walk()}
        for name in SINGLE_ACTORS:
            node = nodes.get(name)
            if node is not None and node.kind == "actor":
                self._check_totals(name, [name], node.handled, node.failed)
        for pool in POOLS:
            if pool in nodes:
                keys = [f"{pool}/{key}" for key in KEYS]
                self._check_totals(pool, keys, nodes[pool].handled, nodes[pool].failed)
        workers = [node for name, node in nodes.items() if name.startswith(f"{WORKER_POOL}/")]
        if len(workers) == self.worker_pool.size:
            handled = sum(node.handled for node in workers)
            failed = sum(node.failed for node in workers)
            self._check_totals(WORKER_POOL, [WORKER_POOL], handled, failed)

    def _check_totals(self, name: str, parts: list[str], handled: int, failed: int) -> None:
        low = sum(self.handled[part] for part in parts)
        high = low + sum(self.maybe_handled[part] for part in parts)
        self.expect(low <= handled <= high, f"handled {handled}, not {low} to {high}", name)
        low = sum(self.failed[part] for part in parts)
        high = low + sum(self.maybe_failed[part] for part in parts)
        self.expect(low <= failed <= high, f"failed {failed}, not {low} to {high}", name)

    def check_stopped(self) -> None:
        """Check that no task is left, however the runtime has ended."""
        for instance in self.instances:
            self.expect(not instance.busy, "a handler still runs", instance.name)
            self.expect(not instance.running_work, "work still runs", instance.name)
        for record in self.records:
            if record.is_request and record.in_order:
                self.expect(record.call_ended, f"{record!r} was never settled", record.to)

    def check_end(self) -> None:
        """Check what is left when all actors have ended."""
        self.collect_events()
        self.check_stopped()
        dead: Counter[str] = Counter()
        for event in self.events:
            if event.kind is EventKind.DEAD_LETTER and event.message_type.endswith(
                "ScriptedMessage"
            ):
                dead[WORKER_POOL if event.name.startswith(f"{WORKER_POOL}/") else event.name] += 1
        expected = Counter(self.refused_tells)
        for record in self.records:
            if not record.is_request and not record.refused:
                expected[record.to] += (
                    (not record.begun) or record.stashed or record.stash_overflowed
                )
        for name in {*dead, *expected}:
            self.expect(
                dead[name] == expected[name],
                f"{dead[name]} dead letters, not {expected[name]}",
                name,
            )
        left = [len(pool) for pool in self.pools.values()]
        self.expect(left == [0, 0], "keyed actors are left", POOL)
        pool = self.worker_pool
        workers = pool.free, pool.depth, pool.waiting
        self.expect(workers == (0, 0, 0), f"left in the worker pool: {workers}", WORKER_POOL)
        topic = len(self.topic), self.topic.snapshot().waiting
        self.expect(topic == (0, 0), f"left in the topic: {topic}", TOPIC)
        statistics = self.runtime.statistics()
        self.expect(statistics.deadlines.pending == 0, f"{statistics.deadlines} left", "runtime")
        self.expect(
            (statistics.workers.alive, statistics.workers.queued) == (statistics.workers.parked, 0),
            f"{statistics.workers} left",
            "runtime",
        )
        self.expect(self.runtime.snapshot().tree == (), "a tree is left", "runtime")
