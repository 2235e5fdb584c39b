"""The other processes of a multi-process service, reached through the supervisor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from fw_actors.config import ProcessPlace
from supervisors.service.control_channel import ChannelFailed, ControlChannel

ANSWERS: Final = "answers"
"""The supervisor's request that checks whether a process works; the argument is the limit in
seconds."""
Answer = Callable[[Any], Awaitable[object]]
"""Answers a request of another process; argument and result are in types of msgpack."""


class Siblings:
    """Asks the other processes of this service, and answers them."""

    def __init__(self, place: ProcessPlace) -> None:
        self.place = place
        self.restarts: Mapping[int, int] = {}
        """The number of restarts of each process, as of the last `gather`."""
        self.unanswered: Sequence[int] = ()
        """The ready processes that the last `gather` asked in vain."""
        self._answers: dict[str, Answer] = {}
        self._channel: ControlChannel | None = None

    def connect(self, channel: ControlChannel) -> None:
        """Use this channel from now on."""
        self._channel = channel

    def answers(self, what: str, answer: Answer) -> None:
        """Register `answer` for the request `what` of other processes."""
        self._answers[what] = answer

    async def gather(
        self, what: str, argument: object = None, *, to: int | None = None
    ) -> Mapping[int, Any]:
        """Ask the other processes, or only number `to`; return their answers by number.

        A process that starts, ends or does not answer within 2 s is left out.
        """
        self.unanswered = ()
        if self._channel is None:
            return {}
        try:
            found = await self._channel.ask("gather", [what, argument, to])
        except ChannelFailed:
            return {}
        self.restarts = found["restarts"]
        answers: Mapping[int, Any] = found["answers"]
        self.unanswered = [number for number in found["asked"] if number not in answers]
        return answers

    async def answer(self, what: str, argument: Any) -> object:
        """Answer another process. Raises: LookupError for a request that this one does not know."""
        return await self._answers[what](argument)
