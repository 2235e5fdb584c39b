"""`fw demo` as its user runs it (C-111)."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from fw_cli.demo_receiver import verifies

ROOT = str(Path(__file__).parents[2])
ENVIRON = {"COLUMNS": "80", "PATH": "/usr/bin:/bin", "PYTHONPATH": ROOT}


Kept = tuple[subprocess.Popen[str], Path]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """A demo with --keep and its temporary folder; it runs while the other test does."""
    with kept_demo(tmp_path_factory.mktemp("kept")) as demo:
        yield demo


def take_interrupts() -> None:
    """Undo what a test run in the background passes on: SIGINT is ignored there."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def kept_demo(folder: Path) -> Iterator[Kept]:
    environ = ENVIRON | {"TMPDIR": str(folder)}
    with subprocess.Popen(
        [sys.executable, "-m", "fw_cli", "demo", "--keep"], cwd=folder, stdout=subprocess.PIPE,
        text=True, env=environ, preexec_fn=take_interrupts,  # noqa: PLW1509
    ) as process:  # fmt: skip
        try:
            yield process, folder
        finally:
            process.kill()


@pytest.mark.usefixtures("kept")
def test_demo_prints_receivers_and_final_deliveries(tmp_path: Path) -> None:
    """Piped, it prints a line for each thing that happens, and the deliveries at the end."""
    done = subprocess.run(
        [sys.executable, "-m", "fw_cli", "demo"], cwd=tmp_path, capture_output=True, text=True,
        timeout=60, env=ENVIRON, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("failing receiver: answers 503") == 3
    assert done.stdout.count("healthy receiver: answers 204") == 1
    assert "SIGNATURE WRONG" not in done.stdout
    assert "attempt 4, after 1 s, 2 s, 4 s" in done.stdout
    heads = "Delivery                          Receiver   Status   Attempts   Next attempt"
    assert heads in done.stdout  # not folded
    assert list(tmp_path.iterdir()) == []  # nothing is left where it was started


def test_demo_receiver_rejects_wrong_signature() -> None:
    """The receiver's own check refuses what was not signed with its secret."""
    headers = {"webhook-id": "msg_1", "webhook-timestamp": "1", "webhook-signature": "v1,AAAA"}
    assert not verifies("whsec_c2VjcmV0", headers, b"{}")


def test_kept_demo_prints_credentials_and_ends_with_ctrl_c(
    kept: Kept,
) -> None:
    process, folder = kept
    assert process.stdout is not None
    output = next(line for line in process.stdout if line.startswith("The site runs at"))
    found = re.search(r"at (\S+): sign in as (\w+), with the password '(.+)'\.", output)
    assert found, output
    url, user, password = found.groups()
    credentials = {"usr": user, "pwd": password}
    answer = httpx.post(f"{url}/api/login", json=credentials, headers={"X-FW-CSRF": "1"})
    assert answer.status_code == 200
    assert list(folder.glob("fw-demo-*"))
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("pause", [0.0, 0.05], ids=["together", "one after the other"])
def test_kept_demo_deletes_its_folder_after_two_signals(tmp_path: Path, pause: float) -> None:
    """A second signal, while the service closes, neither hangs nor leaves the folder."""
    with kept_demo(tmp_path) as (process, folder):
        assert process.stdout is not None
        assert next((line for line in process.stdout if line.startswith("Ctrl+C ends")), None)
        assert list(folder.glob("fw-demo-*"))
        process.send_signal(signal.SIGINT)
        time.sleep(pause)
        process.send_signal(signal.SIGINT)
        # Two at once may count as one; the second may come after the deletion.
        assert process.wait(20) in (0, 1, -signal.SIGINT)
        assert list(folder.iterdir()) == []


def test_kept_demo_deletes_console_socket_after_two_signals_at_once(short_path: Path) -> None:
    """The socket is in a folder of its own, and the service has no time to remove it."""
    with kept_demo(short_path) as (process, folder):
        assert process.stdout is not None
        assert next((line for line in process.stdout if line.startswith("Ctrl+C ends")), None)
        assert list(folder.glob("fw-console-*"))
        process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        assert process.wait(20) in (-signal.SIGINT, -signal.SIGTERM)
        assert list(folder.iterdir()) == []


def test_demo_deletes_its_folder_after_a_signal_before_its_end(tmp_path: Path) -> None:
    with kept_demo(tmp_path) as (process, folder):
        assert process.stdout is not None
        assert next((line for line in process.stdout if "service ready" in line), None)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 1
        assert list(folder.iterdir()) == []
