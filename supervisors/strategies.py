"""Decides which children of a supervisor are restarted when one ends: pure, on frozen values.

`supervisors.supervisor` carries the decisions out. The terms are those of Erlang/OTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from fw_actors.runtime import Entropy, RestartIntensity
from fw_actors.runtime.supervision import FailureHistory, after_failure, backoff_delay


class Restart(Enum):
    """The restart types: the ends of a child after which it is restarted."""

    PERMANENT = "always"
    TRANSIENT = "after a failure only"
    TEMPORARY = "never"


class Strategy(Enum):
    """The restart strategies: the siblings that are restarted with a child."""

    ONE_FOR_ONE = "none"
    ONE_FOR_ALL = "all its siblings"
    REST_FOR_ONE = "the siblings that started after it"


@dataclass(frozen=True, slots=True)
class ChildRules:
    """The part of a child's spec on which decisions depend."""

    id: str
    restart: Restart
    significant: bool


@dataclass(frozen=True, slots=True)
class LeaveEnded:
    """Do not restart the child; its siblings continue."""


@dataclass(frozen=True, slots=True)
class RestartGroup:
    """Stop the children `stop` in reverse order; `delay` seconds later start those of `start`."""

    stop: tuple[str, ...]
    start: tuple[str, ...]
    delay: float
    history: FailureHistory


@dataclass(frozen=True, slots=True)
class ShutDown:
    """Stop all children because a significant one has ended; the supervisor ends normally."""


@dataclass(frozen=True, slots=True)
class Escalate:
    """Stop all children because of too many failures; the supervisor fails."""

    history: FailureHistory


Decision = LeaveEnded | RestartGroup | ShutDown | Escalate


def decide(
    strategy: Strategy,
    intensity: RestartIntensity,
    children: Sequence[ChildRules],
    ended: str,
    *,
    failed: bool,
    history: FailureHistory,
    now: float,
    entropy: Entropy,
) -> Decision:
    """Return the decision about the children after one of them has ended.

    Only failures count, including failures to start. A permanent child that ended normally is
    restarted after the shortest backoff, so that a child that exits immediately cannot spin.

    Args:
        strategy, intensity: those of the supervisor.
        children: the children in the order of their start.
        ended: the id of the child that has ended.
        failed: whether it ended by a failure.
        history: the failures so far.
        now: the time, on trio's clock.
        entropy: the source of the backoff's jitter.
    """
    child = next(child for child in children if child.id == ended)
    restarts = child.restart is Restart.PERMANENT or (failed and child.restart is Restart.TRANSIENT)
    if not restarts:
        return ShutDown() if child.significant and not failed else LeaveEnded()
    delay = intensity.backoff
    if failed:
        history = after_failure(history, intensity, ended, now)
        if len(history.times) > intensity.restarts:
            return Escalate(history)
        delay = backoff_delay(history.consecutive_failures(ended), intensity, entropy)
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
