"""A hook of mkdocs that generates the reference pages from the code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from fw_cli.http_reference import http_reference
from fw_cli.reference import command_line

PAGES: Final[Mapping[str, Callable[[], str]]] = MappingProxyType(
    {"command-line.md": command_line, "http.md": http_reference}
)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Replace the text of a generated page; mkdocs calls this for every page."""
    made = PAGES.get(page.file.src_uri)
    return markdown if made is None else made()
