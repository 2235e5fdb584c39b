"""Renders pages: templates, the common frame, assets, error pages."""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from jinja2 import DictLoader, Environment, StrictUndefined

from fw_actors.documents.query import MAX_SEARCHED_ROWS
from fw_actors.errors import (
    AuthenticationError,
    BadRequestError,
    FwError,
    NotFoundError,
    PermissionDeniedError,
)
from web.exchange import Exchange
from web.operations import Authentication, Operation, Route
from web.pages.wording import DOCUMENTS, GROUPS, described, group_of
from web.response import CSRF_HEADER, Response, clear_cookie, error_response
from web.settings import Settings

if TYPE_CHECKING:
    from fw_actors.documents.doctype import Meta
    from fw_actors.documents.handle import Fw


@dataclass(frozen=True)
class NavigationItem:
    """A DocType that the user may list."""

    name: str
    path: str
    about: str


BESIDE: Final[Mapping[str, tuple[NavigationItem, ...]]] = {
    "Webhook Delivery": (
        NavigationItem(
            "Attempts", "/app/attempts", "All attempts to send deliveries, newest first."
        ),
        NavigationItem("Bulk replays", "/app/replays", "Bulk replays and their outcomes."),
    )
}
"""Pages that are not lists of a DocType, after the list of one."""


@dataclass(frozen=True)
class PageFrame:
    """The frame of a page: the signed-in user, the DocTypes by group, the current entry."""

    user: str
    navigation: Mapping[str, tuple[NavigationItem, ...]]
    current: str
    manages: bool
    """Whether the user may see the console: a System Manager without scopes."""


def list_path(doctype: str) -> str:
    """Return the path of a DocType's list."""
    return f"/app/{quote(doctype, safe='')}"


def document_path(doctype: str, name: str) -> str:
    """Return the path of a document's page."""
    return f"{list_path(doctype)}/{quote(name, safe='')}"


def new_path(doctype: str) -> str:
    """Return the path of the form for a new document."""
    return f"/new/{quote(doctype, safe='')}"


def page_frame(fw: Fw, current: str) -> PageFrame:
    """Return the frame for the handle's user; `current` is the DocType or page that is shown."""
    groups: dict[str, list[NavigationItem]] = {DOCUMENTS: [], **{group: [] for group in GROUPS}}
    for meta in sorted(fw.documents.registry.metas.values(), key=_order):
        if not meta.child and not fw.rights.excludes(meta) and fw.rights.allows(meta, "list"):
            item = NavigationItem(meta.name, list_path(meta.name), described(meta))
            groups[group_of(meta.name)].append(item)
            groups[group_of(meta.name)] += BESIDE.get(meta.name, ())
    navigation = {group: tuple(items) for group, items in groups.items() if items}
    return PageFrame(fw.user, navigation, current, fw.rights.administers)


def _order(meta: Meta) -> tuple[int, str]:
    """Return the sort key: built-in DocTypes in the order of their group, those of apps by name."""
    ordered = GROUPS.get(group_of(meta.name), ())
    return (ordered.index(meta.name) if meta.name in ordered else 0, meta.name)


TYPES: Final = MappingProxyType(
    {
        "css": "text/css; charset=utf-8",
        "js": "text/javascript; charset=utf-8",
        "svg": "image/svg+xml; charset=utf-8",
    }
)
IMMUTABLE: Final = "public, max-age=31536000, immutable"
DIGITS: Final = 16


PACKED_FROM: Final = 1024
"""The size in bytes from which a file is sent compressed."""


@dataclass(frozen=True)
class Asset:
    """A file of the pages; `packed` is its gzip form, None for a small file."""

    content: bytes
    kind: str
    packed: bytes | None


def _asset(entry: Traversable) -> Asset:
    content = entry.read_bytes()
    return Asset(content, TYPES[entry.name.rpartition(".")[2]], _packed(content))


def _packed(content: bytes) -> bytes | None:
    """Return the gzip form of a file."""
    # Without the time, so that equal files have equal forms.
    return gzip.compress(content, mtime=0) if len(content) >= PACKED_FROM else None


