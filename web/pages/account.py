"""The page "My account"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from fw_actors.access.api_keys import KeyFacts
from fw_actors.access.sessions import Caller, SessionFacts
from fw_actors.actors.gateway import Gateway
from fw_actors.documents.fields import iso
from fw_actors.errors import PermissionDeniedError
from fw_actors.rules.password_policy import MAX_RUNES
from web.exchange import Exchange
from web.operations import Operation, Route
from web.pages.rendering import Rendering, page_frame
from web.response import Response
from web.routes.operations import time_or_null
from web.settings import Settings

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw


# The first match counts: most browsers also name others, for compatibility.
BROWSERS: Final = (
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chromium/", "Chromium"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
SYSTEMS: Final = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)
MAX_AGENT_CHARACTERS: Final = 60


def shown_agent(text: str) -> str:
    """Return `Firefox on Linux`; another client's own text, cut to 60 characters."""
    browser = next((name for mark, name in BROWSERS if mark in text), "")
    system = next((name for mark, name in SYSTEMS if mark in text), "")
    if browser:
        return f"{browser} on {system}" if system else browser
    return text[:MAX_AGENT_CHARACTERS] or "Unknown program"


HERE: Final = "account"


class AccountPages:
    """The page of the own account."""

    def __init__(self, gateway: Gateway, settings: Settings, rendering: Rendering) -> None:
        self._gateway, self._settings, self._rendering = gateway, settings, rendering

    def routes(self) -> list[Route]:
        """Return the routes."""
        page = {"GET": Operation(self.account)}
        return [Route("/account", page, error_page=self._rendering.error_page)]

    async def account(self, exchange: Exchange) -> Response:
        """Show the caller's account; 403 for an API key."""
        caller = exchange.known_caller
        if caller.session is None:
            raise PermissionDeniedError("Sign in to see your account.")

        def render(fw: Fw) -> Response:  # hundreds of sessions: in the thread that reads them
            return self._rendering.page("account.html", **self._context(fw, caller))

        return await self._gateway.read(caller, render, exchange.request_id)

    def _context(self, fw: Fw, caller: Caller) -> dict[str, Any]:
        own = self._gateway.own
        return {
            "frame": page_frame(fw, HERE),
            "profile": own.profile(fw),
            "sessions": [_session(each, caller) for each in own.sessions(fw, caller)],
            "keys": [_key(each) for each in own.keys(fw, caller)],
            "keys_allowed": self._settings.self_service_api_keys,
            "key_days": self._settings.api_key_days,
            "minimum": self._settings.min_password_length,
            "maximum": MAX_RUNES,
            "refuse_common": self._settings.refuse_common_passwords,
        }


def _session(session: SessionFacts, caller: Caller) -> Mapping[str, Any]:
    return {
        "id": session.id,
        "ip": session.ip,
        "agent": shown_agent(session.user_agent),
        "created": iso(session.created),
        "last_seen": iso(session.last_seen),
        "expires": iso(session.expires),
        "current": session.id == caller.session,
    }


def _key(key: KeyFacts) -> Mapping[str, Any]:
    return {
        "name": key.name,
        "label": key.label,
        "created": iso(key.created),
        "expires": time_or_null(key.expires),
        "last_used": time_or_null(key.last_used),
    }
