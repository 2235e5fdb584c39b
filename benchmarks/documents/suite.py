"""The rows of the suite `documents`."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import trio

from benchmarks.documents import bare, service
from benchmarks.rows import Comparison, Effort, Row

# A file system as a site would have it: on many machines /tmp is memory, where a commit is free.
_FOLDER: Final = Path(__file__).parents[2] / "build"
_CALLERS: Final = (1, 64)
_LISTED: Final = 100_000
_LISTS: Final = 200
_LISTS_A_SECOND: Final = 200.0  # 5 ms each


def rows(effort: Effort) -> Iterator[Row]:
    """Measure the suite."""
    _FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=_FOLDER) as folder:
        yield from _Suite(Path(folder), effort).rows()


class _Suite:
    def __init__(self, folder: Path, effort: Effort) -> None:
        self._effort = effort
        self._site, self._bare = folder / "site", folder / "bare"
        for each in (self._site, self._bare):
            each.mkdir()
        _on_site(self._site, service.furnish)
        # The same tables and indexes for both; and the rows that one document of ours leaves.
        _on_site(self._site, lambda site: service.insert(site, 1, 1))
        shutil.copy(self._site / "data/fw.db", self._bare / "fw.db")
        self._written = bare.rows_of(self._bare / "fw.db", service.WRITTEN)
        self._round = 0

    def rows(self) -> Iterator[Row]:
        """Measure, the quick ones first: the lists fill the site."""
        documents = self._effort.events
        for callers in _CALLERS:
            yield self._compare(
                f"inserts_{callers}",
                lambda site, n=callers: service.insert(site, documents, n),  # type: ignore[misc]
                partial(self._write_bare, documents, callers),
                "the same rows by bare sqlite3 in groups",
            )
        names = _on_site(self._site, service.names)[:documents]
        for callers in _CALLERS:
            yield self._compare(
                f"saves_{callers}",
                lambda site, n=callers: service.save(site, names, n),  # type: ignore[misc]
                partial(self._write_bare, documents, callers),
                "an insert's rows by bare sqlite3 in groups",
            )
        yield self._compare(
            "reads_64",
            lambda site: service.read(site, names, 64),
            lambda: bare.read(self._site / "data/fw.db", names, *service.WRITTEN[:2]),
            "bare select and JSON",
        )
        missing = _LISTED - len(_on_site(self._site, service.names))
        _on_site(self._site, lambda site: service.insert(site, max(0, missing), 64))
        yield self._compare(
            "lists_of_100000",
            lambda site: service.list_some(site, _LISTS),
            lambda: _LISTS_A_SECOND,
            "5 ms each",
        )

    def _compare(
        self,
        name: str,
        ours: Callable[[Any], Awaitable[float]],
        reference: Callable[[], float],
        reference_name: str,
    ) -> Row:
        return Comparison(
            suite="documents",
            name=name,
            unit="documents/s" if "lists" not in name else "lists/s",
            ours=lambda: float(_on_site(self._site, ours)),
            reference=reference,
            reference_name=reference_name,
        ).measure(self._effort)

    def _write_bare(self, documents: int, group: int) -> float:
        self._round += 1
        database = self._bare / f"{self._round}.db"
        shutil.copy(self._bare / "fw.db", database)
        rate = bare.write(database, self._written, documents, group)
        database.unlink()
        return rate


def _on_site(folder: Path, use: Callable[[Any], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with service.site_in(folder) as site:
            return await use(site)

    return trio.run(run)
