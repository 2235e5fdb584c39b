"""The four public routes of recovery and invitation (spec, Recovery and invitation)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec
import structlog

from fw_actors.errors import OverloadedError
from web.answers import Done, LinkAnswer
from web.envelope import Answer, answer_json
from web.exchange import Exchange
from web.gateway import Gateway
from web.json_in import Texts, read_struct
from web.json_out import iso_time
from web.operations import SMALL, BodyRule, Operation, Path, Session
from web.routes.service_operations import given

_log: Final = structlog.get_logger("web")

AUTH: Final = "/api/auth/"
PASSWORD: Final = Texts(free=("password",))

Handle = Callable[[Exchange], Awaitable[Answer]]


class ForgotPasswordRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /api/auth/forgot-password."""

    usr: str


class TokenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /api/auth/token."""

    token: str


class ResetPasswordRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /api/auth/reset-password."""

    token: str
    password: str


class AcceptInviteRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The body of POST /api/auth/accept-invite."""

    token: str
    password: str
    full_name: str | msgspec.UnsetType = msgspec.UNSET


class RecoveryRoutes:
    """The paths of this module, over one gateway. None of them looks at a session."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def paths(self) -> list[Path]:
        """Return what is served."""
        return [
            _path("forgot-password", self.forgot_password, ForgotPasswordRequest),
            _path("token", self.token, TokenRequest, self.admit_address, LinkAnswer),
            _path("reset-password", self.reset_password, ResetPasswordRequest, self.admit_address),
            _path("accept-invite", self.accept_invite, AcceptInviteRequest, self.admit_address),
        ]

    async def admit_address(self, exchange: Exchange) -> None:
        """Refuse an address that has asked too often, whatever its request holds."""
        await self._gateway.admit_link_use(exchange.address)

    async def forgot_password(self, exchange: Exchange) -> Answer:
        """Answer every well-formed request alike, whoever is meant, also when nothing is queued."""
        body: ForgotPasswordRequest = exchange.body
        try:
            await self._gateway.forgot_password(body.usr, exchange.address)
        except OverloadedError as refusal:  # "never an error" (spec, Limits): told to the log alone
            _log.error(
                "web.recovery_not_queued", request_id=exchange.request_id, error=refusal.message
            )
        return answer_json({"ok": True})

    async def token(self, exchange: Exchange) -> Answer:
        """Tell what a link is good for, without spending it."""
        await self.admit_address(exchange)
        body: TokenRequest = exchange.body
        facts = await self._gateway.look_at_link(body.token, exchange.address)
        told = {
            "kind": facts.kind.value,
            "user": facts.user,
            "fullName": facts.full_name,
            "expires": iso_time(facts.expires),
        }
        return answer_json(told)

    async def reset_password(self, exchange: Exchange) -> Answer:
        """Set a new password by a recovery link; nobody is signed in by that."""
        await self.admit_address(exchange)
        body: ResetPasswordRequest = exchange.body
        await self._gateway.reset_password(
            body.token, body.password, exchange.address, exchange.request_id
        )
        return answer_json({"ok": True})

    async def accept_invite(self, exchange: Exchange) -> Answer:
        """Set the first password by an invitation link; nobody is signed in by that."""
        await self.admit_address(exchange)
        body: AcceptInviteRequest = exchange.body
        await self._gateway.accept_invite(
            body.token,
            body.password,
            given(body.full_name),
            exchange.address,
            exchange.request_id,
        )
        return answer_json({"ok": True})


def _path(
    name: str,
    handle: Handle,
    kind: type[msgspec.Struct],
    admit: Callable[[Exchange], Awaitable[None]] | None = None,
    answer: type[msgspec.Struct] = Done,
) -> Path:
    body = BodyRule(partial(read_struct, kind=kind, texts=PASSWORD), limit=SMALL)
    post = Operation(handle, Session.IGNORED, body, admit=admit, answer=answer)
    return Path(AUTH + name, {"POST": post})
