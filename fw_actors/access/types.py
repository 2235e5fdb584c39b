"""The values between the front end and the gateway: who calls, what is asked, what is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


@dataclass(frozen=True)
class Caller:
    """Who makes a request: a user by a session or by an API key, with the roles of this moment.

    `session` and `api_key` are public handles, never the secrets themselves.
    """

    user: str
    roles: frozenset[str]
    session: str | None = None
    api_key: str | None = None


@dataclass(frozen=True)
class SignInAttempt:
    """One try to sign in. `address` is the whole one; the throttle counts IPv6 per /64."""

    usr: str
    pwd: str = field(repr=False)
    address: str
    user_agent: str
    old_sid: str | None = field(repr=False)
    request_id: str


@dataclass(frozen=True)
class SignedIn:
    """A session that was just made. `expires` in ms since the epoch, `max_age` in seconds."""

    sid: str = field(repr=False)
    user: str
    full_name: str
    expires: int
    max_age: int


@dataclass(frozen=True)
class PasswordChange:
    """One try to change the own password, in the session with the handle `session`."""

    user: str
    session: str
    current: str = field(repr=False)
    password: str = field(repr=False)
    request_id: str = ""


@dataclass(frozen=True)
class PasswordChanged:
    """A password that was just changed by its owner."""

    sessions_ended: int


@dataclass(frozen=True)
class Profile:
    """The own account as its user sees it (A-241)."""

    name: str
    email: str
    full_name: str
    language: str
    roles: tuple[str, ...]


class LinkKind(StrEnum):
    """What a single-use link is good for; also the template of the message that carries it."""

    RECOVERY = "recovery"
    INVITATION = "invitation"


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """What a link's token is good for: of which kind, for whom, until when (ms)."""

    kind: LinkKind
    user: str
    full_name: str
    email: str
    expires: int


@dataclass(frozen=True)
class Reading:
    """One number for `/metrics`. A counter's name has no `_total`: the page's writer adds it.

    A histogram's `value` is the sum of what was observed; `buckets` are pairs of an upper bound,
    as text, and how many observations are not above it.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    buckets: Sequence[tuple[str, int]] = ()
