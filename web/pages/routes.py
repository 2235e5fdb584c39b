"""All pages of a site, and their files."""

from __future__ import annotations

from fw_actors.actors.console import Console
from fw_actors.actors.gateway import Gateway
from web.operations import Path
from web.pages.account import AccountPages
from web.pages.console import ConsolePages
from web.pages.desk import DeskPages
from web.pages.rendering import Assets, Rendering
from web.pages.sign_in import SignInPages
from web.response import EventStreams
from web.settings import Settings


def page_paths(
    gateway: Gateway,
    settings: Settings,
    console: Console | None,
    streams: EventStreams,
) -> list[Path]:
    """Return what people see."""
    assets = Assets()
    rendering = Rendering(settings, assets)
    consoles = []
    if console is not None:
        consoles = ConsolePages(gateway, console, streams, rendering).paths()
    return [
        *assets.paths(),
        *consoles,
        *SignInPages(settings, rendering).paths(),
        *AccountPages(gateway, settings, rendering).paths(),
        *DeskPages(gateway, rendering).paths(),
    ]
