"""Decides when a failed request is sent again, without clock or I/O."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final, TypeVar

from fw_client.errors import NotReached
from fw_client.wire import Call, HttpAnswer, NoAnswer, error_of, result, retry_after

T = TypeVar("T")
BUSY: Final = frozenset({408, 429, 502, 503, 504})
"""Statuses after which the same request may succeed."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of retries and the waits between them.

    Attributes:
        attempts: the maximum number of requests of a call, from 1 (no retry).
        first_seconds: the wait before the second request; each further wait is twice as long. Each
            is shortened by a random part of up to a half, so that many clients do not return at the
            same time.
        longest_seconds: the longest wait. A service that asks for a longer one (`Retry-After`) is
            not asked again: the error with its `retry_after` is raised at once.
    """

    attempts: int = 4
    first_seconds: float = 0.5
    longest_seconds: float = 30.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError("attempts must be at least 1")
        if not 0 <= self.first_seconds <= self.longest_seconds:
            raise ValueError("first_seconds must be between 0 and longest_seconds")


DEFAULT_RETRIES: Final = RetryPolicy()
_MAX_DOUBLINGS: Final = 1000  # the 1,024th power of 2.0 raises OverflowError


def wait_before_next(
    policy: RetryPolicy,
    attempt: int,
    outcome: HttpAnswer | NoAnswer,
    repeatable: bool,
    random: float,
) -> float | None:
    """Return the seconds until a request is sent again, or None if it is not.

    Args:
        attempt: the number of the request that had this outcome, from 1.
        repeatable: as of the call.
        random: from 0 up to 1, for the part by which the wait is shortened.
    """
    if attempt >= policy.attempts or (isinstance(outcome, NoAnswer) and outcome.final):
        return None
    doublings = min(attempt - 1, _MAX_DOUBLINGS)
    wait = min(policy.longest_seconds, policy.first_seconds * 2.0**doublings)
    wait *= 1 - random / 2
    if isinstance(outcome, NoAnswer):
        return None if outcome.sent and not repeatable else wait
    if outcome.status not in BUSY or not repeatable:
        return None
    requested = retry_after(outcome) or 0.0
    if requested > policy.longest_seconds or _would_end_alike(outcome):
        return None
    return max(wait, requested)


def _would_end_alike(outcome: HttpAnswer) -> bool:
    """Return whether the service has ended a query that took too long, which a retry would
    repeat."""
    return error_of(outcome).extra.get("reason") == "queryTimeout"


Requests = Generator[float | None, HttpAnswer | NoAnswer | None, T]
"""The requests of a call: a yielded None means to send the call, a number to wait that many
seconds.

The outcome of a sent call is sent into the generator; after a wait, None."""


def requests(
    call: Call[T],
    policy: RetryPolicy,
    random: Callable[[], float],
    request_id: str,
    *,
    repeated: bool = False,
) -> Requests[T]:
    """Yield requests and waits until a call has its result; return it.

    `repeated`: whether an earlier request of the call may have been carried out.

    Raises: ApiError, UnexpectedAnswer, NotReached.
    """
    attempt = 0
    while True:
        attempt += 1
        outcome = yield None
        assert outcome is not None, "a request has an outcome"
        wait = wait_before_next(policy, attempt, outcome, call.repeatable, random())
        if wait is None:
            break
        repeated = repeated or not isinstance(outcome, NoAnswer) or outcome.sent
        yield wait
    if isinstance(outcome, NoAnswer):
        raise NotReached(
            f"{call.method} {call.path} got no answer after {attempt} "
            f"{'attempt' if attempt == 1 else 'attempts'}: {outcome.problem}",
            sent=outcome.sent or repeated,
            request_id=request_id,
        )
    return result(call, outcome, repeated)
