"""The rows of the suite `documents`."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import trio

from benchmarks.documents import bare, service
from benchmarks.rows import BenchmarkRow, Comparison, Effort

# A file system as a site would have it: on many machines /tmp is memory, where a commit is free.
_FOLDER: Final = Path(__file__).parents[2] / "build"
_CALLERS: Final = (1, 64)
_LISTED: Final = 100_000
_LISTS: Final = 200
_LISTS_A_SECOND: Final = 200.0  # 5 ms each
_WRITTEN: Final = "the same rows by bare sqlite3, a commit for as many"


def rows(effort: Effort) -> Iterator[BenchmarkRow]:
    """Measure the suite."""
    _FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=_FOLDER) as folder:
        yield from _Suite(Path(folder), effort).rows()


class _Suite:
    """Sites in folders: `empty` has no orders, `full` has some; rounds work on copies."""

    def __init__(self, folder: Path, effort: Effort) -> None:
        self._effort = effort
        self._empty, self._full = folder / "empty", folder / "full"
        self._ours, self._theirs = folder / "ours", folder / "theirs"
        self._empty.mkdir()
        _on_site(self._empty, service.add_records)
        shutil.copytree(self._empty, self._full)
        _on_site(self._full, lambda site: service.insert(site, effort.events, 64))

    def rows(self) -> Iterator[BenchmarkRow]:
        """Measure, the lists last: they fill the site."""
        events = self._effort.events
        names = _on_site(self._full, service.names)
        for callers in _CALLERS:
            yield self._writes(
                f"inserts_{callers}",
                self._empty,
                callers,
                lambda site, n=callers: service.insert(site, events, n),  # type: ignore[misc]
                lambda: bare.inserts(_database(self._ours)),
            )
            yield self._writes(
                f"saves_{callers}",
                self._full,
                callers,
                lambda site, n=callers: service.save(site, names, n),  # type: ignore[misc]
                lambda: bare.saves(_database(self._ours), _database(self._full)),
            )
        yield self._compare(
            "reads_64",
            lambda: float(_on_site(self._full, lambda site: service.read(site, names, 64))),
            lambda: bare.read(_database(self._full), names),
            "bare select and JSON",
        )
        missing = max(0, _LISTED - events)
        _on_site(self._full, lambda site: service.insert(site, missing, 64))
        yield self._compare(
            "lists_of_100000",
            lambda: float(_on_site(self._full, lambda site: service.list_some(site, _LISTS))),
            lambda: _LISTS_A_SECOND,
            "5 ms each",
        )

    def _writes(
        self,
        name: str,
        begin: Path,
        callers: int,
        write: Callable[[Any], Awaitable[float]],
        written: Callable[[], Sequence[Sequence[bare.Write]]],
    ) -> BenchmarkRow:
        """Ours on a copy of `begin`; then what it wrote, by the reference on another copy."""

        def ours() -> float:
            _copy(begin, self._ours)
            return float(_on_site(self._ours, write))

        def theirs() -> float:
            _copy(begin, self._theirs)
            return bare.write(_database(self._theirs), written(), callers)

        return self._compare(name, ours, theirs, _WRITTEN)

    def _compare(
        self,
        name: str,
        ours: Callable[[], float],
        reference: Callable[[], float],
        reference_name: str,
    ) -> BenchmarkRow:
        unit = "lists/s" if name.startswith("lists") else "documents/s"
        return Comparison("documents", name, unit, ours, reference, reference_name).measure(
            self._effort
        )


def _database(folder: Path) -> Path:
    return folder / "data" / "fw.db"


def _copy(folder: Path, to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)


def _on_site(folder: Path, use: Callable[[Any], Awaitable[Any]]) -> Any:
    return trio.run(partial(_use_site, folder, use))


async def _use_site(folder: Path, use: Callable[[Any], Awaitable[Any]]) -> Any:
    async with service.site_in(folder) as site:
        return await use(site)
