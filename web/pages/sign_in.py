"""The pages for who is not signed in: sign-in, recovery, invitation (H-150, H-151).

They hold no secret: a link's token stands in the fragment, which no browser sends, and the
script that reads it takes it out of the address bar before anything else.
"""

from __future__ import annotations

from typing import Final

from fw_actors.rules.password_policy import MAX_RUNES
from web.exchange import Exchange
from web.operations import Operation, Path, Session
from web.pages.rendering import HOME, Rendering, local_path, redirect, sign_in_path
from web.response import Answer
from web.settings import Settings

NEXT: Final = frozenset({"next"})


class SignInPages:
    """The paths of this module."""

    def __init__(self, settings: Settings, rendering: Rendering) -> None:
        self._settings, self._rendering = settings, rendering

    def paths(self) -> list[Path]:
        """Return what is served."""
        refuse = self._rendering.refuse
        operations = {
            "/": Operation(self.front_door, Session.OPTIONAL),
            "/login": Operation(self.login, Session.OPTIONAL, query=NEXT, ambiguous_as_guest=True),
            "/forgot-password": Operation(self.forgot_password, Session.IGNORED),
            "/reset-password": Operation(self.reset_password, Session.IGNORED),
            "/accept-invite": Operation(self.accept_invite, Session.IGNORED),
        }
        return [Path(rule, {"GET": each}, refuse=refuse) for rule, each in operations.items()]

    async def front_door(self, exchange: Exchange) -> Answer:
        """Lead to the sign-in page or to the desk (H-150)."""
        return redirect(sign_in_path(HOME) if exchange.caller is None else HOME)

    async def login(self, exchange: Exchange) -> Answer:
        """Show notice, demo account and form; who is signed in goes on at once."""
        following = local_path(exchange.query.get("next"))
        if exchange.caller is not None:
            return redirect(following)
        login = self._settings.login
        return self._rendering.page(
            "login.html",
            following=following,
            notice=login.get("notice"),
            demo_user=login.get("demoUser"),
            demo_password=login.get("demoPassword"),
        )

    async def forgot_password(self, exchange: Exchange) -> Answer:
        """Show the form that asks for a recovery link."""
        return self._rendering.page("forgot.html")

    async def reset_password(self, exchange: Exchange) -> Answer:
        """Show what a recovery link leads to."""
        return self._link("recovery")

    async def accept_invite(self, exchange: Exchange) -> Answer:
        """Show what an invitation leads to."""
        return self._link("invitation")

    def _link(self, kind: str) -> Answer:
        return self._rendering.page(
            "link.html",
            kind=kind,
            minimum=self._settings.min_password_length,
            maximum=MAX_RUNES,
            refuse_common=self._settings.refuse_common_passwords,
        )
