"""What operations answer, as types: for the OpenAPI document (H-105)."""

from __future__ import annotations

from typing import Any

import msgspec

Struct = msgspec.Struct


class Refused(Struct, frozen=True):
    """Why a request was refused."""

    type: str
    message: str
    extra: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class Refusal(Struct, frozen=True):
    """The envelope of every refusal (H-50)."""

    error: Refused


class Done(Struct, frozen=True):
    """It is done."""

    ok: bool


class DoneToSessions(Struct, frozen=True, rename="camel"):
    """It is done, and so many sessions ended."""

    ok: bool
    sessions_ended: int


class DoneToKeys(Struct, frozen=True, rename="camel"):
    """It is done, and so many API keys ended."""

    ok: bool
    keys_ended: int


class AccessRevoked(Struct, frozen=True, rename="camel"):
    """It is done, and so many sessions ended; `keysEnded` is there when keys were asked for."""

    ok: bool
    sessions_ended: int
    keys_ended: int | msgspec.UnsetType = msgspec.UNSET


class RunAnswer(Struct, frozen=True, rename="camel"):
    """How far a replay of many has come; `error` says why it failed. `total` is how many matched
    when it was begun, `refused` how many could not be replayed, by why."""

    id: str
    user: str
    filters: list[Any]
    state: str
    total: int
    done: int
    replayed: int
    refused: dict[str, int]
    error: str
    begun: str
    ended: str | None


class RunKnown(Struct, frozen=True):
    """The run that is on, or else the last one; null before the first."""

    run: RunAnswer | None


class ProfileAnswer(Struct, frozen=True, rename="camel"):
    """The own account."""

    name: str
    email: str
    full_name: str
    language: str
    roles: list[str]


class SignInScreen(Struct, frozen=True, rename="camel"):
    """What the sign-in screen shows to anyone."""

    notice: str | msgspec.UnsetType = msgspec.UNSET
    demo_user: str | msgspec.UnsetType = msgspec.UNSET
    demo_password: str | msgspec.UnsetType = msgspec.UNSET


class SiteAnswer(Struct, frozen=True, rename="camel"):
    """The site as everybody sees it."""

    name: str
    url: str
    csrf_header: str
    login: SignInScreen


class BootAnswer(Struct, frozen=True):
    """What a client needs first; `user` is null for a guest."""

    site: SiteAnswer
    user: ProfileAnswer | None


class SignedInAnswer(Struct, frozen=True, rename="camel"):
    """Who is signed in, and until when; the session is in the cookie."""

    ok: bool
    user: str
    full_name: str
    expires: str


class LinkAnswer(Struct, frozen=True, rename="camel"):
    """What a link is good for."""

    kind: str
    user: str
    full_name: str
    expires: str


class SessionShown(Struct, frozen=True, rename="camel"):
    """A session by its handle."""

    id: str
    ip: str
    user_agent: str
    created: str
    last_seen: str
    expires: str
    current: bool


class SessionsAnswer(Struct, frozen=True):
    """The own live sessions."""

    sessions: list[SessionShown]


class KeyShown(Struct, frozen=True, rename="camel"):
    """An API key without its secret."""

    name: str
    label: str
    created: str
    expires: str | None
    last_used: str | None


class KeysAnswer(Struct, frozen=True):
    """The own API keys."""

    keys: list[KeyShown]


class MadeKeyAnswer(Struct, frozen=True):
    """A new API key, shown this once."""

    name: str
    label: str
    expires: str | None
    key: str


class InvitedAnswer(Struct, frozen=True):
    """A new account; the link only where the log is the mail."""

    user: str
    email: str
    expires: str
    link: str | msgspec.UnsetType = msgspec.UNSET


class SentLinkAnswer(Struct, frozen=True):
    """A link is on its way; it stands here only where the log is the mail."""

    ok: bool
    expires: str
    link: str | msgspec.UnsetType = msgspec.UNSET


class EmittedAnswer(Struct, frozen=True):
    """The deliveries that the event makes."""

    deliveries: list[str]


class ReplayedAnswer(Struct, frozen=True):
    """A delivery that is sent again, and its status as that begins."""

    delivery: str
    status: str


class DocumentAnswer(Struct, frozen=True):
    """A document."""

    data: dict[str, Any]


class ListAnswer(Struct, frozen=True):
    """A page of documents, and how many there are in all."""

    data: list[dict[str, Any]]
    total: int
