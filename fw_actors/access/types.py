"""Values that the front end and the gateway exchange: callers, requests and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


@dataclass(frozen=True)
class Caller:
    """The authenticated user of a request, by session or API key, with the current roles.

    `session` and `api_key` are public handles, never the secrets themselves.
    """

    user: str
    roles: frozenset[str]
    session: str | None = None
    api_key: str | None = None


@dataclass(frozen=True)
class SignInAttempt:
    """One sign-in attempt. `address` is complete; the throttle counts IPv6 per /64."""

    usr: str
    pwd: str = field(repr=False)
    address: str
    user_agent: str
    old_sid: str | None = field(repr=False)
    request_id: str


@dataclass(frozen=True)
class SignedIn:
    """A new session. `expires` is in ms since the epoch, `max_age` in seconds."""

    sid: str = field(repr=False)
    user: str
    full_name: str
    expires: int
    max_age: int


@dataclass(frozen=True)
class PasswordChange:
    """A user's request to change their own password, made in the session `session` (a handle)."""

    user: str
    session: str
    current: str = field(repr=False)
    password: str = field(repr=False)
    request_id: str = ""


@dataclass(frozen=True)
class PasswordChanged:
    """The result of a password change by its owner."""

    sessions_ended: int


@dataclass(frozen=True)
class Profile:
    """An account as its own user sees it (A-241)."""

    name: str
    email: str
    full_name: str
    language: str
    roles: tuple[str, ...]


class LinkKind(StrEnum):
    """The purpose of a single-use link; also the template of the message that carries it."""

    RECOVERY = "recovery"
    INVITATION = "invitation"


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """The details of a valid link token: its kind, its user and its expiry (ms)."""

    kind: LinkKind
    user: str
    full_name: str
    email: str
    expires: int


@dataclass(frozen=True)
class Reading:
    """One sample for `/metrics`. A counter's name omits `_total`: the renderer adds it.

    A histogram's `value` is the sum of its observations; `buckets` are pairs of an upper bound,
    as text, and the number of observations that do not exceed it.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    buckets: Sequence[tuple[str, int]] = ()
