"""kill -9 of `fw vault rekey`: docs/operating.md, Rotate FW_SECRET_KEY.

Each round kills it at the first visible effect, at any of its steps; the invariants hold at any
moment.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.commands import run_command
from tests.fork_server import ForkedProcess, fork_fw
from tests.live_site import LiveSite
from tests.site_kit import database_of

pytestmark = pytest.mark.usefixtures("on_both_stores")

VALUES = 450  # three batches
FIRST = "the key that all began with, long enough"
FILL = f"""
for number in range({VALUES}):
    fw.new_doc("Notebook", title=f"book {{number}}", shelf_token=f"token {{number}}").insert()
"""
COUNT = (
    "sum(fw.get_doc('Notebook', f'book {n}').vault('shelf_token') == f'token {n}'"
    f" for n in range({VALUES}))"
)
SEALED = "SELECT shelf_token FROM doc_notebook"
ROTATION = "SELECT value FROM fw_meta WHERE key = 'vault_rotation'"


class RekeyedSite:
    """A site with its own secret.key, observed from outside."""

    def __init__(self, live: LiveSite) -> None:
        self.live, self.folder = live, live.folder
        self._server: psycopg.Connection[Any] | None = None
        self.key.write_text(FIRST)
        self.key.chmod(0o600)
        (self.folder / "fill.py").write_text(FILL)
        self.done("exec", str(self.folder / "fill.py"), "--commit")

    @property
    def key(self) -> Path:
        return self.folder / "secret.key"

    @property
    def next(self) -> Path:
        return self.folder / "secret.key.new"

    @property
    def kept(self) -> Path:
        return self.folder / "secret.key.old"

    def begin(self, *args: str) -> ForkedProcess:
        """Begin a command as a process, which can be killed."""
        return fork_fw(*args, folder=self.folder, environ=self.environ)

    @property
    def environ(self) -> dict[str, str]:
        """The environment without a key, so that secret.key has it."""
        environ = self.live.environ()
        del environ["FW_SECRET_KEY"]
        return environ

    def done(self, *args: str) -> str:
        """Run a command in this process; return what it printed."""
        result = run_command(self.folder, self.environ, *args)
        assert result.exit_code == 0, result.output
        return result.stdout

    def refused(self, *args: str) -> str:
        """Run a command in this process that has to fail; return why."""
        result = run_command(self.folder, self.environ, *args)
        assert result.exit_code != 0
        return result.stderr

    def close(self) -> None:
        """Close the connection for polls."""
        if self._server is not None:
            self._server.close()

    def keys(self) -> set[str]:
        """The names of all files that hold a key."""
        return {file.name for file in self.folder.glob("*secret.key*")}

    def rows(self, query: str) -> list[Any]:
        url = database_of(self.folder)
        if not url.startswith("sqlite"):
            if self._server is None:  # kept, since the store is polled each millisecond
                self._server = psycopg.connect(url, autocommit=True)
            return self._server.execute(query.encode()).fetchall()
        with closing(sqlite3.connect(self.folder / "data" / "fw.db", timeout=30)) as file:
            return file.execute(query).fetchall()

    def rotation(self) -> dict[str, Any]:
        found = self.rows(ROTATION)
        return json.loads(found[0][0]) if found else {}

    def under(self) -> dict[str, int]:
        """Return the number of values under each key, by its id."""
        found: dict[str, int] = {}
        for (sealed,) in self.rows(SEALED):
            key_id = sealed.split(":")[1]
            found[key_id] = found.get(key_id, 0) + 1
        return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[RekeyedSite]:
    with LiveSite(tmp_path) as live, closing(RekeyedSite(live)) as site:
        yield site


SEEN: dict[str, Callable[[RekeyedSite, str], bool]] = {
    "the new key is there": lambda site, first: site.next.exists(),
    "some values are moved": lambda site, first: site.under().get(first, 0) < VALUES,
    "all are moved": lambda site, first: site.rotation().get("done", False),
    "the old key is kept": lambda site, first: site.kept.exists(),
}


@pytest.mark.parametrize("seen", SEEN)
def test_rekey_kill_loses_no_value_and_no_key(site: RekeyedSite, seen: str) -> None:
    [first] = site.under()
    kill_when(site, lambda: SEEN[seen](site, first))
    assert FIRST in {file.read_text().strip() for file in (site.key, site.kept) if file.exists()}
    under, rotation = site.under(), site.rotation()
    assert sum(under.values()) == VALUES
    moved = site.key.read_text().strip() != FIRST
    if rotation and not moved:
        with_the_old = site.refused("eval", COUNT)
        words = "moved to another" if rotation["done"] else "being moved to another"
        assert words in with_the_old
        assert rotation["before"] == first
        assert set(under) <= {first, rotation["after"]}
        if rotation["done"]:
            assert under == {rotation["after"]: VALUES}
    else:
        assert json.loads(site.done("eval", COUNT)) == VALUES
    if not moved:
        site.done("vault", "rekey", "--no-backup")
    assert json.loads(site.done("eval", COUNT)) == VALUES
    assert first not in site.under()
    assert site.kept.read_text().strip() == FIRST
    assert site.keys() == {"secret.key", "secret.key.old"}


def kill_when(site: RekeyedSite, seen: Callable[[], bool]) -> None:
    process = site.begin("vault", "rekey", "--no-backup")
    while process.poll() is None and not seen():
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait(30)
