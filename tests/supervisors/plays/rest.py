"""The rules that hold while all tasks wait, and after the end."""

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
from tests.supervisors.plays.letters import (
    CALLERS,
    CREW,
    EPSILON,
    KEYS,
    POOL,
    POOLS,
    SINGLES,
    TOPIC,
    Life,
)
from tests.supervisors.plays.model import PlayModel
from tests.supervisors.plays.puppets import Puppet


class RestRules(PlayModel):
    """Checks what must be true when no task can go on."""

    async def look(self) -> None:
        """Check now and then that nothing waits that could go on."""
        while True:
            await trio.sleep(self.dice.uniform(0, 0.4))
            await wait_all_tasks_blocked()
            self.check_rest()

    def check_rest(self) -> None:
        """Check that whatever waits has a reason to wait."""
        for name, ref in self.refs.items():
            self._check_cell(name, ref.cell)
        for pool in self.pools.values():
            self._check_pool(pool)
        self._check_waits()
        self._check_watches()
        self._check_stops()
        self._check_crew()
        self._check_letters()
        self._check_topic()
        self._check_deadlines()
        self._check_snapshot()

    def _check_stops(self) -> None:
        for name, life, deadline in self.stopped:
            self.expect(
                self.now() <= deadline + EPSILON
                or self.refs[name].cell.actor is not life.actor
                or self.swallows,
                "runs after the deadline of its stop",
                name,
            )

    def _check_crew(self) -> None:
        if self.crew.depth:
            free = [cell.name for cell in self.crew.workers if not self._is_held_up(cell)]
            self.expect(not free, f"a message waits for free workers {free}", CREW)
        if self.crew.waiting:
            self.expect(self.crew.depth >= self.crew.capacity, "senders wait for room", CREW)

    def _check_letters(self) -> None:
        for letter in self.letters:
            if letter.asked and not letter.gone and letter.in_order:
                self.expect(not letter.answered, f"{letter!r} has its answer, but waits", letter.to)
                self.expect(letter.error is None, f"{letter!r} has failed, but waits", letter.to)
                self.expect(self.now() <= letter.due + EPSILON, f"{letter!r} waits", letter.to)
        self.letters = [letter for letter in self.letters if not (letter.asked and letter.gone)]

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
        self.expect(statistics.alarm_set or not statistics.idle, "idle for ever", pool.name)

    def _check_waits(self) -> None:
        """Check that no handlers wait for each other in a ring, and that those end that give up."""
        waits = {
            name: life.waits_for
            for name, life in self.current.items()
            if life.busy and life.waits_for is not None
        }
        for name, waits_for in waits.items():
            ring, step = [name], waits_for
            while step in waits and step not in ring:
                ring.append(step)
                step = waits[step]
            letter = self.current[step].letter if step in self.current else None
            kept = letter is not None and letter.kept
            self.expect(step not in ring or kept, f"waits in the ring {ring}", name)
        for life in self.lives:
            parent = life.letter if life.busy and life.gives_up else None
            while parent is not None and not parent.answered:
                self.expect(not parent.gone, f"goes on with {life.letter!r}", life.name)
                parent = parent.parent

    def _check_watches(self) -> None:
        """Check that watches that repeat have reported every start, and every end."""
        self.hear()
        for watcher, life in self.current.items():
            cell = self.cell(watcher)
            if cell is None or cell.actor is not life.actor or self._is_held_up(cell):
                continue
            for number, (to, before) in life.repeating.items():
                watched = self.cell(to)
                now = 0 if watched is None or watched.actor is None else watched.incarnation
                for start in self.started.get(to, ()):
                    if start > before:
                        self.expect((number, start) in life.ups, f"no Up {start} of {to}", watcher)
                        ended = start == now or (number, start) in life.downs
                        self.expect(ended, f"no Down {start} of {to}", watcher)

    def hear(self) -> None:
        """Note the events so far."""
        for event in self.listener.take_all():
            self.events.append(event)
            if event.kind is EventKind.STARTED:
                self.started.setdefault(event.name, []).append(event.incarnation)

    def _check_cell(self, name: str, cell: ActorCell) -> None:
        if cell.mailbox.waiting:
            self.expect(cell.mailbox.depth >= cell.mailbox.capacity, "senders wait for room", name)
        actor = cell.actor
        if isinstance(actor, Puppet):
            self._check_work(name, cell, actor)
            closed = cell.mailbox.is_closed and cell.state is ActorState.RUNNING
            if name in self.refs:
                self.expect(not closed, "runs with a closed mailbox", name)
        if self._is_held_up(cell):
            return
        self.expect(cell.mailbox.depth == 0, f"{cell.mailbox.depth} messages wait", name)
        if isinstance(actor, Puppet):
            self._check_operations(name, cell, actor.life)

    def _check_work(self, name: str, cell: ActorCell, actor: Puppet) -> None:
        life = actor.life
        done = any(ended is not None for ended in life.works.values())
        held = cell.state in (ActorState.SUSPENDED, ActorState.STARTING)
        if life.queued and not (life.busy or done or held):
            running = life.running + life.asking
            limit = self.policy_of(actor).max_work
            self.expect(running >= limit, "work waits although there is room", name)

    def _check_operations(self, name: str, cell: ActorCell, life: Life) -> None:
        pool = self.pools.get(name.partition("/")[0])
        ends = cell.stop_requested if pool is None else pool.is_closed or pool.is_held
        for due, _ in () if ends else life.timers.values():  # the end has cancelled them
            self.expect(due >= self.now() - EPSILON, "a timer is late", name)
        for ended in life.works.values():
            self.expect(ended is None, "finished work waits", name)

    def _is_held_up(self, cell: ActorCell) -> bool:
        """Whether there is a reason that the cell handles no message now."""
        actor = cell.actor
        if not isinstance(actor, Puppet) or actor.life.busy:
            return True
        waits_for_work = cell.full_of_work or cell.mailbox_held or cell.stop_requested
        held = cell.state in (ActorState.SUSPENDED, ActorState.STARTING)
        return held or bool(waits_for_work and cell.works)

    def _check_deadlines(self) -> None:
        """Check that no deadline outlives what it is for."""
        cells = [ref.cell for ref in self.refs.values()]
        cells += self.crew.workers
        keyed = [cell for pool in self.pools.values() for cell in pool.cells()]
        timers = sum(cell.timers for cell in (*cells, *keyed))
        asks = sum(letter.asked and not letter.gone for letter in self.letters)
        others = 2 * len(cells) + 2 * len(keyed) + len(POOLS) + CALLERS
        pending = self.runtime.snapshot().deadlines
        most = timers + asks + others
        self.expect(pending <= most, f"{pending} deadlines, not up to {most}", "runtime")

    def _check_snapshot(self) -> None:
        nodes = {node.name: node for node in self.runtime.snapshot().walk()}
        for name in SINGLES:
            node = nodes.get(name)
            if node is not None and node.kind == "actor":
                self._check_totals(name, [name], node.handled, node.failed)
        for pool in POOLS:
            if pool in nodes:
                keys = [f"{pool}/{key}" for key in KEYS]
                self._check_totals(pool, keys, nodes[pool].handled, nodes[pool].failed)
        workers = [node for name, node in nodes.items() if name.startswith(f"{CREW}/")]
        if len(workers) == self.crew.size:
            handled = sum(node.handled for node in workers)
            failed = sum(node.failed for node in workers)
            self._check_totals(CREW, [CREW], handled, failed)

    def _check_totals(self, name: str, parts: list[str], handled: int, failed: int) -> None:
        least = sum(self.handled[part] for part in parts)
        most = least + sum(self.unsure[part] for part in parts)
        self.expect(least <= handled <= most, f"handled {handled}, not {least} to {most}", name)
        known = sum(self.failed[part] for part in parts)
        maybe = known + sum(self.maybe_failed[part] for part in parts)
        self.expect(known <= failed <= maybe, f"failed {failed}, not {known} to {maybe}", name)

    def check_curtain(self) -> None:
        """Check that no task is left, however the runtime has ended."""
        for life in self.lives:
            self.expect(not life.busy, "a handler still runs", life.name)
            self.expect(not life.running, "work still runs", life.name)
        for letter in self.letters:
            if letter.asked and letter.in_order:
                self.expect(letter.gone, f"{letter!r} was never settled", letter.to)

    def check_end(self) -> None:
        """Check what is left when all actors have ended."""
        self.hear()
        self.check_curtain()
        dead: Counter[str] = Counter()
        for event in self.events:
            if event.kind is EventKind.DEAD_LETTER and event.message_type.startswith("TellTale"):
                dead[CREW if event.name.startswith(f"{CREW}/") else event.name] += 1
        expected = Counter(self.told)
        for letter in self.letters:
            if not letter.asked and not letter.refused:
                expected[letter.to] += (not letter.begun) or letter.stashed or letter.lost
        for name in {*dead, *expected}:
            self.expect(
                dead[name] == expected[name],
                f"{dead[name]} dead letters, not {expected[name]}",
                name,
            )
        left = [len(pool) for pool in self.pools.values()]
        self.expect(left == [0, 0], "keyed actors are left", POOL)
        crew = self.crew.free, self.crew.depth, self.crew.waiting
        self.expect(crew == (0, 0, 0), f"left in the crew: {crew}", CREW)
        topic = len(self.topic), self.topic.snapshot().waiting
        self.expect(topic == (0, 0), f"left in the topic: {topic}", TOPIC)
        seen = self.runtime.statistics()
        self.expect(seen.deadlines.pending == 0, f"{seen.deadlines} left", "runtime")
        self.expect(
            (seen.workers.alive, seen.workers.queued) == (seen.workers.parked, 0),
            f"{seen.workers} left",
            "runtime",
        )
        self.expect(self.runtime.snapshot().tree == (), "a tree is left", "runtime")
