"""Sign-in, sign-out, and what the sign-in screen needs (interface §2)."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import msgspec

from fw_actors.errors import BadRequestError
from fw_actors.services.access import Profile, SignInAttempt
from web import answers
from web.cookies import clear_cookie, set_cookie
from web.envelope import Answer, answer_json
from web.exchange import Exchange
from web.gateway import Gateway
from web.headers import CSRF_HEADER
from web.json_in import Texts, read_struct
from web.json_out import iso_time
from web.operations import SMALL, BodyRule, Operation, Path, Session
from web.routes.service_operations import NO_ARGUMENTS
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
            answer=answers.SignedInAnswer,
            ambiguous_as_guest=True,
        )
        sign_out = Operation(
            self.sign_out,
            Session.IGNORED,
            NO_ARGUMENTS,
            answer=answers.Done,
            ambiguous_as_guest=True,
        )
        boot = Operation(self.boot, Session.OPTIONAL, answer=answers.BootAnswer)
        return [
            Path("/api/login", {"POST": sign_in}),
            Path("/api/logout", {"POST": sign_out}),
            Path("/api/boot", {"GET": boot}),
        ]

    async def admit_address(self, exchange: Exchange) -> None:
        """Refuse an address that has used up its tries, whatever its request holds."""
        await self._gateway.admit_sign_in(exchange.address, exchange.request_id)

    async def sign_in(self, exchange: Exchange) -> Answer:
        """Make a session and set its cookie; a `sid` that came along is ended, never adopted."""
        body: SignInRequest = exchange.body
        if not body.usr.strip():
            await self.admit_address(exchange)
            raise BadRequestError("Type your name or e-mail.", field="usr")
        signed_in = await self._gateway.sign_in(
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
