"""All pages of a site, and their files."""

from __future__ import annotations

from web.gateway import Documents, Gateway
from web.operations import Path
from web.pages.assets import Assets
from web.pages.desk import DeskPages
from web.pages.rendering import Rendering
from web.pages.sign_in import SignInPages
from web.settings import Settings


def page_paths(gateway: Gateway, documents: Documents, settings: Settings) -> list[Path]:
    """Return what people see."""
    assets = Assets()
    rendering = Rendering(settings, assets)
    return [
        *assets.paths(),
        *SignInPages(settings, rendering).paths(),
        *DeskPages(gateway, documents, rendering).paths(),
    ]
