"""Decides which children of a supervisor are restarted when one ends: pure, on frozen values.

`supervisors.supervisor` carries the decisions out. The terms are those of Erlang/OTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from fw_actors.runtime import Entropy


class Restart(Enum):
    """Whether a child that ended is restarted."""

    PERMANENT = "always"
    TRANSIENT = "after a failure only"
    TEMPORARY = "never"


class Strategy(Enum):
    """The restart strategies: the siblings that are restarted with a child."""

    ONE_FOR_ONE = "none"
    ONE_FOR_ALL = "all its siblings"
    REST_FOR_ONE = "the siblings that started after it"


@dataclass(frozen=True, slots=True)
class RestartIntensity:
    """The limit of restarts, and the delays between them. Times are in seconds.

    The first restart is immediate; then the delay starts at `backoff` and doubles up to
    `backoff_cap`, each stretched by a random part of up to `jitter` of it. After `calm_seconds`
    without a failure the next restart is immediate again. More than `restarts` within `seconds`
    is an escalation.
    """

    restarts: int = 5
    seconds: float = 30.0
    backoff: float = 0.1
    backoff_cap: float = 5.0
    jitter: float = 0.2
    calm_seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.restarts < 0 or min(self.seconds, self.backoff, self.jitter) < 0:
            raise ValueError("restarts, seconds, backoff and jitter must not be negative")
        if self.backoff_cap < self.backoff:
            raise ValueError("backoff_cap must not be less than backoff")


@dataclass(frozen=True, slots=True)
class ChildRules:
    """The part of a child's spec that decisions depend on."""

    id: str
    restart: Restart
    significant: bool


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


@dataclass(frozen=True, slots=True)
class LeaveEnded:
    """Do not restart the child, and leave its siblings alone."""


@dataclass(frozen=True, slots=True)
class RestartGroup:
    """Stop the children `stop` in reverse order; `delay` seconds later start those of `start`."""

    stop: tuple[str, ...]
    start: tuple[str, ...]
    delay: float
    history: History


@dataclass(frozen=True, slots=True)
class ShutDown:
    """Stop all children because a significant one has ended; the supervisor ends normally."""


@dataclass(frozen=True, slots=True)
class Escalate:
    """Stop all children because of too many failures; the supervisor fails."""

    history: History


Decision = LeaveEnded | RestartGroup | ShutDown | Escalate


def decide(
    strategy: Strategy,
    intensity: RestartIntensity,
    children: Sequence[ChildRules],
    ended: str,
    *,
    failed: bool,
    history: History,
    now: float,
    entropy: Entropy,
) -> Decision:
    """Return what to do with the children now that the one with the id `ended` has ended.

    `children` are in the order of start; `now` is on trio's clock. Only failures count, including
    failures to start. A permanent child that ended normally is restarted after the shortest
    backoff, so that a child that exits immediately cannot spin.
    """
    child = next(child for child in children if child.id == ended)
    wanted = child.restart is Restart.PERMANENT or (failed and child.restart is Restart.TRANSIENT)
    if not wanted:
        return ShutDown() if child.significant and not failed else LeaveEnded()
    delay = intensity.backoff
    if failed:
        history = after_failure(history, intensity, ended, now)
        if len(history.times) > intensity.restarts:
            return Escalate(history)
        delay = backoff_delay(history.streak(ended), intensity, entropy)
    group = affected(strategy, children, ended)
    return RestartGroup(
        stop=tuple(member.id for member in group),
        start=tuple(member.id for member in group if member.restart is not Restart.TEMPORARY),
        delay=delay,
        history=history,
    )


def affected(
    strategy: Strategy, children: Sequence[ChildRules], ended: str
) -> Sequence[ChildRules]:
    """Return the children that are restarted with `ended`, itself included, in order of start."""
    index = [child.id for child in children].index(ended)
    if strategy is Strategy.ONE_FOR_ONE:
        return children[index : index + 1]
    return children if strategy is Strategy.ONE_FOR_ALL else children[index:]


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
