"""Failures say their reason: in errors, snapshots and the log."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import trio

import fw_actors.runtime
import supervisors
from fw_actors.runtime import (
    ActorFailed,
    KeyedPool,
    PendingReply,
    Request,
    Runtime,
    SeededEntropy,
    SilentLog,
    StderrLog,
    TrioClock,
    handles,
    open_runtime,
)
from fw_actors.runtime.testing import LogBook
from tests.fw_actors.runtime.sample_actors import (
    AddNumber,
    Break,
    SampleActor,
)

ROOT = Path(__file__).parents[3]


class Both(Request[int], frozen=True):
    """Fails with two errors at once."""


class Leave(Request[int], frozen=True):
    """Ends the program."""


class Failing(SampleActor):
    @handles(Both)
    async def both(self, message: Both) -> int:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._raise, ValueError("one"))
            nursery.start_soon(self._raise, KeyError("two"))
        return 1

    async def _raise(self, error: Exception) -> None:
        raise error

    @handles(Leave)
    def leave(self, message: Leave) -> int:
        sys.exit(3)


async def test_nursery_failure_is_described_by_its_errors(runtime: Runtime, log: LogBook) -> None:
    """R-84."""
    pool = KeyedPool(runtime, "p", lambda key: Failing())
    with pytest.raises(ActorFailed) as raised:
        await pool["k"].ask(Both(), deadline=1.0)
    texts = {"ValueError: one", "KeyError: 'two'"}
    assert set(raised.value.error.split("; ")) == texts
    assert runtime.snapshot().tree[0].last_error == raised.value.error
    assert log.named("actor_failed")[0]["error"] == raised.value.error
    await pool.close()


@pytest.mark.parametrize("kept", [False, True])
async def test_failure_is_chained_for_askers(runtime: Runtime, kept: bool) -> None:
    """R-84: of the request that failed, and of one whose reply was kept."""

    class KeepingFailure(Failing):
        @handles(AddNumber)
        async def add(self, message: AddNumber) -> PendingReply[int]:
            return self.context.keep_reply()

    causes: list[BaseException | None] = []
    pool = KeyedPool(runtime, "p", lambda key: KeepingFailure())

    async def ask(request: Request[int]) -> None:
        try:
            await pool["k"].ask(request, deadline=5.0)
        except ActorFailed as failed:
            causes.append(failed.__cause__)

    async with trio.open_nursery() as nursery:
        if kept:
            nursery.start_soon(ask, AddNumber(1))
            await trio.sleep(1)
        nursery.start_soon(ask, Break())
    assert len(causes) == 1 + kept
    assert all(isinstance(cause, ValueError) for cause in causes)
    await pool.close()


async def fail_while_asked(runtime: Runtime) -> None:
    async with runtime.running("a", Failing) as ref:
        await ref.ask(Break(), deadline=1.0)


async def leave_while_asked(runtime: Runtime) -> None:
    async with runtime.running("a", Failing) as ref:
        await ref.ask(Leave(), deadline=1.0)


async def test_failure_reaches_the_block_that_asked_as_one_error(runtime: Runtime) -> None:
    """R-84: `except ActorFailed` catches it."""
    with pytest.raises(ActorFailed, match="ValueError: broken") as raised:
        await fail_while_asked(runtime)
    assert isinstance(raised.value.__cause__, ValueError)


async def test_exit_in_a_handler_reaches_the_block_as_itself(runtime: Runtime) -> None:
    """R-84: the program ends with that code."""
    with pytest.raises(SystemExit) as raised:
        await leave_while_asked(runtime)
    assert raised.value.code == 3


@pytest.mark.parametrize("log", [None, StderrLog(), SilentLog()])
async def test_failure_is_written_to_stderr_unless_silence_is_asked_for(
    capsys: pytest.CaptureFixture[str], log: StderrLog | SilentLog | None
) -> None:
    """R-84: with its traceback, although no log was passed."""
    async with open_runtime(clock=TrioClock(0), entropy=SeededEntropy(1), log=log) as runtime:
        pool = KeyedPool(runtime, "p", lambda key: Failing())
        pool["k"].tell(Break())
        await pool.close()
    written = capsys.readouterr().err
    if isinstance(log, SilentLog):
        assert written == ""
    else:
        assert "error actor_failed actor='p/k'" in written
        assert "Traceback (most recent call last)" in written
        assert "ValueError: broken" in written


EVENT = re.compile(r"log\.(?:info|warning|error)\(\s*\"(\w+)\"")


def test_page_names_the_events_that_the_code_logs() -> None:
    """R-81: alerts are written from the page."""
    folders = [Path(str(package.__file__)).parent for package in (fw_actors.runtime, supervisors)]
    files = [file for folder in folders for file in folder.glob("*.py")]
    logged = {event for file in files for event in EVENT.findall(file.read_text())}
    page = (ROOT / "docs/runtime.md").read_text()
    table = page[page.index("| Event | Meaning |") :].split("\n\n")[0]
    named = {
        name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    assert named == logged
