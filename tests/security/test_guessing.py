"""A hundred parallel guesses at one name compute no more hashes than attempts are allowed.

Parallel guesses never hash more than `maxLoginAttempts` (A-64): one statement decides an attempt
(A-63).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.live_site import USUAL_HASH, LiveSite

TRIES = 5


@contextmanager
def guessers(site: LiveSite, processes: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Start `processes` that together make 100 guesses at each given name."""
    command = [sys.executable, "-P", "-m", "tests.security.guesser", str(100 // processes)]
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                subprocess.Popen(
                    command, cwd=site.folder, env=site.environ(), stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, text=True,
                )
            )
            for _ in range(processes)
        ]  # fmt: skip
        for process in started:
            assert _line_of(process) == "ready\n"
        yield started


def guess_together(started: list[subprocess.Popen[str]], usr: str) -> list[dict[str, Any]]:
    """Let all processes guess at a name at once; return the report of each."""
    for process in started:
        assert process.stdin is not None
        process.stdin.write(f"{usr}\n")
        process.stdin.flush()
    return [json.loads(_line_of(process)) for process in started]


def _line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.usefixtures("on_both_stores")
@pytest.mark.parametrize("processes", [1, 2])
def test_parallel_guesses_hash_at_most_limit(tmp_path: Path, processes: int) -> None:
    # The longer a hash takes, the more guesses wait for the first ones.
    with LiveSite(tmp_path, apps=(), argon2=USUAL_HASH) as site:
        site.add_manager()
        with guessers(site, processes) as started:
            for usr in ("admin", "nobody-at-all"):
                result = guess_together(started, usr)
                assert sum(each["hashes"] for each in result) == TRIES
                refusals = [each["refusals"] for each in result]
                assert sum(each.get("AuthenticationError", 0) for each in refusals) == TRIES - 1
                assert sum(each["TooManyRequestsError"] for each in refusals) == 100 - TRIES + 1
        assert [process.returncode for process in started] == [0] * processes
