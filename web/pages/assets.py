"""Style sheet, scripts and pictures of the pages: read once, served under a name of their own."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from fw_actors.errors import NotFoundError
from web.envelope import Answer
from web.exchange import Exchange
from web.operations import Operation, Path, Session

TYPES: Final = MappingProxyType(
    {
        "css": "text/css; charset=utf-8",
        "js": "text/javascript; charset=utf-8",
        "svg": "image/svg+xml; charset=utf-8",
    }
)
FOR_EVER: Final = "public, max-age=31536000, immutable"
DIGITS: Final = 16


@dataclass(frozen=True)
class Asset:
    """A file of the pages."""

    content: bytes
    kind: str


class Assets:
    """All static files, and the folder of this moment's versions: `/static/<digest of all>`.

    A path that changes with the content may be kept for ever by browsers. Scripts import each
    other by relative paths and so stay in one folder.
    """

    def __init__(self) -> None:
        self._files = {
            entry.name: Asset(entry.read_bytes(), TYPES[entry.name.rpartition(".")[2]])
            for entry in files(__package__).joinpath("static").iterdir()
            if entry.name.rpartition(".")[2] in TYPES
        }
        digest = sha256()
        for name, asset in sorted(self._files.items()):
            digest.update(name.encode() + b"\0" + asset.content + b"\0")
        self._version = digest.hexdigest()[:DIGITS]
        self.folder: Final = f"/static/{self._version}"

    def paths(self) -> list[Path]:
        """Return what is served."""
        return [Path("/static/<version>/<name>", {"GET": Operation(self.file, Session.IGNORED)})]

    async def file(self, exchange: Exchange) -> Answer:
        """Give a file; under another version's path it is not to be kept."""
        asset = self._files.get(exchange.argument("name"))
        if asset is None:
            raise NotFoundError("There is nothing under this path.")
        current = exchange.argument("version") == self._version
        return Answer(asset.content, content_type=asset.kind, cache=FOR_EVER if current else None)
