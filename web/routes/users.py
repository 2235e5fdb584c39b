"""What a System Manager does with others' accounts (interface §2, users.*)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from fw_actors.services.link_mail import SentLink
from web import answers
from web.envelope import Answer, answer_json
from web.exchange import Exchange
from web.gateway import Gateway
from web.json_out import iso_time
from web.operations import Path
from web.routes.service_operations import given, writing

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

T = TypeVar("T")


class InviteRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The body of users.invite."""

    email: str
    name: str | msgspec.UnsetType = msgspec.UNSET
    full_name: str | msgspec.UnsetType = msgspec.UNSET
    roles: list[str] | msgspec.UnsetType = msgspec.UNSET


class UserRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of the operations on one account."""

    user: str


class RevokeSessionsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of users.revokeUserSessions; with `keys` API keys end as well."""

    user: str
    keys: bool = False


class UserRoutes:
    """The paths of this module, over one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def paths(self) -> list[Path]:
        """Return what is served."""
        sent = answers.SentLinkAnswer
        return [
            writing("users.invite", self.invite, InviteRequest, answer=answers.InvitedAnswer),
            writing("users.resendInvite", self.resend_invite, UserRequest, answer=sent),
            writing("users.sendPasswordReset", self.send_password_reset, UserRequest, answer=sent),
            writing(
                "users.revokeUserSessions",
                self.revoke_sessions,
                RevokeSessionsRequest,
                answer=answers.AccessRevoked,
            ),
            writing("users.unlockUser", self.unlock, UserRequest),
        ]

    async def invite(self, exchange: Exchange) -> Answer:
        """Make an account, and send the link by which its owner chooses a password."""
        body: InviteRequest = exchange.body
        name, full_name, roles = given(body.name), given(body.full_name), given(body.roles)
        invited = await self._write(
            exchange,
            lambda fw: self._gateway.users.invite(
                fw, body.email, name, full_name or "", roles or ()
            ),
        )
        told = {"user": invited.user, "email": invited.email}
        return answer_json(told | _link_json(invited.sent))

    async def resend_invite(self, exchange: Exchange) -> Answer:
        """Send an invitation again."""
        user = exchange.body.user
        sent = await self._write(exchange, lambda fw: self._gateway.users.resend_invite(fw, user))
        return answer_json({"ok": True} | _link_json(sent))

    async def send_password_reset(self, exchange: Exchange) -> Answer:
        """Send a recovery link."""
        user = exchange.body.user
        sent = await self._write(
            exchange, lambda fw: self._gateway.users.send_password_reset(fw, user)
        )
        return answer_json({"ok": True} | _link_json(sent))

    async def revoke_sessions(self, exchange: Exchange) -> Answer:
        """End all sessions of a user, and all API keys where that is asked for."""
        body: RevokeSessionsRequest = exchange.body
        ended = await self._write(
            exchange, lambda fw: self._gateway.users.revoke_sessions(fw, body.user, body.keys)
        )
        told = {"ok": True, "sessionsEnded": ended.sessions}
        return answer_json(told if ended.keys is None else told | {"keysEnded": ended.keys})

    async def unlock(self, exchange: Exchange) -> Answer:
        """Lift a lockout early, at both spellings of the account."""
        user = exchange.body.user
        await self._write(exchange, lambda fw: self._gateway.users.unlock(fw, user))
        return answer_json({"ok": True})

    async def _write(self, exchange: Exchange, work: Callable[[Fw], T]) -> T:
        return await self._gateway.write(exchange.known_caller, work, exchange.request_id)


def _link_json(sent: SentLink) -> dict[str, Any]:
    """The link is there only where it is handed back (interface §2, Links)."""
    told: dict[str, Any] = {"expires": iso_time(sent.expires)}
    return told if sent.url is None else told | {"link": sent.url}
