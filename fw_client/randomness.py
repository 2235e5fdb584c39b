"""The only source of random values of this package: keys of events, ids of requests, jitter."""

from __future__ import annotations

import random
import secrets
from typing import Final

_KEY_BYTES: Final = 18
_system = random.SystemRandom()


def new_key() -> str:
    """Return a key that no other event has."""
    return secrets.token_urlsafe(_KEY_BYTES)


def new_request_id() -> str:
    """Return an id for the requests of a call, which the service writes to its log."""
    return secrets.token_hex(16)


def fraction() -> float:
    """Return a number from 0 up to 1."""
    return _system.random()
