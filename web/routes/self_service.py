"""Routes for the own account: profile, password, sessions, API keys (A-240 to A-272)."""

from __future__ import annotations

from typing import Final

import msgspec

from fw_actors.access.administration import require_session
from fw_actors.access.passwords import PasswordChange
from fw_actors.documents.fields import iso
from web.exchange import Exchange
from web.json_input import CharacterRules
from web.operations import Route
from web.response import Response, json_response
from web.response_schemas import (
    KeysEndedResponse,
    KeysResponse,
    NewKeyResponse,
    ProfileResponse,
    SessionsEndedResponse,
    SessionsResponse,
)
from web.routes.access import profile_json
from web.routes.operations import (
    GatewayRoutes,
    read_route,
    time_or_null,
    value_or_none,
    write_route,
)

PASSWORDS: Final = CharacterRules(free=("current", "password"))


class ProfileRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The body of profile.updateMyProfile: only these two fields are ever written (A-242)."""

    full_name: str | msgspec.UnsetType = msgspec.UNSET
    language: str | msgspec.UnsetType = msgspec.UNSET


class PasswordRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of profile.changeMyPassword."""

    current: str
    password: str


class HandleRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of sessions.revokeMySession."""

    id: str


class KeyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of api_keys.createMyAPIKey."""

    label: str
    days: int | msgspec.UnsetType = msgspec.UNSET


class KeyNameRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of api_keys.revokeMyAPIKey."""

    name: str


class SelfServiceRoutes(GatewayRoutes):
    """The routes by which users administer their own accounts, sessions and API keys."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            read_route("profile.getMyProfile", self.profile, ProfileResponse),
            write_route(
                "profile.updateMyProfile",
                self.update_profile,
                ProfileRequest,
                response=ProfileResponse,
            ),
            write_route(
                "profile.changeMyPassword",
                self.change_password,
                PasswordRequest,
                response=SessionsEndedResponse,
                texts=PASSWORDS,
                session_only=True,
            ),
            read_route(
                "sessions.listMySessions", self.sessions, SessionsResponse, session_only=True
            ),
            write_route(
                "sessions.revokeMySession", self.revoke_session, HandleRequest, session_only=True
            ),
            write_route(
                "sessions.revokeMyOtherSessions",
                self.revoke_other_sessions,
                response=SessionsEndedResponse,
                session_only=True,
            ),
            read_route("api_keys.listMyAPIKeys", self.keys, KeysResponse, session_only=True),
            write_route(
                "api_keys.createMyAPIKey",
                self.make_key,
                KeyRequest,
                response=NewKeyResponse,
                session_only=True,
            ),
            write_route(
                "api_keys.revokeMyAPIKey", self.revoke_key, KeyNameRequest, session_only=True
            ),
            write_route(
                "api_keys.revokeAllMyAPIKeys",
                self.revoke_all_keys,
                response=KeysEndedResponse,
                session_only=True,
            ),
        ]

    async def profile(self, exchange: Exchange) -> Response:
        """Show your account."""
        account = await self._gateway.profile(exchange.known_caller)
        return json_response(profile_json(account))

    async def update_profile(self, exchange: Exchange) -> Response:
        """Change your full name or language."""
        body: ProfileRequest = exchange.body
        name, language = value_or_none(body.full_name), value_or_none(body.language)
        profile = await self._write_while_live(
            exchange, lambda fw: self._gateway.own.update_profile(fw, name, language)
        )
        return json_response(profile_json(profile))

    async def change_password(self, exchange: Exchange) -> Response:
        """Change your password; requires the current one and ends your other sessions."""
        caller = exchange.known_caller
        body: PasswordRequest = exchange.body
        changed = await self._gateway.change_password(
            PasswordChange(
                user=caller.user,
                session=require_session(caller),
                current=body.current,
                password=body.password,
                request_id=exchange.request_id,
            )
        )
        return json_response({"ok": True, "sessionsEnded": changed.sessions_ended})

    async def sessions(self, exchange: Exchange) -> Response:
        """List your sessions by their handles."""
        caller = exchange.known_caller
        open_sessions = await self._read(
            exchange, lambda fw: self._gateway.own.sessions(fw, caller)
        )
        content = [
            {
                "id": session.id,
                "ip": session.ip,
                "userAgent": session.user_agent,
                "created": iso(session.created),
                "lastSeen": iso(session.last_seen),
                "expires": iso(session.expires),
                "current": session.id == caller.session,
            }
            for session in open_sessions
        ]
        return json_response({"sessions": content})

    async def revoke_session(self, exchange: Exchange) -> Response:
        """End one of your sessions."""
        caller, body = exchange.known_caller, exchange.body
        await self._write(
            exchange, lambda fw: self._gateway.own.revoke_session(fw, caller, body.id)
        )
        return json_response({"ok": True})

    async def revoke_other_sessions(self, exchange: Exchange) -> Response:
        """End all your sessions except this one."""
        caller = exchange.known_caller
        ended = await self._write(
            exchange, lambda fw: self._gateway.own.revoke_other_sessions(fw, caller)
        )
        return json_response({"ok": True, "sessionsEnded": ended})

    async def keys(self, exchange: Exchange) -> Response:
        """List your API keys."""
        caller = exchange.known_caller
        own_keys = await self._read(exchange, lambda fw: self._gateway.own.keys(fw, caller))
        content = [
            {
                "name": key.name,
                "label": key.label,
                "created": iso(key.created),
                "expires": time_or_null(key.expires),
                "lastUsed": time_or_null(key.last_used),
            }
            for key in own_keys
        ]
        return json_response({"keys": content})

    async def make_key(self, exchange: Exchange) -> Response:
        """Create an API key, and show its secret once."""
        caller = exchange.known_caller
        body: KeyRequest = exchange.body
        days = value_or_none(body.days)
        created = await self._write(
            exchange,
            lambda fw: self._gateway.own.make_key(fw, caller, body.label, days, exchange.address),
        )
        content = {
            "name": created.name,
            "label": created.label,
            "expires": time_or_null(created.expires),
            "key": created.key,
        }
        return json_response(content)

    async def revoke_key(self, exchange: Exchange) -> Response:
        """Revoke one of your API keys."""
        caller, body = exchange.known_caller, exchange.body
        await self._write(exchange, lambda fw: self._gateway.own.revoke_key(fw, caller, body.name))
        return json_response({"ok": True})

    async def revoke_all_keys(self, exchange: Exchange) -> Response:
        """Revoke all your API keys."""
        caller = exchange.known_caller
        ended = await self._write(
            exchange, lambda fw: self._gateway.own.revoke_all_keys(fw, caller)
        )
        return json_response({"ok": True, "keysEnded": ended})
