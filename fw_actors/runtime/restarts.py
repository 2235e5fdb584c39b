"""Restart intensity: the limit of restarts and the delay before each, and a pool's failed keys.

The limit and the delays are pure functions on frozen values. Supervisors use them for their
children, keyed pools for each of their keys. A pool keeps the keys whose actors have failed lately,
bounded in number and in time: a key is forgotten when its last failure is so old that it counts no
more, or before that as the one whose last failure is the oldest.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from math import inf

from fw_actors.runtime.clock import Entropy
from fw_actors.runtime.timers import Deadlines


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


@dataclass(frozen=True, slots=True)
class FailedKey:
    """A key whose actor has failed. Times are on trio's clock."""

    history: History
    last: float
    """The time of the last failure."""
    error: str
    """The last failure as one line."""
    start_at: float
    """The time from which the next instance may start."""
    refused: bool
    """Whether messages are refused until then, and do not wait."""

    @property
    def failures(self) -> int:
        """The number of failures that count for the intensity."""
        return len(self.history.times)


def after_key_failure(
    before: FailedKey | None,
    intensity: RestartIntensity,
    error: str,
    *,
    now: float,
    entropy: Entropy,
) -> FailedKey:
    """Return what one more failure, `error`, makes of a key; `before` is None at the first one."""
    history = before.history if before is not None else History()
    history = after_failure(history, intensity, "", now)
    if len(history.times) > intensity.restarts:
        return FailedKey(history, now, error, now + intensity.calm_seconds, refused=True)
    delay = backoff_delay(history.streak(""), intensity, entropy)
    return FailedKey(history, now, error, now + delay, refused=False)


class FailedKeys:
    """The failed keys of one pool, at most `limit` of them.

    While there are any, one alarm for the first to be forgotten is set among the deadlines.
    """

    def __init__(
        self, deadlines: Deadlines, intensity: RestartIntensity, entropy: Entropy, limit: int
    ) -> None:
        self.intensity = intensity
        self._deadlines = deadlines
        self._entropy = entropy
        self._limit = limit
        self.keys: OrderedDict[str, FailedKey] = OrderedDict()
        """In the order of their last failures, which is the order in which they are forgotten."""
        self._alarm_set = False

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, key: str, error: str) -> FailedKey:
        """Record a failure, and return what it makes of the key."""
        failed = self.keys[key] = after_key_failure(
            self.get(key),
            self.intensity,
            error,
            now=self._deadlines.now(),
            entropy=self._entropy,
        )
        self.keys.move_to_end(key)
        if len(self.keys) > self._limit:
            self.keys.popitem(last=False)
        self._set_alarm()
        return failed

    def get(self, key: str) -> FailedKey | None:
        """Return a key whose failures still count; None for any other."""
        failed = self.keys.get(key)
        if failed is not None and failed.refused and failed.start_at <= self._deadlines.now():
            del self.keys[key]  # begins anew
            return None
        return failed

    def clear(self) -> None:
        """Forget all keys."""
        self.keys.clear()
        self._alarm_set = False
        self._deadlines.withdraw(self, inf)

    def expire(self) -> None:
        """Forget the keys whose failures count no more; called by the runtime's deadlines."""
        self._alarm_set = False
        now = self._deadlines.now()
        while self.keys and self._forget_at() <= now:
            self.keys.popitem(last=False)
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self.keys and not self._alarm_set:
            self._alarm_set = True
            self._deadlines.add_at(self, self._forget_at())

    def _forget_at(self) -> float:
        """Return when the failures of the first key will not count any more."""
        first = next(iter(self.keys.values()))
        return first.last + max(self.intensity.calm_seconds, self.intensity.seconds)
