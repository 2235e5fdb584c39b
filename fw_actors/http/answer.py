"""What a receiver answered, in the form that outlives its connection."""

from __future__ import annotations

import msgspec


class Times(msgspec.Struct):
    """How long the steps of a POST took, in milliseconds; 0 for a step that was not needed.

    `answer` runs from the first byte sent to the head of the answer.
    """

    dns: float = 0.0
    connect: float = 0.0
    tls: float = 0.0
    answer: float = 0.0


class Answer(msgspec.Struct, frozen=True):
    """A receiver's answer to one POST; its status is any from 200 to 999.

    Args:
        status: as in the answer's head, which alone decides (interface §7).
        body: its first bytes, at most 512, undecoded; shorter where the receiver stalled or broke.
        location: of a redirect, without user info, query and fragment; None where there is none.
        retry_after: the header as sent, for the caller to judge; None where there is none.
        times: how long the steps took.
    """

    status: int
    body: bytes = b""
    location: str | None = None
    retry_after: str | None = None
    times: Times = msgspec.field(default_factory=Times)
