"""My account: profile, password, sessions and API keys. Reads only; a script calls the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from fw_actors.errors import PermissionDeniedError
from fw_actors.rules.password_policy import MAX_RUNES
from fw_actors.services.access import Caller
from fw_actors.services.api_keys import KeyFacts
from fw_actors.services.sessions import SessionFacts
from web.envelope import Answer
from web.exchange import Exchange
from web.gateway import Gateway
from web.json_out import iso_time
from web.operations import Operation, Path
from web.pages.rendering import Rendering
from web.pages.shell import shell
from web.pages.user_agents import shown_agent
from web.routes.service_operations import time_or_null
from web.settings import Settings

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

HERE: Final = "account"


class AccountPages:
    """The path of this module, over one gateway."""

    def __init__(self, gateway: Gateway, settings: Settings, rendering: Rendering) -> None:
        self._gateway, self._settings, self._rendering = gateway, settings, rendering

    def paths(self) -> list[Path]:
        """Return what is served."""
        page = {"GET": Operation(self.account)}
        return [Path("/account", page, refuse=self._rendering.refuse)]

    async def account(self, exchange: Exchange) -> Answer:
        """Show the caller's account. An API key has none to show: 403."""
        caller = exchange.known_caller
        if caller.session is None:
            raise PermissionDeniedError("Sign in to see your account.")
        context = await self._gateway.read(
            caller, lambda fw: self._context(fw, caller), exchange.request_id
        )
        return self._rendering.page("account.html", **context)

    def _context(self, fw: Fw, caller: Caller) -> dict[str, Any]:
        own = self._gateway.own
        return {
            "frame": shell(fw, HERE),
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
        "created": iso_time(session.created),
        "last_seen": iso_time(session.last_seen),
        "expires": iso_time(session.expires),
        "current": session.id == caller.session,
    }


def _key(key: KeyFacts) -> Mapping[str, Any]:
    return {
        "name": key.name,
        "label": key.label,
        "created": iso_time(key.created),
        "expires": time_or_null(key.expires),
        "last_used": time_or_null(key.last_used),
    }
