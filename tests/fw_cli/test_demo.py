"""`fw demo` as its user runs it (C-111)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fw_cli.demo_receiver import verifies


def test_the_demo_shows_both_receivers_and_ends_with_everything_sent(tmp_path: Path) -> None:
    """Piped, it prints a line for each thing that happens, and the deliveries at the end."""
    done = subprocess.run(
        [sys.executable, "-m", "fw_cli", "demo"], cwd=tmp_path, capture_output=True, text=True,
        timeout=60, env={"COLUMNS": "80", "PATH": "/usr/bin:/bin"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("failing receiver: answers 503") == 3
    assert done.stdout.count("healthy receiver: answers 204") == 1
    assert "SIGNATURE WRONG" not in done.stdout
    assert "attempt 4, after 1 s, 2 s, 4 s" in done.stdout
    heads = "Delivery                          Receiver   Status   Attempts   Next attempt"
    assert heads in done.stdout  # not folded
    assert list(tmp_path.iterdir()) == []  # nothing is left where it was started


def test_a_wrong_signature_would_be_seen() -> None:
    """The receiver's own check refuses what was not signed with its secret."""
    headers = {"webhook-id": "msg_1", "webhook-timestamp": "1", "webhook-signature": "v1,AAAA"}
    assert not verifies("whsec_c2VjcmV0", headers, b"{}")
