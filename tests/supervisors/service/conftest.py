"""A site's folder, and processes in it that are gone when the test ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from supervisors.service import site_files
from supervisors.service.site_files import SitePaths

SCRIPT = Path(__file__).with_name("fake_service.py")


@dataclass
class FakeServices:
    """Starts fake services on one folder."""

    paths: SitePaths
    _processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def command(self, behaviour: str = "obeys") -> list[str]:
        return [sys.executable, "-P", str(SCRIPT), str(self.paths.folder), behaviour]

    def begin(self, behaviour: str = "obeys", **environ: str) -> subprocess.Popen[str]:
        """Start one, without waiting for anything."""
        process = subprocess.Popen(
            self.command(behaviour),
            env={**os.environ, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process

    def ready(self, behaviour: str = "obeys", **environ: str) -> subprocess.Popen[str]:
        """Start one, and wait until it reports that it is ready."""
        process = self.begin(behaviour, **environ)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready http://127.0.0.1:1\n"
        return process

    def starting(self) -> subprocess.Popen[str]:
        """Start one that never gets ready, and wait until it has the lock and its pid file."""
        process = self.begin("never ready")
        while (said := site_files.read(self.paths.pid)) is None or said.pid != process.pid:
            assert process.poll() is None
            select.select([], [], [], 0.01)
        return process

    def end_all(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        said = site_files.read(self.paths.pid)
        if said is not None and said.pid != os.getpid():  # one in the background, left by a failure
            with contextlib.suppress(ProcessLookupError):
                os.kill(said.pid, signal.SIGKILL)


@pytest.fixture
def paths(tmp_path: Path) -> SitePaths:
    made = SitePaths(tmp_path)
    made.prepare()
    return made


@pytest.fixture
def fakes(paths: SitePaths) -> Iterator[FakeServices]:
    made = FakeServices(paths)
    yield made
    made.end_all()
