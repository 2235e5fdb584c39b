"""Restart intensity: the limit of restarts and the delay before each; pure, on frozen values.

Supervisors use it for their children, keyed pools for each of their keys.
"""

from __future__ import annotations

from dataclasses import dataclass

from fw_actors.runtime.clock import Entropy


@dataclass(frozen=True, slots=True)
class RestartIntensity:
    """The limit of restarts, and the delays between them. Times are in seconds.

    The first restart is immediate; then the delay starts at `backoff` and doubles up to
    `backoff_cap`, each stretched by a random part of up to `jitter` of it. After `calm_seconds`
    without a failure the next restart is immediate again. After more than `restarts` failures
    within `seconds` a supervisor escalates, and a pool refuses the key for `calm_seconds`.
    """

    restarts: int = 5
    seconds: float = 30.0
    backoff: float = 0.1
    backoff_cap: float = 5.0
    jitter: float = 0.2
    calm_seconds: float = 60.0

    def __post_init__(self) -> None:
        if min(self.restarts, self.seconds, self.backoff, self.jitter, self.calm_seconds) < 0:
            raise ValueError(
                "restarts, seconds, backoff, jitter, calm_seconds must not be negative"
            )
        if self.backoff_cap < self.backoff:
            raise ValueError("backoff_cap must not be less than backoff")


@dataclass(frozen=True, slots=True)
class Streak:
    """The number of failures of one child in a row, and the time of the last (trio's clock)."""

    child: str
    failures: int
    last: float


@dataclass(frozen=True, slots=True)
class History:
    """The failures that still count: times for all children together, and streaks by child."""

    times: tuple[float, ...] = ()
    streaks: tuple[Streak, ...] = ()

    def streak(self, child: str) -> int:
        """Return the number of failures of the child in a row."""
        return next((streak.failures for streak in self.streaks if streak.child == child), 0)


def after_failure(history: History, intensity: RestartIntensity, child: str, now: float) -> History:
    """Return the history with one more failure of `child`, without expired ones."""
    times = tuple(at for at in history.times if now - at < intensity.seconds)
    recent = [s for s in history.streaks if now - s.last < intensity.calm_seconds]
    before = next((s.failures for s in recent if s.child == child), 0)
    others = tuple(s for s in recent if s.child != child)
    return History((*times, now), (*others, Streak(child, before + 1, now)))


def backoff_delay(streak: int, intensity: RestartIntensity, entropy: Entropy) -> float:
    """Return the delay before the restart after failure number `streak` in a row."""
    if streak <= 1:
        return 0.0
    doublings = min(streak - 2, 64)  # the cap is reached, or the backoff is 0
    delay = min(intensity.backoff * 2.0**doublings, intensity.backoff_cap)
    return delay * entropy.uniform(1.0, 1.0 + intensity.jitter)
