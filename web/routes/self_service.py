"""What users do with their own accounts: profile, password, sessions, API keys (A-240 to A-272)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from fw_actors.access.administration import require_session
from fw_actors.access.types import PasswordChange, Profile
from web import response_schemas
from web.exchange import Exchange
from web.gateway import Gateway
from web.json_input import Texts
from web.operations import Path
from web.response import Answer, answer_json, iso_time
from web.routes.access import profile_json
from web.routes.operations import given, reading, time_or_null, writing

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

T = TypeVar("T")

PASSWORDS: Final = Texts(free=("current", "password"))


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


class SelfServiceRoutes:
    """The paths of this module, over one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def paths(self) -> list[Path]:
        """Return what is served."""
        return [
            reading("profile.getMyProfile", self.profile, response_schemas.ProfileAnswer),
            writing(
                "profile.updateMyProfile",
                self.update_profile,
                ProfileRequest,
                answer=response_schemas.ProfileAnswer,
            ),
            writing(
                "profile.changeMyPassword",
                self.change_password,
                PasswordRequest,
                answer=response_schemas.DoneToSessions,
                texts=PASSWORDS,
            ),
            reading("sessions.listMySessions", self.sessions, response_schemas.SessionsAnswer),
            writing("sessions.revokeMySession", self.revoke_session, HandleRequest),
            writing(
                "sessions.revokeMyOtherSessions",
                self.revoke_other_sessions,
                answer=response_schemas.DoneToSessions,
            ),
            reading("api_keys.listMyAPIKeys", self.keys, response_schemas.KeysAnswer),
            writing(
                "api_keys.createMyAPIKey",
                self.make_key,
                KeyRequest,
                answer=response_schemas.MadeKeyAnswer,
            ),
            writing("api_keys.revokeMyAPIKey", self.revoke_key, KeyNameRequest),
            writing(
                "api_keys.revokeAllMyAPIKeys",
                self.revoke_all_keys,
                answer=response_schemas.DoneToKeys,
            ),
        ]

    async def profile(self, exchange: Exchange) -> Answer:
        """Show the own account."""
        found = await self._gateway.profile(exchange.known_caller)
        return answer_json(profile_json(found))

    async def update_profile(self, exchange: Exchange) -> Answer:
        """Write full name and language, as far as they are given."""
        body: ProfileRequest = exchange.body
        name, language = given(body.full_name), given(body.language)

        def work(fw: Fw) -> Profile:
            return self._gateway.own.update_profile(fw, name, language)

        return answer_json(profile_json(await self._write(exchange, work)))

    async def change_password(self, exchange: Exchange) -> Answer:
        """Set a new password by the current one; the other sessions end."""
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
        return answer_json({"ok": True, "sessionsEnded": changed.sessions_ended})

    async def sessions(self, exchange: Exchange) -> Answer:
        """List the own sessions by their handles."""
        caller = exchange.known_caller
        found = await self._gateway.read(caller, lambda fw: self._gateway.own.sessions(fw, caller))
        told = [
            {
                "id": session.id,
                "ip": session.ip,
                "userAgent": session.user_agent,
                "created": iso_time(session.created),
                "lastSeen": iso_time(session.last_seen),
                "expires": iso_time(session.expires),
                "current": session.id == caller.session,
            }
            for session in found
        ]
        return answer_json({"sessions": told})

    async def revoke_session(self, exchange: Exchange) -> Answer:
        """End one of the own sessions."""
        caller, body = exchange.known_caller, exchange.body
        await self._write(
            exchange, lambda fw: self._gateway.own.revoke_session(fw, caller, body.id)
        )
        return answer_json({"ok": True})

    async def revoke_other_sessions(self, exchange: Exchange) -> Answer:
        """End the own sessions but for this one."""
        caller = exchange.known_caller
        ended = await self._write(
            exchange, lambda fw: self._gateway.own.revoke_other_sessions(fw, caller)
        )
        return answer_json({"ok": True, "sessionsEnded": ended})

    async def keys(self, exchange: Exchange) -> Answer:
        """List the own API keys."""
        caller = exchange.known_caller
        found = await self._gateway.read(caller, lambda fw: self._gateway.own.keys(fw, caller))
        told = [
            {
                "name": key.name,
                "label": key.label,
                "created": iso_time(key.created),
                "expires": time_or_null(key.expires),
                "lastUsed": time_or_null(key.last_used),
            }
            for key in found
        ]
        return answer_json({"keys": told})

    async def make_key(self, exchange: Exchange) -> Answer:
        """Make an API key, and show it this once."""
        caller = exchange.known_caller
        body: KeyRequest = exchange.body
        days = given(body.days)
        made = await self._write(
            exchange,
            lambda fw: self._gateway.own.make_key(fw, caller, body.label, days, exchange.address),
        )
        told = {
            "name": made.name,
            "label": made.label,
            "expires": time_or_null(made.expires),
            "key": made.key,
        }
        return answer_json(told)

    async def revoke_key(self, exchange: Exchange) -> Answer:
        """End one of the own API keys."""
        caller, body = exchange.known_caller, exchange.body
        await self._write(exchange, lambda fw: self._gateway.own.revoke_key(fw, caller, body.name))
        return answer_json({"ok": True})

    async def revoke_all_keys(self, exchange: Exchange) -> Answer:
        """End all of the own API keys."""
        caller = exchange.known_caller
        ended = await self._write(
            exchange, lambda fw: self._gateway.own.revoke_all_keys(fw, caller)
        )
        return answer_json({"ok": True, "keysEnded": ended})

    async def _write(self, exchange: Exchange, work: Callable[[Fw], T]) -> T:
        return await self._gateway.write(exchange.known_caller, work, exchange.request_id)
