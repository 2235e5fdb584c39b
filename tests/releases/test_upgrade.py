"""A running site from an older build to this one, and back: wheels, pip, and real processes.

The older builds are the last release, and the newest commit whose store has an older schema, unless
the last release has one. The libraries are those of this environment, by a path, so that no index
is needed.
"""

from __future__ import annotations

import http.server
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from fw_actors.store.migrations import FIRST_VERSION, STEPS
from tests.installed_wheel import InstalledWheel, build_wheel, empty_environment, install

ROOT = Path(__file__).parents[2]
NEWEST = FIRST_VERSION + len(STEPS)
MIGRATIONS = "fw_actors/store/migrations.py"
RELEASED = re.compile(rb'^RELEASE: Final = "([^"]+)"$', re.MULTILINE)
STEP = re.compile(rb"\bStep\((\d+),|\bMigrationStep\((\d+),")


def git(*args: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else b""


@dataclass(frozen=True)
class OldBuild:
    """A commit, and the version that its build gets; `schema` is that of its store."""

    commit: str
    version: str
    schema: int


def old_builds() -> list[OldBuild]:
    """Return the builds that are upgraded from; none in a shallow clone, or without git."""
    builds = [old_build(tag) for tag in earlier_tags()[:1]]
    if all(build.schema == NEWEST for build in builds):
        commits = git("log", "--format=%H", "-n", "200", "--", MIGRATIONS).decode().split()
        older = (commit for commit in commits if 0 < schema_of(commit) < NEWEST)
        builds += [old_build(commit) for commit in islice(older, 1)]
    return builds


def earlier_tags() -> list[str]:
    """Return the tags of the releases before this commit, newest first."""
    here = git("tag", "--points-at", "HEAD").decode().split()
    tags = git("tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname")
    return [tag for tag in tags.decode().split() if tag not in here]


def schema_of(commit: str) -> int:
    steps = [int(a or b) for a, b in STEP.findall(git("show", f"{commit}:{MIGRATIONS}"))]
    return max(steps, default=0)


def old_build(commit: str) -> OldBuild:
    """Return the build of a commit or tag. Its version is that of `hatch_build.py` in a clone."""
    found = RELEASED.search(git("show", f"{commit}:fw_actors/version.py"))
    assert found is not None
    version = found[1].decode()
    if f"v{version}" not in git("tag", "--points-at", f"{commit}^0").decode().split():
        time = ("--date=format-local:%Y%m%d%H%M%S", "--format=%cd")
        version += ".dev" + git("log", "-1", *time, commit).decode().strip()
    return OldBuild(commit, version, schema_of(commit))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "old_build" in metafunc.fixturenames:
        metafunc.parametrize("old_build", old_builds(), ids=lambda build: build.version)


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Installed:
    """A virtual environment into which one wheel after another is installed, and a site."""

    def __init__(self, folder: Path) -> None:
        self.venv, self.site = folder / "venv", folder / "site"
        empty_environment(self.venv)

    def install(self, wheel: Path) -> None:
        """Install as the page on operating says, without a flag that forces anything."""
        install(wheel, self.venv)

    def process(self, *args: str) -> subprocess.CompletedProcess[str]:
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("FW_", "PYTHON"))}
        given = {"FW_BIND": "127.0.0.1:0", "FW_ARGON2": "8,1,1"}
        return subprocess.run(
            [str(self.venv / "bin" / "fw"), *args], cwd=self.site, env={**environ, **given},
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    def fw(self, *args: str) -> str:
        done = self.process(*args)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def eval(self, text: str) -> Any:
        return json.loads(self.fw("eval", "--commit", text))

    def deliveries(self) -> dict[str, str]:
        rows = json.loads(self.fw("webhooks", "list", "--json"))
        return {row["name"]: row["status"] for row in rows}

    def settled(self, delivery: str) -> str:
        """Its status once it is neither Queued nor Retrying."""
        end = time.monotonic() + 60
        while (status := self.deliveries()[delivery]) in ("Queued", "Retrying"):
            assert time.monotonic() < end, status
        return status


class UpgradeReceiver(http.server.BaseHTTPRequestHandler):
    ids: list[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.ids.append(self.headers["webhook-id"])
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def received() -> Iterator[tuple[str, list[str]]]:
    """The URL of a receiver, and the ids of what it gets."""
    ids: list[str] = []
    handler = type("Handler", (UpgradeReceiver,), {"ids": ids})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", ids
        server.shutdown()
        thread.join()


@pytest.fixture
def wheels(
    tmp_path: Path, installed_wheel: InstalledWheel, old_build: OldBuild
) -> tuple[Path, Path]:
    """The older build's and this one's."""
    archive = git("archive", old_build.commit)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(tmp_path / "older", filter="data")
    wheel = build_wheel(tmp_path / "older", tmp_path / "old", version=old_build.version)
    return wheel, installed_wheel.wheel


@pytest.mark.timeout(300)
def test_site_is_upgraded_and_restored_from_backup(
    wheels: tuple[Path, Path],
    old_build: OldBuild,
    received: tuple[str, list[str]],
    tmp_path: Path,
) -> None:
    """Each build replaces an older one; the store is migrated, old deliveries are replayed, an
    older program refuses the newer store, and the backup leads back (O-167, C-110)."""
    (old, new), (url, ids) = wheels, received
    site = Installed(tmp_path)
    site.install(old)
    site.site.mkdir()
    site.fw("init")
    webhook = (
        f'fw.new_doc("Webhook", event_type="Custom", custom_event="a", url={url!r},'
        ' secret="a secret of some length").insert().name'
    )
    assert site.eval(webhook)
    site.fw("start")
    before = site.fw("version")
    try:
        (first,) = site.eval('fw.webhooks.emit("a", {"n": 1})')["deliveries"]
        assert site.settled(first) == "Sent"
        site.fw("backup", "before.db")

        site.install(new)
        assert site.fw("version") != before
        site.fw("restart")
        assert site.deliveries() == {first: "Sent"}
        site.fw("webhooks", "replay", first)
        assert site.settled(first) == "Sent"
        assert ids == [first, first]
    finally:
        site.process("stop")

    site.install(old)
    listed = site.process("webhooks", "list")
    if old_build.schema < NEWEST:
        told = f"version {NEWEST} and this program knows {old_build.schema}"
        assert (listed.returncode, told in listed.stderr) == (1, True)
    else:
        assert listed.returncode == 0
    for name in ("fw.db-wal", "fw.db-shm"):
        (site.site / "data" / name).unlink(missing_ok=True)
    shutil.copy(site.site / "before.db", site.site / "data" / "fw.db")
    assert site.deliveries() == {first: "Sent"}
