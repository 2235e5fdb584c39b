"""Routes of sign-in, sign-out, recovery and invitation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from fw_actors.access.administration import Profile
from fw_actors.access.sign_in import SignInAttempt
from fw_actors.actors.gateway import Gateway
from fw_actors.documents.fields import iso
from fw_actors.errors import BadRequestError, OverloadedError
from web import response_schemas
from web.exchange import Exchange
from web.json_input import CharacterRules, read_struct
from web.operations import (
    SMALL_BODY_BYTES,
    Authentication,
    BodyRule,
    Operation,
    OperationHandler,
    Route,
)
from web.response import CSRF_HEADER, Response, clear_cookie, json_response, set_cookie
from web.response_schemas import LinkResponse, OkResponse
from web.routes.operations import NO_ARGUMENTS, value_or_none
from web.settings import Settings

CLEAR_SITE_DATA: Final = ("Clear-Site-Data", '"cache", "storage"')
PASSWORD: Final = CharacterRules(free=("pwd",))


class SignInRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /api/login."""

    usr: str
    pwd: str


def profile_json(profile: Profile) -> dict[str, Any]:
    """Return a profile as `getMyProfile` and `/api/boot` show it."""
    return {
        "name": profile.name,
        "email": profile.email,
        "fullName": profile.full_name,
        "language": profile.language,
        "roles": profile.roles,
    }


class AccessRoutes:
    """The routes of sign-in and sign-out, and of the data with which a client starts."""

    def __init__(self, gateway: Gateway, settings: Settings) -> None:
        self._gateway = gateway
        self._site = {
            "name": settings.name,
            "url": settings.url,
            "csrfHeader": CSRF_HEADER,
            "login": settings.login,
        }

    def routes(self) -> list[Route]:
        """Return the routes."""
        sign_in_body = BodyRule(
            partial(read_struct, kind=SignInRequest, texts=PASSWORD), limit=SMALL_BODY_BYTES
        )
        sign_in = Operation(
            self.sign_in,
            Authentication.IGNORED,
            sign_in_body,
            check_address=self.check_address,
            response=response_schemas.SignedInResponse,
            ambiguous_as_guest=True,
        )
        sign_out = Operation(
            self.sign_out,
            Authentication.IGNORED,
            NO_ARGUMENTS,
            response=response_schemas.OkResponse,
            ambiguous_as_guest=True,
        )
        boot = Operation(self.boot, Authentication.OPTIONAL, response=response_schemas.BootResponse)
        return [
            Route("/api/login", {"POST": sign_in}),
            Route("/api/logout", {"POST": sign_out}),
            Route("/api/boot", {"GET": boot}),
        ]

    async def check_address(self, exchange: Exchange) -> None:
        """Raise TooManyRequestsError for an address that has used up its attempts."""
        await self._gateway.check_address(exchange.address, exchange.request_id)

    async def sign_in(self, exchange: Exchange) -> Response:
        """Create a session and set its cookie; a session in the request is ended, never reused."""
        body: SignInRequest = exchange.body
        if not body.usr.strip():
            await self.check_address(exchange)
            raise BadRequestError("Type your name or e-mail.", field="usr")
        signed_in = await self._gateway.sign_in(
            SignInAttempt(
                usr=body.usr,
                pwd=body.pwd,
                user_agent=exchange.user_agent,
                address=exchange.address,
                old_sid=exchange.sid,
                request_id=exchange.request_id,
            )
        )
        content = {
            "ok": True,
            "user": signed_in.user,
            "fullName": signed_in.full_name,
            "expires": iso(signed_in.expires),
        }
        cookie = set_cookie(signed_in.sid, signed_in.max_age, secure=exchange.cookie_is_secure)
        return json_response(content, 200, ("Set-Cookie", cookie))

    async def sign_out(self, exchange: Exchange) -> Response:
        """End the session, if there is one, and clear the cookie in any case.

        Clear-Site-Data makes the browser drop cached pages too, so that the back button shows none.
        It does not name cookies, because that would clear the cookies of all hosts of the domain.
        """
        if exchange.sid is not None:
            await self._gateway.sign_out(exchange.sid)
        cookie = clear_cookie(secure=exchange.cookie_is_secure)
        return json_response({"ok": True}, 200, ("Set-Cookie", cookie), CLEAR_SITE_DATA)

    async def boot(self, exchange: Exchange) -> Response:
        """Return the content of the sign-in page, and the signed-in user's profile."""
        user = None
        if exchange.caller is not None:
            profile = await self._gateway.profile(exchange.caller)
            user = profile_json(profile)
        return json_response({"site": self._site, "user": user})


_log: Final = structlog.get_logger("web")

AUTH: Final = "/api/auth/"
LINK_PASSWORD: Final = CharacterRules(free=("password",))


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
    """The routes of recovery and invitation; none of them reads the session."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            _route("forgot-password", self.forgot_password, ForgotPasswordRequest),
            _route("token", self.token, TokenRequest, self.check_address, LinkResponse),
            _route("reset-password", self.reset_password, ResetPasswordRequest, self.check_address),
            _route("accept-invite", self.accept_invite, AcceptInviteRequest, self.check_address),
        ]

    async def check_address(self, exchange: Exchange) -> None:
        """Raise TooManyRequestsError for an address that has sent too many requests."""
        await self._gateway.recovery.check_address(exchange.address)

    async def forgot_password(self, exchange: Exchange) -> Response:
        """Queue a recovery mail; the response is the same whether or not the account exists."""
        body: ForgotPasswordRequest = exchange.body
        try:
            await self._gateway.recovery.request_link(body.usr, exchange.address)
        except OverloadedError as error:  # the response is the same; only the log shows it
            _log.error(
                "web.recovery_not_queued", request_id=exchange.request_id, error=error.message
            )
        return json_response({"ok": True})

    async def token(self, exchange: Exchange) -> Response:
        """Describe a link's token without using it up."""
        await self.check_address(exchange)
        body: TokenRequest = exchange.body
        facts = await self._gateway.recovery.link_facts(body.token, exchange.address)
        content = {
            "kind": facts.kind.value,
            "user": facts.user,
            "fullName": facts.full_name,
            "expires": iso(facts.expires),
        }
        return json_response(content)

    async def reset_password(self, exchange: Exchange) -> Response:
        """Set a new password with a recovery link; this does not sign in."""
        await self.check_address(exchange)
        body: ResetPasswordRequest = exchange.body
        await self._gateway.recovery.reset(
            body.token, body.password, exchange.address, exchange.request_id
        )
        return json_response({"ok": True})

    async def accept_invite(self, exchange: Exchange) -> Response:
        """Set the first password with an invitation link; this does not sign in."""
        await self.check_address(exchange)
        body: AcceptInviteRequest = exchange.body
        await self._gateway.invitation.accept(
            body.token,
            body.password,
            value_or_none(body.full_name),
            exchange.address,
            exchange.request_id,
        )
        return json_response({"ok": True})


def _route(
    name: str,
    handle: OperationHandler,
    kind: type[msgspec.Struct],
    check_address: Callable[[Exchange], Awaitable[None]] | None = None,
    response: type[msgspec.Struct] = OkResponse,
) -> Route:
    body = BodyRule(partial(read_struct, kind=kind, texts=LINK_PASSWORD), limit=SMALL_BODY_BYTES)
    post = Operation(
        handle, Authentication.IGNORED, body, check_address=check_address, response=response
    )
    return Route(AUTH + name, {"POST": post})
