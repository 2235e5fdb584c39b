"""What happens to a supervisor's children, in the order in which it is to be dealt with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from supervisors.member import Member


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of one life of a member."""

    member: Member
    error: Exception | None
    life: int


class Due:
    """Members whose wait before a restart is over; `tell` hears of it."""

    def __init__(self, tell: Callable[[Due], None], members: Sequence[Member], wait: float) -> None:
        self.members = tuple(members)
        self.wait = wait
        self._tell = tell

    def expire(self) -> None:
        """Called by the runtime's deadlines."""
        self._tell(self)

    def is_within(self, members: Sequence[Member]) -> bool:
        """Whether a restart of `members` covers it."""
        return set(self.members) <= set(members)
