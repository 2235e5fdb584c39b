"""How long a delivery waits after a failed attempt. Source: spec, Limits; interface §7 "Waits"."""

from __future__ import annotations

from typing import Final

DEFAULT_BASE_SECONDS: Final = 30.0
DEFAULT_CAP_SECONDS: Final = 3600.0
_MOST_DOUBLINGS: Final = 64  # past it every base is over every cap; keeps the float finite


def wait_seconds(
    attempt: int, base: float = DEFAULT_BASE_SECONDS, cap: float = DEFAULT_CAP_SECONDS
) -> float:
    """Return the wait in seconds after attempt number `attempt` (from 1) failed, without jitter.

    30 s, then 1, 2, 4, 8 minutes, capped at one hour with the default `base` and `cap`.
    """
    if attempt < 1:
        raise ValueError("attempts are counted from 1")
    doublings = min(attempt - 1, _MOST_DOUBLINGS)
    return float(min(base * 2.0**doublings, cap))
