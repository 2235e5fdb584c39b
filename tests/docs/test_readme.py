"""The first event of README, as it stands there: a receiver in one terminal, curl in another."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live_site import PASSWORD, LiveSite, eventually
from tests.nginx import free_port

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = 60.0


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def in_a_terminal(script: str, port: int) -> Iterator[subprocess.Popen[str]]:
    """Run a script that listens at `port` until it is interrupted."""
    process = subprocess.Popen(
        ["bash", "-c", script], env={**os.environ, "PYTHONUNBUFFERED": "1"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        eventually(lambda: answers(port))
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.timeout(240)
def test_readme_first_event_reaches_its_receiver(tmp_path: Path) -> None:
    _, receiver, event, *_ = BLOCK.findall(README)
    port = free_port()
    with LiveSite(tmp_path) as site:
        site.add_manager()
        site.start()
        assert "127.0.0.1:8000" in event
        assert "your password" in event
        for shown, here in (
            ("http://127.0.0.1:8000", site.url),
            ("127.0.0.1:9000", f"127.0.0.1:{port}"),
            ("your password", PASSWORD),
            ("scripts/fw", f"{sys.executable} -P -m fw_cli"),
        ):
            event = event.replace(shown, here)
        with in_a_terminal(receiver.replace("9000", str(port)), port) as terminal:
            done = subprocess.run(
                ["bash", "-c", f"set -eu\n{event}"], cwd=tmp_path, env=site.environ(),
                capture_output=True, text=True, timeout=SECONDS, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            assert "doc.on_insert" in done.stdout
            assert terminal.stdout is not None
            arrived = terminal.stdout.readline().split(" ", 2)
        assert arrived[0] in done.stdout
        assert arrived[1].startswith("v1,")
        assert '"title":"Hello"' in arrived[2]
        assert site.end() == 0
