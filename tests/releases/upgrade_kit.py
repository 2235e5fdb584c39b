"""Older builds, and sites that run one build after another: wheels, pip, and real processes.

The older builds are the last release, and the newest commit whose store has an older schema, unless
the last release has one. A clone without tags finds the last release by the subject of its commit.
The libraries are those of this environment, by a path, so that no index is needed.
"""

from __future__ import annotations

import http.server
import io
import json
import os
import re
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from fw_actors.store.migrations import FIRST_VERSION, STEPS
from supervisors.service import site_files
from supervisors.service.site_files import SitePaths
from tests.installed_wheel import build_wheel, empty_environment, install

ROOT: Final = Path(__file__).parents[2]
ALL_BUILDS: Final = bool(os.environ.get("ALL_BUILDS"))
"""Whether each test is run with each build and store, as every night."""
NEWEST: Final = FIRST_VERSION + len(STEPS)
MIGRATIONS: Final = "fw_actors/store/migrations.py"
RELEASED: Final = re.compile(rb'^RELEASE: Final = "([^"]+)"$', re.MULTILINE)
STEP: Final = re.compile(rb"\bStep\((\d+),|\bMigrationStep\((\d+),")


def git(*args: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else b""


@dataclass(frozen=True)
class OldBuild:
    """A commit, and the version that its build gets; `schema` is that of its store."""

    commit: str
    version: str
    schema: int

    def wheel(self, folder: Path) -> Path:
        """Build its wheel in a folder."""
        with tarfile.open(fileobj=io.BytesIO(git("archive", self.commit))) as files:
            files.extractall(folder / "sources", filter="data")
        return build_wheel(folder / "sources", folder / "wheel", version=self.version)


def old_builds() -> list[OldBuild]:
    """Return the builds that are upgraded from; none in a shallow clone, or without git."""
    builds = [old_build(commit) for commit in released()[:1]]
    if all(build.schema == NEWEST for build in builds):
        commits = git("log", "--format=%H", "-n", "200", "--", MIGRATIONS).decode().split()
        older = (commit for commit in commits if 0 < schema_of(commit) < NEWEST)
        builds += [old_build(commit) for commit in islice(older, 1)]
    return builds


def released() -> list[str]:
    """Return the releases before this commit, newest first: tags, or commits of a clone without."""
    here = git("tag", "--points-at", "HEAD").decode().split()
    tags = git("tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname")
    if tags:
        return [tag for tag in tags.decode().split() if tag not in here]
    subject = ("--extended-regexp", r"--grep=^Release [0-9]+\.[0-9]+\.[0-9]+$")
    return git("log", "--format=%H", *subject, "HEAD^").decode().split()


def schema_of(commit: str) -> int:
    steps = [int(a or b) for a, b in STEP.findall(git("show", f"{commit}:{MIGRATIONS}"))]
    return max(steps, default=0)


def old_build(commit: str) -> OldBuild:
    """Return the build of a commit or tag. Its version is that of `hatch_build.py` in a clone."""
    present = git("ls-tree", "--name-only", commit, "fw_actors/").decode().split()
    module = "version.py" if "fw_actors/version.py" in present else "__init__.py"  # since 0.3.0
    found = RELEASED.search(git("show", f"{commit}:fw_actors/{module}"))
    assert found is not None
    version = found[1].decode()
    is_release = git("log", "-1", "--format=%s", commit).decode().strip() == f"Release {version}"
    tags = git("tag", "--points-at", f"{commit}^0").decode().split()
    if not is_release and f"v{version}" not in tags:
        time = ("--date=format-local:%Y%m%d%H%M%S", "--format=%cd")
        version += ".dev" + git("log", "-1", *time, commit).decode().strip()
    return OldBuild(commit, version, schema_of(commit))


class Installed:
    """A virtual environment into which one wheel after another is installed, and a site."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.venv, self.site = folder / "venv", folder / "site"
        empty_environment(self.venv)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("FW_", "PYTHON"))}
        given = {"FW_BIND": "127.0.0.1:0", "FW_ARGON2": "8,1,1"}
        self.environ: Mapping[str, str] = {**kept, **given, **environ}

    def install(self, wheel: Path) -> None:
        """Install as the page on operating says, without a flag that forces anything."""
        install(wheel, self.venv)

    @property
    def packages(self) -> Path:
        """The folder into which wheels are installed."""
        (found,) = self.venv.glob("lib/python*/site-packages")
        return found

    def prepare(self, apps: Mapping[str, str], **ops: object) -> None:
        """Make the site, with apps by name and source, instead of `fw init`."""
        self.site.mkdir()
        for name, source in apps.items():
            (self.site / f"{name}.py").write_text(source)
        policy = {"site": {"name": "upgraded"}, "ops": ops, "apps": list(apps)}
        (self.site / "fw.json").write_text(json.dumps(policy))

    def process(
        self, *args: str, stdin: str = "", **environ: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.venv / "bin" / "fw"), *args], cwd=self.site, env={**self.environ, **environ},
            input=stdin, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    def fw(self, *args: str, stdin: str = "", **environ: str) -> str:
        done = self.process(*args, stdin=stdin, **environ)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def eval(self, text: str) -> Any:
        return json.loads(self.fw("eval", "--commit", text))

    def start(self, **environ: str) -> str:
        """Start the service; return its URL."""
        self.fw("start", **environ)
        record = site_files.read(SitePaths(self.site).pid)
        assert record is not None
        assert record.url is not None
        return record.url

    def log(self) -> str:
        """The text of the service's log."""
        return SitePaths(self.site).log.read_text()

    def deliveries(self) -> dict[str, str]:
        rows = json.loads(self.fw("webhooks", "list", "--json"))
        return {row["name"]: row["status"] for row in rows}

    def settled(self, delivery: str) -> str:
        """Its status once it is neither Queued nor Retrying."""
        end = time.monotonic() + 60
        while (status := self.deliveries()[delivery]) in ("Queued", "Retrying"):
            assert time.monotonic() < end, status
        return status


@dataclass(frozen=True)
class UpgradePost:
    """A POST that a receiver got: its path, the id of its event, and its body."""

    path: str
    event: str
    body: Any


class UpgradeReceiver:
    """A receiver in threads of its own: 204, but for paths in `failing` 500, and no answer for
    those in `hanging` until the receiver ends."""

    def __init__(self) -> None:
        self.got: list[UpgradePost] = []
        self.failing: set[str] = set()
        self.hanging: set[str] = set()
        self.url = ""
        self.over = threading.Event()

    @property
    def ids(self) -> list[str]:
        """The ids of the events it got."""
        return [post.event for post in self.got]

    def until(self, path: str, count: int) -> None:
        """Wait until that many POSTs have reached a path."""
        end = time.monotonic() + 60
        while sum(post.path == path for post in list(self.got)) < count:
            assert time.monotonic() < end, self.got
            time.sleep(0.02)


@contextmanager
def upgrade_receiver() -> Iterator[UpgradeReceiver]:
    """Run a receiver."""
    receiver = UpgradeReceiver()

    class UpgradePostHandler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            receiver.got.append(UpgradePost(self.path, self.headers["webhook-id"], body))
            if self.path in receiver.hanging:
                receiver.over.wait()
            self.send_response(500 if self.path in receiver.failing else 204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), UpgradePostHandler) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a killed sender
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield receiver
        receiver.over.set()
        server.shutdown()
        thread.join()
