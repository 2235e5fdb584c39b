"""How far a POST has come: what is said of it when its deadline passes."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import msgspec
import trio

from fw_actors.http.answer import Times


class Step(Enum):
    """What the sender waits for; the value is the sentence when it waited too long."""

    LOOK_UP = "The address of {host} was not found out within {seconds:g} s."
    CONNECT = "{host} did not take the connection within {seconds:g} s."
    HANDSHAKE = "{host} did not finish the TLS handshake within {seconds:g} s."
    SEND = "{host} did not take the whole request within {seconds:g} s."
    ANSWER = "{host} did not answer within {seconds:g} s."


class Progress(msgspec.Struct):
    """The step that a POST is at, and how long those before it took; `now` is trio's clock."""

    now: Callable[[], float] = trio.current_time
    step: Step = Step.LOOK_UP
    times: Times = msgspec.field(default_factory=Times)

    def enter(self, step: Step) -> float:
        """Begin a step; return trio's time."""
        self.step = step
        return self.now()

    def overdue(self, host: str, seconds: float) -> str:
        """The sentence for a deadline that passed in this step."""
        return self.step.value.format(host=host, seconds=seconds)
