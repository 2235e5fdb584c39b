"""What stands around every page of who is signed in: who that is, and where one may go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from web.pages.wording import DOCUMENTS, GROUPS, described, group_of

if TYPE_CHECKING:
    from fw_actors.documents.doctype import Meta
    from fw_actors.documents.handle import Fw


@dataclass(frozen=True)
class Place:
    """A DocType that one may list."""

    name: str
    path: str
    about: str


@dataclass(frozen=True)
class Shell:
    """The frame of a page: the signed-in user, the places by group, and which one this is."""

    user: str
    places: Mapping[str, tuple[Place, ...]]
    here: str
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


def shell(fw: Fw, here: str) -> Shell:
    """Return the frame for the handle's user; `here` is the DocType or page that is shown."""
    groups: dict[str, list[Place]] = {DOCUMENTS: [], **{group: [] for group in GROUPS}}
    for meta in sorted(fw.documents.registry.metas.values(), key=_order):
        if not meta.child and not fw.rights.shut_out(meta) and fw.rights.allows(meta, "list"):
            place = Place(meta.name, list_path(meta.name), described(meta))
            groups[group_of(meta.name)].append(place)
    places = {group: tuple(found) for group, found in groups.items() if found}
    return Shell(fw.user, places, here, fw.rights.administers)


def _order(meta: Meta) -> tuple[int, str]:
    """The built-in ones in the order of their group, an app's by name."""
    known = GROUPS.get(group_of(meta.name), ())
    return (known.index(meta.name) if meta.name in known else 0, meta.name)
