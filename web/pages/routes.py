"""The routes of all pages and their files."""

from __future__ import annotations

from fw_actors.actors.console import Console
from fw_actors.actors.gateway import Gateway
from web.operations import Route
from web.pages.account import AccountPages
from web.pages.attempts import AttemptPages
from web.pages.console import ConsolePages
from web.pages.desk import DeskPages
from web.pages.exporting import ExportPages
from web.pages.rendering import Rendering
from web.pages.replays import ReplayPages
from web.pages.sign_in import SignInPages
from web.response import EventStreams
from web.settings import Settings


def page_routes(
    gateway: Gateway,
    rendering: Rendering,
    settings: Settings,
    console: Console | None,
    streams: EventStreams,
) -> list[Route]:
    """Return the routes of all pages."""
    consoles = []
    if console is not None:
        consoles = ConsolePages(gateway, console, streams, rendering).routes()
    return [
        *rendering.assets.routes(),
        *consoles,
        *SignInPages(settings, rendering).routes(),
        *AccountPages(gateway, settings, rendering).routes(),
        *AttemptPages(gateway, rendering).routes(),
        *ExportPages(gateway, rendering).routes(),
        *ReplayPages(gateway, rendering).routes(),
        *DeskPages(gateway, rendering).routes(),
    ]
