"""Routes for System Managers: accounts of others, actions of the console."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from fw_actors.access.recovery import SentLink
from fw_actors.actors.console import Console, require_console
from fw_actors.actors.gateway import Gateway
from fw_actors.documents.fields import iso
from web.exchange import Exchange
from web.operations import Route
from web.response import Response, json_response
from web.response_schemas import AccessRevokedResponse, InvitedResponse, SentLinkResponse
from web.routes.operations import GatewayRoutes, value_or_none, write_route


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


class UserRoutes(GatewayRoutes):
    """The routes by which System Managers administer accounts of others."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        sent = SentLinkResponse
        return [
            write_route("users.invite", self.invite, InviteRequest, response=InvitedResponse),
            write_route("users.resendInvite", self.resend_invite, UserRequest, response=sent),
            write_route(
                "users.sendPasswordReset", self.send_password_reset, UserRequest, response=sent
            ),
            write_route(
                "users.revokeUserSessions",
                self.revoke_sessions,
                RevokeSessionsRequest,
                response=AccessRevokedResponse,
            ),
            write_route("users.unlockUser", self.unlock, UserRequest),
        ]

    async def invite(self, exchange: Exchange) -> Response:
        """Create an account, and mail the link for setting a password."""
        body: InviteRequest = exchange.body
        name, full_name, roles = (
            value_or_none(body.name),
            value_or_none(body.full_name),
            value_or_none(body.roles),
        )
        invited = await self._write_while_live(
            exchange,
            lambda fw: self._gateway.users.invite(
                fw, body.email, name, full_name or "", roles or ()
            ),
        )
        content = {"user": invited.user, "email": invited.email}
        return json_response(content | _link_json(invited.sent))

    async def resend_invite(self, exchange: Exchange) -> Response:
        """Send an invitation again."""
        user = exchange.body.user
        sent = await self._write_while_live(
            exchange, lambda fw: self._gateway.users.resend_invite(fw, user)
        )
        return json_response({"ok": True} | _link_json(sent))

    async def send_password_reset(self, exchange: Exchange) -> Response:
        """Send a recovery link."""
        user = exchange.body.user
        sent = await self._write_while_live(
            exchange, lambda fw: self._gateway.users.send_password_reset(fw, user)
        )
        return json_response({"ok": True} | _link_json(sent))

    async def revoke_sessions(self, exchange: Exchange) -> Response:
        """End all sessions of a user, and on request all API keys."""
        body: RevokeSessionsRequest = exchange.body
        ended = await self._write_while_live(
            exchange, lambda fw: self._gateway.users.revoke_sessions(fw, body.user, body.keys)
        )
        content = {"ok": True, "sessionsEnded": ended.sessions}
        return json_response(content if ended.keys is None else content | {"keysEnded": ended.keys})

    async def unlock(self, exchange: Exchange) -> Response:
        """Lift a lockout early, for the account's name and its e-mail."""
        user = exchange.body.user
        await self._write_while_live(exchange, lambda fw: self._gateway.users.unlock(fw, user))
        return json_response({"ok": True})


def _link_json(sent: SentLink) -> dict[str, Any]:
    """Return the link's part of a response, with its URL only if that is returned (A-195)."""
    content: dict[str, Any] = {"expires": iso(sent.expires)}
    return content if sent.url is None else content | {"link": sent.url}


class ReceiverRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of console.pause and console.resume: an origin, as the console shows it."""

    receiver: str


class ActorRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of console.restart and console.trace: the name of a single actor."""

    actor: str


class ConsoleRoutes:
    """The routes of the actions of the console, on this process or on all of the service."""

    def __init__(self, gateway: Gateway, console: Console) -> None:
        self._gateway, self._console = gateway, console

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            self._route(
                "pause",
                "Pause a receiver: nothing is sent to it until it is resumed or the service ends.",
                ReceiverRequest,
                self._console.pause,
            ),
            self._route(
                "resume", "Resume a paused receiver.", ReceiverRequest, self._console.resume
            ),
            self._route(
                "restart",
                "Stop an actor, which its supervisor starts again.",
                ActorRequest,
                self._console.restart,
            ),
            self._route(
                "trace",
                "Trace the messages of an actor for a minute.",
                ActorRequest,
                self._console.trace,
            ),
            self._route(
                "unlock",
                "Lift the lockouts of an account's name and its e-mail.",
                UserRequest,
                self._console.unlock,
            ),
        ]

    def _route(
        self,
        name: str,
        summary: str,
        kind: type[ReceiverRequest | ActorRequest | UserRequest],
        action: Callable[[str, str, str], Awaitable[None]],
    ) -> Route:
        async def handle(exchange: Exchange) -> Response:
            caller = exchange.known_caller
            await self._gateway.read(caller, require_console, exchange.request_id)
            (target,) = msgspec.structs.astuple(exchange.body)
            await action(caller.user, target, exchange.request_id)
            return json_response({"ok": True})

        handle.__doc__ = summary
        return write_route(f"console.{name}", handle, kind)
