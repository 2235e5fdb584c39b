"""The events that a supervisor handles one after the other: ends of children, due restarts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from supervisors.supervised_child import SupervisedChild


@dataclass(frozen=True, slots=True)
class ChildEnded:
    """The unrequested end of a run; `run` is its number."""

    member: SupervisedChild
    error: Exception | None
    run: int


class RestartDue:
    """The end of the delay before a restart; an entry among the runtime's deadlines."""

    def __init__(
        self,
        notify: Callable[[RestartDue], None],
        members: Sequence[SupervisedChild],
        delay: float,
    ) -> None:
        self.members = tuple(members)
        self.delay = delay
        self._notify = notify

    def expire(self) -> None:
        """Notify the supervisor; called by the runtime's deadlines."""
        self._notify(self)

    def is_within(self, members: Sequence[SupervisedChild]) -> bool:
        """Return whether a restart of `members` includes this one."""
        return set(self.members) <= set(members)
