"""Routes for System Managers: accounts of others, actions of the console."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from fw_actors.access.recovery import SentLink
from fw_actors.actors.console import Console
from fw_actors.actors.gateway import Gateway
from web import response_schemas
from web.exchange import Exchange
from web.json_input import read_struct
from web.operations import BodyRule, Operation, Path
from web.pages.console import refuse_who_manages_nothing
from web.response import Answer, answer_json, iso_time
from web.routes.operations import SERVICES, given, writing

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
        sent = response_schemas.SentLinkAnswer
        return [
            writing(
                "users.invite", self.invite, InviteRequest, answer=response_schemas.InvitedAnswer
            ),
            writing("users.resendInvite", self.resend_invite, UserRequest, answer=sent),
            writing("users.sendPasswordReset", self.send_password_reset, UserRequest, answer=sent),
            writing(
                "users.revokeUserSessions",
                self.revoke_sessions,
                RevokeSessionsRequest,
                answer=response_schemas.AccessRevoked,
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
    """The link is there only where it is handed back (A-195)."""
    told: dict[str, Any] = {"expires": iso_time(sent.expires)}
    return told if sent.url is None else told | {"link": sent.url}


class ReceiverRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of console.pause and console.resume: an origin, as the console shows it."""

    receiver: str


class ActorRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of console.restart and console.trace: the name of a single actor."""

    actor: str


class ConsoleRoutes:
    """The paths of this module, over one gateway and the console of the process."""

    def __init__(self, gateway: Gateway, console: Console) -> None:
        self._gateway, self._console = gateway, console

    def paths(self) -> list[Path]:
        """Return what is served."""
        return [
            self._path("pause", ReceiverRequest, self._console.pause),
            self._path("resume", ReceiverRequest, self._console.resume),
            self._path("restart", ActorRequest, self._console.restart),
            self._path("trace", ActorRequest, self._console.trace),
            self._path("unlock", UserRequest, self._console.unlock),
        ]

    def _path(
        self,
        name: str,
        kind: type[ReceiverRequest | ActorRequest | UserRequest],
        act: Callable[[str, str, str], Awaitable[None]],
    ) -> Path:
        async def handle(exchange: Exchange) -> Answer:
            caller = exchange.known_caller
            await self._gateway.read(caller, refuse_who_manages_nothing, exchange.request_id)
            (target,) = msgspec.structs.astuple(exchange.body)
            await act(caller.user, target, exchange.request_id)
            return answer_json({"ok": True})

        body = BodyRule(partial(read_struct, kind=kind))
        return Path(f"{SERVICES}console.{name}", {"POST": Operation(handle, body=body)})