@cache
def _assets() -> dict[str, Asset]:
    """Return all static files by name."""
    folder = files(__package__).joinpath("static")
    return {
        entry.name: _asset(entry)
        for entry in folder.iterdir()
        if entry.name.rpartition(".")[2] in TYPES
    }


@cache
def _templates() -> dict[str, str]:
    """Return all templates by name."""
    folder = files(__package__).joinpath("templates")
    return {entry.name: entry.read_text(encoding="utf-8") for entry in folder.iterdir()}


def read_files() -> None:
    """Read the files of all pages, once in a process and in those that it forks.

    An upgrade replaces them while the service runs, and those of two versions do not match.
    """
    _assets()
    _templates()


_ENCODING: Final = re.compile(r"\s*(gzip|\*)\s*(?:;\s*q\s*=\s*([0-9.]+)\s*)?", re.ASCII)


def takes_gzip(accepted: str) -> bool:
    """Return whether a client with this Accept-Encoding accepts gzip: not with q=0, and by its
    name, or else by `*` (RFC 9110 12.5.3)."""
    matches = filter(None, map(_ENCODING.fullmatch, accepted.lower().split(",")))
    accepts = {each[1]: (each[2] or "1").strip("0.") != "" for each in matches}
    return accepts.get("gzip", accepts.get("*", False))


class Assets:
    """All static files, in a folder named for their version: `/static/<digest of all>`.

    A path that changes with the content may be cached forever. Scripts import each other by
    relative paths, so all are in one folder.
    """

    def __init__(self) -> None:
        self._files = _assets()
        digest = sha256()
        for name, asset in sorted(self._files.items()):
            digest.update(name.encode() + b"\0" + asset.content + b"\0")
        self._version = digest.hexdigest()[:DIGITS]
        self.folder: Final = f"/static/{self._version}"

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/static/<version>/<name>", {"GET": Operation(self.file, Authentication.IGNORED)})
        ]

    async def file(self, exchange: Exchange) -> Response:
        """Return a file; under another version's path it must not be cached.

        Only files are compressed: the length of a compressed page would reveal its secrets to an
        attacker who can make it contain guesses (H-207).
        """
        asset = self._files.get(exchange.argument("name"))
        if asset is None:
            raise NotFoundError("There is nothing under this path.")
        current = exchange.argument("version") == self._version
        cache = IMMUTABLE if current else None
        if asset.packed is None:
            return Response(asset.content, content_type=asset.kind, cache=cache)
        vary = ("Vary", "Accept-Encoding")
        if not takes_gzip(exchange.request.headers.get("Accept-Encoding", "")):
            return Response(asset.content, content_type=asset.kind, headers=(vary,), cache=cache)
        headers = (vary, ("Content-Encoding", "gzip"))
        return Response(asset.packed, content_type=asset.kind, headers=headers, cache=cache)


HOME: Final = "/app"
FIND: Final = "/app/find"
MAX_PATH_CHARACTERS: Final = 2048
# One slash, not followed by a slash or backslash; printable ASCII, which browsers keep unchanged.
_LOCAL: Final = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*")


def local_path(text: str | None) -> str:
    """Return `text` if it is a path of this site, else the path of the page after a sign-in.

    Schemes and hosts (`//x`), their look-alikes in browsers (`/\\x`, tabs and line breaks inside)
    and texts longer than 2,048 characters are not paths of this site.
    """
    if text and len(text) <= MAX_PATH_CHARACTERS and _LOCAL.fullmatch(text):
        return text
    return HOME


def sign_in_path(target: str, *, ended: bool = False) -> str:
    """Return the path of the sign-in page that continues to `target`.

    `ended`: the page states that a session has ended.
    """
    following = [] if local_path(target) == HOME else [f"next={quote(target, safe='/')}"]
    query = "&".join([*following, *(["ended=1"] if ended else [])])
    return f"/login?{query}" if query else "/login"


