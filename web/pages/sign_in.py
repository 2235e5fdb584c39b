"""Pages without a session: sign-in, recovery, invitation (H-150, H-151).

They contain no secret: a link's token is in the fragment, which browsers do not send; the script
that reads it removes it from the address bar at once.
"""

from __future__ import annotations

from typing import Final

from fw_actors.rules.password_policy import MAX_RUNES
from web.exchange import Exchange
from web.operations import Authentication, Operation, Route
from web.pages.rendering import HOME, Rendering, local_path, redirect, sign_in_path
from web.response import Response
from web.settings import Settings

NEXT: Final = frozenset({"next", "ended"})


class SignInPages:
    """The pages for guests: sign-in, forgotten password, and the page of a link."""

    def __init__(self, settings: Settings, rendering: Rendering) -> None:
        self._settings, self._rendering = settings, rendering

    def routes(self) -> list[Route]:
        """Return the routes."""
        error_page = self._rendering.error_page
        operations = {
            "/": Operation(self.root, Authentication.OPTIONAL),
            "/login": Operation(
                self.login, Authentication.OPTIONAL, query=NEXT, ambiguous_as_guest=True
            ),
            "/forgot-password": Operation(self.forgot_password, Authentication.IGNORED),
            "/reset-password": Operation(self.reset_password, Authentication.IGNORED),
            "/accept-invite": Operation(self.accept_invite, Authentication.IGNORED),
        }
        return [
            Route(rule, {"GET": each}, error_page=error_page) for rule, each in operations.items()
        ]

    async def root(self, exchange: Exchange) -> Response:
        """Redirect to the sign-in page or to the desk (H-150)."""
        return redirect(sign_in_path(HOME) if exchange.caller is None else HOME)

    async def login(self, exchange: Exchange) -> Response:
        """Show notice, demo account and form; redirect a signed-in user at once."""
        following = local_path(exchange.query.get("next"))
        if exchange.caller is not None:
            return redirect(following)
        login = self._settings.login
        return self._rendering.page(
            "login.html",
            following=following,
            ended="ended" in exchange.query,
            notice=login.get("notice"),
            demo_user=login.get("demoUser"),
            demo_password=login.get("demoPassword"),
        )

    async def forgot_password(self, exchange: Exchange) -> Response:
        """Show the form for a recovery link."""
        return self._rendering.page("forgot.html")

    async def reset_password(self, exchange: Exchange) -> Response:
        """Show the form for a new password."""
        return self._link("recovery")

    async def accept_invite(self, exchange: Exchange) -> Response:
        """Show the form for the first password."""
        return self._link("invitation")

    def _link(self, kind: str) -> Response:
        return self._rendering.page(
            "link.html",
            kind=kind,
            minimum=self._settings.min_password_length,
            maximum=MAX_RUNES,
            refuse_common=self._settings.refuse_common_passwords,
        )
