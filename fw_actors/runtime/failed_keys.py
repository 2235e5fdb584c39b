"""The keys of a pool whose actors have failed lately: when each may start again, or is refused.

Bounded in number and in time: a key is forgotten when its last failure is so old that it counts
no more, or before that as the one whose last failure is the oldest.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from math import inf

from fw_actors.runtime.clock import Entropy
from fw_actors.runtime.restarts import History, RestartIntensity, after_failure, backoff_delay
from fw_actors.runtime.timers import Deadlines


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
