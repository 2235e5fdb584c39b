"""What may be leased: nothing of a paused Webhook, of one with a limit no more than that, and one
delivery of a document at a time where their order matters."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Final

from tests.simulation.environment import BrokenPromise
from tests.simulation.stored import JobRow, StoredState, WebhookRow

SECOND_MS: Final = 1000

Leased = Sequence[tuple[int, JobRow]]
"""Jobs by their numbers."""


class Pacing:
    """Checks the leases of each commit; raises BrokenPromise."""

    def __init__(self) -> None:
        self._latest = 0
        self._times: dict[str, deque[int]] = defaultdict(deque)

    def check(self, now: int, leased: Leased, before: StoredState, after: StoredState) -> None:
        """Check the jobs that a commit leased at `now` (ms), and the keys of all jobs."""
        clock_went_back, self._latest = now < self._latest, now
        for name in list(self._times):
            old, new = before.hooks.get(name), after.hooks.get(name)
            if clock_went_back or old is None or new is None or old.rate_limit != new.rate_limit:
                del self._times[name]  # another limit, or another time
        in_order: dict[tuple[str, str], list[tuple[int, JobRow]]] = defaultdict(list)
        for number, job in after.jobs.items():
            if job.ordering_key is not None:
                in_order[job.partition, job.ordering_key].append((number, job))
        for number, job in leased:
            hook = after.hooks.get(job.partition) if job.queue == "webhook" else None
            if hook is not None:
                self._check_lease(now, number, job, hook)
                if job.ordering_key is not None and hook.ordered:
                    before_it = before.jobs.get(number)
                    others = in_order[job.partition, job.ordering_key]
                    _check_turn(now, number, job, before_it, others)
        for (name, key), jobs in in_order.items():
            if all(job.next_at is None for _, job in jobs):
                raise BrokenPromise(f"all that waits for {key} of {name} is parked for ever")

    def _check_lease(self, now: int, number: int, job: JobRow, hook: WebhookRow) -> None:
        if hook.paused_until is not None and hook.paused_until > now:
            raise BrokenPromise(f"{job.subject} was leased, and {job.partition} is paused")
        if not hook.rate_limit or not hook.enabled:  # nothing is sent for a disabled one
            return
        times = self._times[job.partition]
        times.append(now)
        while times[0] <= now - SECOND_MS:
            times.popleft()
        limit = hook.rate_limit + max(1.0, hook.rate_limit / 10)
        if len(times) > limit:
            raise BrokenPromise(
                f"{len(times)} attempts of {job.partition} in a second; its limit is "
                f"{hook.rate_limit}"
            )


def _check_turn(
    now: int, number: int, job: JobRow, before: JobRow | None, of_key: Sequence[tuple[int, JobRow]]
) -> None:
    """A job is leased: the first of its key, with no other one in flight."""
    begun = before is not None and _begun(before)
    for other, its in of_key:
        if other == number:
            continue
        if its.lease is not None and its.next_at is not None and its.next_at > now:
            raise BrokenPromise(f"{job.subject} and {its.subject} of one document are in flight")
        if not begun and (other < number or _begun(its)):
            raise BrokenPromise(f"{job.subject} was leased before {its.subject} of its document")


def _begun(job: JobRow) -> bool:
    return job.lease is not None or job.attempts > 0