ASSETS_HEADER: Final = "X-FW-Assets"
"""The folder of the assets with which a page, or a part of one, works (H-169)."""
HTML_KIND: Final = "text/html"
HTML: Final = f"{HTML_KIND}; charset=utf-8"
SEE_OTHER: Final = 303
TITLES: Final = ((NotFoundError, "Not found"), (PermissionDeniedError, "Not allowed"))


def accepts_pages(exchange: Exchange) -> bool:
    """Return whether the client accepts HTML, as browsers do."""
    return HTML_KIND in exchange.request.headers.get("Accept", "").lower()


class Rendering:
    """Renders templates; one for all pages of a site."""

    def __init__(self, settings: Settings, assets: Assets) -> None:
        self.assets: Final = assets
        self._scrubber = settings.scrubber
        self._environment = Environment(
            loader=DictLoader(_templates()),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals |= {
            "site": settings.name,
            "other_nodes_wait": settings.other_nodes_wait,
            "assets": assets.folder,
            "find": FIND,
            "csrf_header": CSRF_HEADER,
            "most_searched": MAX_SEARCHED_ROWS,
        }

    def page(self, template: str, /, status: int = 200, **context: Any) -> Response:
        """Return a page; `context` are the template's variables."""
        text = self._environment.get_template(template).render(context)
        return Response(text.encode(), status, HTML, ((ASSETS_HEADER, self.assets.folder),))

    def error_page(self, exchange: Exchange, error: FwError) -> Response:
        """Return an error as a page if the client accepts HTML, else as the envelope (H-154).

        A browser without a session is redirected to the sign-in page, and so is one that sends two
        cookies `sid`, since either may be the session's.
        """
        if isinstance(error, AuthenticationError) and exchange.request.method in ("GET", "HEAD"):
            return self._to_sign_in(exchange)
        if not accepts_pages(exchange):
            return error_response(error)
        if exchange.clears_cookies and exchange.request.method in ("GET", "HEAD"):
            return self._to_sign_in(exchange)
        return self._error_page("error.html", exchange, error)

    def framed_error_page(
        self, exchange: Exchange, error: FwError, frame: PageFrame, deleted: object
    ) -> Response:
        """Return an error as a page within the frame; `deleted` describes a document's deletion."""
        scrub = self._scrubber.scrub_unless_sent
        scrubbed = error.reworded(lambda text: scrub(text, exchange.sent_texts))
        request = exchange.request
        stale = isinstance(error, BadRequestError) and request.query_string  # of an old bookmark
        unfiltered = local_path(quote(request.path)) if stale else ""
        return self._error_page(
            "error_desk.html",
            exchange,
            scrubbed,
            frame=frame,
            deleted=deleted,
            unfiltered=unfiltered,
        )

    def _error_page(
        self, template: str, exchange: Exchange, error: FwError, **context: Any
    ) -> Response:
        title = next((t for kind, t in TITLES if isinstance(error, kind)), "The request failed")
        response = self.page(
            template,
            type(error).status,  # as in `error_response`
            title=title,
            message=error.message,
            request_id=exchange.request_id,
            **context,
        )
        headers = (*response.headers, *error.headers.items())
        return Response(response.body, response.status, HTML, headers)

    def _to_sign_in(self, exchange: Exchange) -> Response:
        """Redirect to sign in; clear a `sid` that has ended, so that it is not sent again."""
        request = exchange.request
        query = request.query_string.decode("latin-1")
        target = quote(request.path) + (f"?{query}" if query else "")
        response = redirect(sign_in_path(target, ended=exchange.sid is not None))
        if exchange.sid is None:
            return response
        cookie = ("Set-Cookie", clear_cookie(secure=exchange.cookie_is_secure))
        return Response(b"", response.status, HTML, (*response.headers, cookie))


def redirect(location: str) -> Response:
    """Redirect to another page of the site; `location` is a local path, percent-encoded."""
    return Response(b"", SEE_OTHER, HTML, (("Location", location),))
