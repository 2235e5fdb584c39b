"""A client of fw, sync and async, and tools for receivers of its webhooks (`receiver`).

It imports nothing else of the project, and one library, httpx, which the extra `client` installs.
"""

from __future__ import annotations

try:
    import httpx  # noqa: F401 - for the advice
except ModuleNotFoundError as _error:
    if _error.name != "httpx":
        raise
    raise ModuleNotFoundError(
        "fw_client needs the library httpx: pip install 'fw-actors[client]'", name="httpx"
    ) from None

from fw_client.async_client import AsyncFwClient
from fw_client.client import FwClient
from fw_client.errors import (
    ApiError,
    BadCall,
    Conflict,
    Duplicate,
    Forbidden,
    FwClientError,
    Invalid,
    NotFound,
    NotReached,
    RateLimited,
    ServiceDefect,
    Unauthenticated,
    Unavailable,
    UnexpectedAnswer,
)
from fw_client.events import EmitInterrupted, Event
from fw_client.models import EmitResult, EventEmitted, EventRefused
from fw_client.retries import RetryPolicy

__all__ = [
    "ApiError",
    "AsyncFwClient",
    "BadCall",
    "Conflict",
    "Duplicate",
    "EmitInterrupted",
    "EmitResult",
    "Event",
    "EventEmitted",
    "EventRefused",
    "Forbidden",
    "FwClient",
    "FwClientError",
    "Invalid",
    "NotFound",
    "NotReached",
    "RateLimited",
    "RetryPolicy",
    "ServiceDefect",
    "Unauthenticated",
    "Unavailable",
    "UnexpectedAnswer",
]
