"""A hundred parallel guesses at one name never cost more hashes than tries are allowed.

Parallel guesses never hash more than `maxLoginAttempts` (A-64): one statement decides a try
(A-63).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live_site import LiveSite

TRIES = 5


def guess_together(site: LiveSite, usr: str, processes: int) -> list[dict[str, Any]]:
    """Let `processes` make 100 guesses between them, all at once; what each of them tells."""
    command = [sys.executable, "-P", "-m", "tests.security.guesser", usr, str(100 // processes)]
    started = [
        subprocess.Popen(
            command, cwd=site.folder, env=site.environ(), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )
        for _ in range(processes)
    ]  # fmt: skip
    told = []
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in started:
        out, _ = process.communicate(timeout=50)
        assert process.returncode == 0
        told.append(json.loads(out))
    return told


@pytest.mark.usefixtures("on_both_stores")
@pytest.mark.parametrize("processes", [1, 2])
def test_a_hundred_guesses_hash_no_more_than_the_limit(tmp_path: Path, processes: int) -> None:
    with LiveSite(tmp_path, apps=()) as site:
        site.add_manager()
        for usr in ("admin", "nobody-at-all"):
            told = guess_together(site, usr, processes)
            assert sum(each["hashes"] for each in told) == TRIES
            refusals = [each["refusals"] for each in told]
            assert sum(each.get("AuthenticationError", 0) for each in refusals) == TRIES - 1
            assert sum(each["TooManyRequestsError"] for each in refusals) == 100 - TRIES + 1
