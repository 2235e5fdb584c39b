"""Routes of sign-in, sign-out, recovery and invitation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from fw_actors.access.types import Profile, SignInAttempt
from fw_actors.actors.gateway import Gateway
from fw_actors.errors import BadRequestError, OverloadedError
from web import response_schemas
from web.exchange import Exchange
from web.json_input import Texts, read_struct
from web.operations import SMALL, BodyRule, Operation, Path, Session
from web.request import clear_cookie, set_cookie
from web.response import CSRF_HEADER, Answer, answer_json, iso_time
from web.response_schemas import Done, LinkAnswer
from web.routes.operations import NO_ARGUMENTS, given
from web.settings import Settings

CLEAR_SITE_DATA: Final = ("Clear-Site-Data", '"cache", "storage"')
PASSWORD: Final = Texts(free=("pwd",))


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
    """The paths of this module, over one gateway."""

    def __init__(self, gateway: Gateway, settings: Settings) -> None:
        self._gateway = gateway
        self._site = {
            "name": settings.name,
            "url": settings.url,
            "csrfHeader": CSRF_HEADER,
            "login": settings.login,
        }

    def paths(self) -> list[Path]:
        """Return what is served."""
        sign_in_body = BodyRule(
            partial(read_struct, kind=SignInRequest, texts=PASSWORD), limit=SMALL
        )
        sign_in = Operation(
            self.sign_in,
            Session.IGNORED,
            sign_in_body,
            admit=self.admit_address,
            answer=response_schemas.SignedInAnswer,
            ambiguous_as_guest=True,
        )
        sign_out = Operation(
            self.sign_out,
            Session.IGNORED,
            NO_ARGUMENTS,
            answer=response_schemas.Done,
            ambiguous_as_guest=True,
        )
        boot = Operation(self.boot, Session.OPTIONAL, answer=response_schemas.BootAnswer)
        return [
            Path("/api/login", {"POST": sign_in}),
            Path("/api/logout", {"POST": sign_out}),
            Path("/api/boot", {"GET": boot}),
        ]

    async def admit_address(self, exchange: Exchange) -> None:
        """Refuse an address that has used up its tries, whatever its request holds."""
        await self._gateway.lockouts.admit_address(exchange.address, exchange.request_id)

    async def sign_in(self, exchange: Exchange) -> Answer:
        """Make a session and set its cookie; a `sid` that came along is ended, never adopted."""
        body: SignInRequest = exchange.body
        if not body.usr.strip():
            await self.admit_address(exchange)
            raise BadRequestError("Type your name or e-mail.", field="usr")
        signed_in = await self._gateway.lockouts.sign_in(
            SignInAttempt(
                usr=body.usr,
                pwd=body.pwd,
                address=exchange.address,
                user_agent=exchange.user_agent,
                old_sid=exchange.sid,
                request_id=exchange.request_id,
            )
        )
        cookie = set_cookie(signed_in.sid, signed_in.max_age, secure=exchange.cookie_is_secure)
        told = {
            "ok": True,
            "user": signed_in.user,
            "fullName": signed_in.full_name,
            "expires": iso_time(signed_in.expires),
        }
        return answer_json(told, 200, ("Set-Cookie", cookie))

    async def sign_out(self, exchange: Exchange) -> Answer:
        """End the session, if there is one, and take the cookie away in any case.

        The browser forgets what it has kept of the site, pages to go back to as well. Not its
        cookies: that would be those of all hosts of the domain.
        """
        if exchange.sid is not None:
            await self._gateway.sign_out(exchange.sid)
        cookie = clear_cookie(secure=exchange.cookie_is_secure)
        return answer_json({"ok": True}, 200, ("Set-Cookie", cookie), CLEAR_SITE_DATA)

    async def boot(self, exchange: Exchange) -> Answer:
        """Tell anyone what the sign-in screen shows, and a user who that is."""
        user = None
        if exchange.caller is not None:
            profile = await self._gateway.profile(exchange.caller)
            user = profile_json(profile)
        return answer_json({"site": self._site, "user": user})


_log: Final = structlog.get_logger("web")

AUTH: Final = "/api/auth/"
LINK_PASSWORD: Final = Texts(free=("password",))

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
        await self._gateway.recovery.admit_address(exchange.address)

    async def forgot_password(self, exchange: Exchange) -> Answer:
        """Answer every well-formed request alike, whoever is meant, also when nothing is queued."""
        body: ForgotPasswordRequest = exchange.body
        try:
            await self._gateway.recovery.ask(body.usr, exchange.address)
        except OverloadedError as refusal:  # never an error: told to the log alone
            _log.error(
                "web.recovery_not_queued", request_id=exchange.request_id, error=refusal.message
            )
        return answer_json({"ok": True})

    async def token(self, exchange: Exchange) -> Answer:
        """Tell what a link is good for, without spending it."""
        await self.admit_address(exchange)
        body: TokenRequest = exchange.body
        facts = await self._gateway.recovery.look(body.token, exchange.address)
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
        await self._gateway.recovery.reset(
            body.token, body.password, exchange.address, exchange.request_id
        )
        return answer_json({"ok": True})

    async def accept_invite(self, exchange: Exchange) -> Answer:
        """Set the first password by an invitation link; nobody is signed in by that."""
        await self.admit_address(exchange)
        body: AcceptInviteRequest = exchange.body
        await self._gateway.invitation.accept(
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
    body = BodyRule(partial(read_struct, kind=kind, texts=LINK_PASSWORD), limit=SMALL)
    post = Operation(handle, Session.IGNORED, body, admit=admit, answer=answer)
    return Path(AUTH + name, {"POST": post})
