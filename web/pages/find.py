"""The search of the desk: by id, which leads to the page, and by text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from fw_actors.documents.doctype import Meta
from fw_actors.documents.naming import NAME_CHARACTERS
from fw_actors.documents.query import DEFAULT_ORDER, MAX_PATTERN_CHARACTERS, Query
from web.pages.listing import SEARCH, containing, searchable, visible_fields
from web.pages.rendering import document_path, list_path
from web.pages.wording import titles_of

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

MAX_HITS_PER_DOCTYPE: Final = 5
"""The number of documents shown per DocType; the list has the others."""
MAX_SEARCHED_DOCUMENTS: Final = 100_000
"""The number of newest documents of a DocType that a text is searched in; its list searches all.

All DocTypes are searched in one read, which would otherwise exceed its time limit on a large site
and find nothing.
"""
_MAX_HITS_PER_REQUEST: Final = 20
_TITLES: Final = ("url", "event", "action", "method", "docname")
"""Fields shown as the title of documents of built-in DocTypes without one."""
# Each character may be escaped, between two `%`.
_MAX_TEXT_CHARACTERS: Final = MAX_PATTERN_CHARACTERS // 2 - 1
_OF_REQUESTS: Final = ("Error Log", "Audit Event", "Version")


@dataclass(frozen=True)
class Hit:
    """A found document, with its path and title."""

    doctype: str
    name: str
    label: str
    path: str


@dataclass(frozen=True)
class HitsOfDocType:
    """The first hits of a DocType; `all_path` is the path of all hits, empty if these are all.

    `newest_only`: the newest `MAX_SEARCHED_DOCUMENTS` documents were searched, and there are
    others.
    """

    doctype: str
    hits: tuple[Hit, ...]
    all_path: str
    newest_only: bool = False


@dataclass(frozen=True)
class SearchHits:
    """The hits of a search: documents with the id, and documents with the text."""

    exact: tuple[Hit, ...]
    groups: tuple[HitsOfDocType, ...]

    @property
    def has_hits(self) -> bool:
        """Whether any document was found."""
        return bool(self.exact) or any(group.hits for group in self.groups)

    @property
    def only(self) -> Hit | None:
        """The single document with the typed id, if any."""
        return self.exact[0] if len(self.exact) == 1 else None


def find(fw: Fw, text: str) -> SearchHits:
    """Return the matches for this id, or else for this text, that the user may see (H-201)."""
    text = text.strip()[:_MAX_TEXT_CHARACTERS]
    if not text:
        return SearchHits((), ())
    metas = [meta for meta in fw.documents.registry.metas.values() if _is_listed(fw, meta)]
    metas.sort(key=lambda meta: meta.name)
    exact = tuple(_exact(fw, metas, text)) if len(text) <= NAME_CHARACTERS else ()
    if len(exact) == 1:
        return SearchHits(exact, ())
    # Read-only records may be millions and are found only by id; their lists search the newest
    # ones.
    groups = (_containing(fw, meta, text) for meta in metas if not meta.read_only)
    return SearchHits(exact, tuple(group for group in groups if group.hits or group.newest_only))


def _is_listed(fw: Fw, meta: Meta) -> bool:
    if meta.child or fw.rights.excludes(meta):
        return False
    return fw.rights.allows(meta, "list") and fw.rights.allows(meta, "read")


def _exact(fw: Fw, metas: list[Meta], text: str) -> Iterator[Hit]:
    for meta in metas:
        yield from _hits(fw, meta, [["name", "=", text]], 1)
    for meta in metas:
        if meta.name in _OF_REQUESTS:
            yield from _hits(fw, meta, [["request_id", "=", text]], _MAX_HITS_PER_REQUEST)


def _containing(fw: Fw, meta: Meta, text: str) -> HitsOfDocType:
    filters = containing(text, searchable(meta, visible_fields(fw, meta)))
    query = Query(fw, meta, [], ignore_permissions=False)
    newest_only = query.count(MAX_SEARCHED_DOCUMENTS + 1) > MAX_SEARCHED_DOCUMENTS
    if newest_only:
        fields = ["name", *_titles(fw, meta)]
        query.narrow(MAX_SEARCHED_DOCUMENTS, filters, fields)
        rows, _ = query.page(
            fields,
            DEFAULT_ORDER,
            limit=MAX_HITS_PER_DOCTYPE + 1,
            start=0,
            max_count=MAX_HITS_PER_DOCTYPE + 1,
        )
        hits = tuple(_hit(meta, row) for row in rows)
    else:
        hits = tuple(_hits(fw, meta, filters, MAX_HITS_PER_DOCTYPE + 1))
    there_may_be_more = newest_only or len(hits) > MAX_HITS_PER_DOCTYPE
    path = f"{list_path(meta.name)}?{urlencode({SEARCH: text})}" if there_may_be_more else ""
    return HitsOfDocType(meta.name, hits[:MAX_HITS_PER_DOCTYPE], path, newest_only)


def _hits(fw: Fw, meta: Meta, filters: list[list[Any]], limit: int) -> Iterator[Hit]:
    for row in fw.get_list(meta.name, filters, ["name", *_titles(fw, meta)], limit=limit):
        yield _hit(meta, row)


def _titles(fw: Fw, meta: Meta) -> list[str]:
    """Return the fields that may be shown as the title, the best first."""
    visible = visible_fields(fw, meta)
    return [name for name in (*titles_of(meta), *_TITLES) if name in visible]


def _hit(meta: Meta, row: dict[str, Any]) -> Hit:
    titles = (value for field, value in row.items() if field != "name")
    label = next((str(title) for title in titles if title), row["name"])
    return Hit(meta.name, row["name"], label, document_path(meta.name, row["name"]))
