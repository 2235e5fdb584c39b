"""Decides what becomes of a supervisor's children when one ends: pure, over frozen values.

`supervisors.tree` carries the decisions out. Terms are those of Erlang/OTP's supervisors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from fw_actors.runtime import Entropy


class Restart(Enum):
    """Whether a child that ended is started again."""

    PERMANENT = "always"
    TRANSIENT = "after a failure only"
    TEMPORARY = "never"


class Strategy(Enum):
    """Who is restarted with a child that is restarted."""

    ONE_FOR_ONE = "nobody else"
    ONE_FOR_ALL = "all its siblings"
    REST_FOR_ONE = "the siblings that started after it"


@dataclass(frozen=True, slots=True)
class RestartIntensity:
    """How many restarts are borne, and how fast they follow each other. Times in seconds.

    The first restart comes at once; then the wait begins at `backoff` and doubles up to
    `backoff_cap`, each stretched by a random part of up to `jitter` of it. After `calm_seconds`
    without a failure it begins anew. More than `restarts` within `seconds` is an escalation.
    """

    restarts: int = 5
    seconds: float = 30.0
    backoff: float = 0.1
    backoff_cap: float = 5.0
    jitter: float = 0.2
    calm_seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.restarts < 0 or min(self.seconds, self.backoff, self.jitter) < 0:
            raise ValueError("a restart intensity has no negative numbers")
        if self.backoff_cap < self.backoff:
            raise ValueError("backoff_cap is the longest wait, so it can't be below backoff")


@dataclass(frozen=True, slots=True)
class ChildRules:
    """What a decision needs to know of one child."""

    id: str
    restart: Restart
    significant: bool


@dataclass(frozen=True, slots=True)
class Streak:
    """How often one child failed in a row, and when it did last (trio's clock)."""

    child: str
    failures: int
    last: float


@dataclass(frozen=True, slots=True)
class History:
    """Failures that still count: of all children together, and in a row by child."""

    times: tuple[float, ...] = ()
    streaks: tuple[Streak, ...] = ()

    def streak(self, child: str) -> int:
        """How often the child failed in a row."""
        return next((streak.failures for streak in self.streaks if streak.child == child), 0)


@dataclass(frozen=True, slots=True)
class Leave:
    """The child stays away; nobody else is touched."""


@dataclass(frozen=True, slots=True)
class Again:
    """Stop those of `stop` that run, in reverse; `wait` seconds later start `start`, in order."""

    stop: tuple[str, ...]
    start: tuple[str, ...]
    wait: float
    history: History


@dataclass(frozen=True, slots=True)
class Finish:
    """A significant child has done its part: stop all, it is a normal end."""


@dataclass(frozen=True, slots=True)
class Escalate:
    """Too many failures: stop all, and fail."""

    history: History


Decision = Leave | Again | Finish | Escalate


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
    """Return what becomes of the children when the one with the id `ended` has ended.

    `children` are in the order of start; `now` is on trio's clock. Only failures count, start
    failures too. A permanent child that ended in order is started again after the shortest
    backoff, so that one which always ends at once is no hot loop.
    """
    child = next(child for child in children if child.id == ended)
    wanted = child.restart is Restart.PERMANENT or (failed and child.restart is Restart.TRANSIENT)
    if not wanted:
        return Finish() if child.significant and not failed else Leave()
    wait = intensity.backoff
    if failed:
        history = after_failure(history, intensity, ended, now)
        if len(history.times) > intensity.restarts:
            return Escalate(history)
        wait = backoff_wait(history.streak(ended), intensity, entropy)
    group = affected(strategy, children, ended)
    return Again(
        stop=tuple(member.id for member in group),
        start=tuple(member.id for member in group if member.restart is not Restart.TEMPORARY),
        wait=wait,
        history=history,
    )


def affected(
    strategy: Strategy, children: Sequence[ChildRules], ended: str
) -> Sequence[ChildRules]:
    """Return who is restarted with `ended`, itself included, in the order of start."""
    place = [child.id for child in children].index(ended)
    if strategy is Strategy.ONE_FOR_ONE:
        return children[place : place + 1]
    return children if strategy is Strategy.ONE_FOR_ALL else children[place:]


def after_failure(history: History, intensity: RestartIntensity, child: str, now: float) -> History:
    """Return the history with one more failure of `child`, without what counts no longer."""
    times = tuple(at for at in history.times if now - at < intensity.seconds)
    restless = [s for s in history.streaks if now - s.last < intensity.calm_seconds]
    before = next((s.failures for s in restless if s.child == child), 0)
    others = tuple(s for s in restless if s.child != child)
    return History((*times, now), (*others, Streak(child, before + 1, now)))


def backoff_wait(streak: int, intensity: RestartIntensity, entropy: Entropy) -> float:
    """Return the seconds to wait before the restart after failure number `streak` in a row."""
    if streak <= 1:
        return 0.0
    wait = intensity.backoff
    for _ in range(streak - 2):
        if wait >= intensity.backoff_cap:
            break
        wait *= 2
    wait = min(wait, intensity.backoff_cap)
    return wait * entropy.uniform(1.0, 1.0 + intensity.jitter)
