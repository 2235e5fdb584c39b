"""Faults of the actor runtime that its random runs, or one test, find."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutation import Mutation

_RUNTIME: Final = "fw_actors/runtime"
_RUNS: Final = "tests/supervisors/test_model_based.py::test_runtime_agrees_with_a_sequential_model"

RUNTIME: Final = (
    Mutation(
        "a message whose actor does not start vanishes",
        f"{_RUNTIME}/keyed_pool.py",
        "self._discard(self.mailbox.take(), DeadLetterReason.FAILED, error)",
        "self.mailbox.take()",
        _RUNS,
    ),
    Mutation(
        "a request that nobody waits for is begun",
        f"{_RUNTIME}/cell.py",
        "if not item.awaited or (item.parent",
        "if (item.parent",
        _RUNS,
    ),
    Mutation(
        "a request for an asker that has gone is begun",
        f"{_RUNTIME}/reply.py",
        "        if not self.orphaned:\n            return False\n",
        "        return False\n",
        _RUNS,
    ),
    Mutation(
        "a message that waited for room wakes no free worker",
        f"{_RUNTIME}/worker_pool.py",
        "        await super().offer_when_room(item)\n        self.pass_on()\n",
        "        await super().offer_when_room(item)\n",
        "tests/supervisors/test_worker_pools.py::test_senders_that_wait_for_room_wake_free_workers",
    ),
    Mutation(
        "a timer that is cancelled after it has expired fires",
        f"{_RUNTIME}/operations.py",
        'None if it was cancelled after `expire`."""\n        if not self._pending:\n'
        "            return None",
        'None if it was cancelled after `expire`."""\n        if not self._pending:\n'
        "            return self._message",
        _RUNS,
    ),
    Mutation(
        "messages return to the mailbox in reverse",
        f"{_RUNTIME}/mailbox.py",
        "self._returned.extendleft(reversed(items))",
        "self._returned.extendleft(items)",
        _RUNS,
    ),
    Mutation(
        "work that waits for other work never begins",
        f"{_RUNTIME}/operations.py",
        "            self._cell.runtime.workers.submit(self._waiting_work.popleft())\n",
        "            self._waiting_work.popleft()\n",
        _RUNS,
    ),
    Mutation(
        "the asker of a handler that is cancelled waits for its deadline",
        f"{_RUNTIME}/cell.py",
        "            self._current.abandon(self._end_error(failure))\n",
        "",
        _RUNS,
    ),
    Mutation(
        "actors wait for each other in a ring",
        f"{_RUNTIME}/deadlock.py",
        "        if node is goal or node in assumed:\n",
        "        if node in assumed:\n",
        _RUNS,
    ),
    Mutation(
        "a handler that gives up down a chain goes on",
        f"{_RUNTIME}/cell.py",
        "                node.cell.asker_gone(node)\n",
        "                pass\n",
        _RUNS,
    ),
    Mutation(
        "the deadline of an answered request stays",
        f"{_RUNTIME}/reply.py",
        "            self._deadline.pop(self, None)\n",
        "",
        _RUNS,
    ),
    Mutation(
        "a stop between two instances closes the mailbox of the next one",
        f"{_RUNTIME}/single.py",
        "        if self._scope is None:\n            return\n        self.stop_requested = True",
        "        self.stop_requested = True",
        _RUNS,
    ),
    Mutation(
        "a second membership has a queue of its own",
        f"{_RUNTIME}/topics.py",
        "                member.take_over(feed)\n",
        "                pass\n",
        _RUNS,
    ),
    Mutation(
        "a key whose restart is delayed never restarts",
        f"{_RUNTIME}/keyed_pool.py",
        "        self.runtime.deadlines.add_at(self, failed.start_at)\n",
        "",
        _RUNS,
    ),
    Mutation(
        "the totals of a pool count an actor twice",
        f"{_RUNTIME}/keyed_pool.py",
        "                self._inactive_totals.subtract(cell)\n",
        "",
        _RUNS,
    ),
    Mutation(
        "context variables of a message stay set after it",
        f"{_RUNTIME}/messages.py",
        "            variable.reset(token)\n",
        "            pass\n",
        _RUNS,
    ),
)
