"""`fw logs`: the last lines of the background service's log, and appended ones (C-174)."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fw_cli.conftest import CommandLine

LINE_BYTES = 40
MANY = 10_000  # more than a block


def written(fw: CommandLine, count: int) -> list[str]:
    """Write a log of so many lines; return them."""
    lines = [f"{number:06} " + "x" * LINE_BYTES for number in range(count)]
    log_of(fw).parent.mkdir(exist_ok=True)
    log_of(fw).write_text("".join(f"{line}\n" for line in lines))
    return lines


def log_of(fw: CommandLine) -> Path:
    return fw.folder / "data" / "serve.log"


@pytest.mark.parametrize("count", [1, 2, 50, MANY - 1, MANY, MANY + 1])
def test_logs_prints_last_lines(fw: CommandLine, count: int) -> None:
    lines = written(fw, MANY)
    assert fw.done("logs", "-n", str(count)).splitlines() == lines[-count:]


def test_logs_prints_fifty_lines_by_default(fw: CommandLine) -> None:
    lines = written(fw, MANY)
    assert fw.done("logs").splitlines() == lines[-50:]


@pytest.mark.parametrize("count", [1, 2, MANY])
def test_logs_counts_a_last_line_without_line_break(fw: CommandLine, count: int) -> None:
    """A service that is killed while it writes leaves one."""
    lines = [*written(fw, MANY), "unfinished"]
    with log_of(fw).open("a") as log:
        log.write("unfinished")
    assert fw.done("logs", "-n", str(count)).splitlines() == lines[-count:]


def test_logs_of_empty_file_prints_nothing(fw: CommandLine) -> None:
    written(fw, 0)
    assert fw.done("logs") == ""


def test_logs_without_file_names_expected_location(fw: CommandLine) -> None:
    output = fw.refused("logs")
    assert "no data/serve.log" in output
    assert "journalctl" in output


@pytest.mark.parametrize("lines", ["0", "100001", "many"])
def test_logs_refuses_number_out_of_range(fw: CommandLine, lines: str) -> None:
    assert fw.run("logs", "-n", lines).exit_code == 2


@contextmanager
def following(fw: CommandLine) -> Iterator[subprocess.Popen[str]]:
    process = fw.process("logs", "--lines", "1", "--follow")
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_logs_follow_prints_appended_lines_until_ctrl_c(fw: CommandLine) -> None:
    last = written(fw, 3)[-1]
    with following(fw) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{last}\n"
        with log_of(fw).open("a") as log:
            log.write("appended\n")
        assert process.stdout.readline() == "appended\n"
        process.send_signal(signal.SIGINT)
        _, output = process.communicate(timeout=60)
        assert (process.returncode, output) == (0, "")


@pytest.mark.parametrize("rotated", ["truncated", "replaced"])
def test_logs_follow_continues_in_rotated_file(fw: CommandLine, rotated: str) -> None:
    last = written(fw, 3)[-1]
    with following(fw) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{last}\n"
        if rotated == "replaced":
            log_of(fw).rename(fw.folder / "data" / "serve.log.1")
        log_of(fw).write_text("new\n")
        assert process.stdout.readline() == "new\n"
