"""What one try of a job may come to, for the queues `mail` and `app` (interface §4, §8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fw_actors.rules.delivery_outcome import Backoff, Ending, Verdict, judge
from fw_actors.store import LeasedJob

MOST_TRIES: Final = 10


class TryFailed(Exception):
    """Raised for a try that failed; the text is the job's error. `final`: no later one can help."""

    def __init__(self, error: str, *, final: bool = False) -> None:
        super().__init__(error)
        self.final = final


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """How a queue is worked on: `places` jobs at once, each leased for `lease_seconds`."""

    queue: str
    places: int
    lease_seconds: float
    backoff: Backoff


def verdict_on(failure: TryFailed, job: LeasedJob, ended: int, backoff: Backoff) -> Verdict:
    """Return what a try that failed at `ended` (ms) makes of its job."""
    return judge(
        Ending.REFUSED if failure.final else Ending.TRANSIENT,
        attempts_before=job.attempts,
        max_attempts=MOST_TRIES,
        ended=ended,
        backoff=backoff,
    )
