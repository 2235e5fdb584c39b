"""The server of `fw console`: its limits, and connections that fail (H-175)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import trio
import trio.testing

from fw_actors.actors.console import Console
from fw_actors.runtime import SystemClock, SystemEntropy, open_runtime
from supervisors import open_supervisor
from supervisors.service.console_socket import (
    MAX_CONNECTIONS,
    MAX_LINE_BYTES,
    SEND_SECONDS,
    console_socket,
)
from supervisors.service.site_files import path_in
from tests.mail_kit import RecordingLog

METRICS = b'{"do": "metrics"}\n'
ANSWER = {"metrics": "fw_info 1"}


async def metrics() -> bytes:
    return b"fw_info 1"


@asynccontextmanager
async def serving(folder: Path, log: RecordingLog, console: Any = None) -> AsyncIterator[Path]:
    """Serve a console; give the path of its socket."""
    address = folder / "console.address"
    clock, entropy = SystemClock(), SystemEntropy()
    async with open_runtime(clock=clock, entropy=entropy) as runtime:
        child = console_socket(address, None, console or Mock(spec=Console), log, metrics)
        async with open_supervisor(runtime, "service", [child]):
            yield path_in(address)


async def ask(stream: trio.SocketStream, line: bytes = METRICS) -> Any:
    """Return the answer to a line; None if the connection was closed."""
    await stream.send_all(line)
    answer = b""
    while not answer.endswith(b"\n"):
        part = await stream.receive_some()
        if not part:
            return None
        answer += part
    return json.loads(answer)


async def test_console_socket_refuses_connections_beyond_its_limit(tmp_path: Path) -> None:
    async with serving(tmp_path, RecordingLog()) as path, AsyncExitStack() as stack:
        streams = []
        for _ in range(MAX_CONNECTIONS):
            stream = await stack.enter_async_context(await trio.open_unix_socket(path))
            assert await ask(stream) == ANSWER
            streams.append(stream)
        async with await trio.open_unix_socket(path) as further:
            refusal = json.loads(await further.receive_some())
            assert refusal["error"]["type"] == "OverloadedError"
            assert await further.receive_some() == b""
        await streams[0].aclose()
        await trio.testing.wait_all_tasks_blocked()
        async with await trio.open_unix_socket(path) as later:
            assert await ask(later) == ANSWER


async def test_console_socket_closes_connection_with_too_long_line(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, RecordingLog()) as path,
        await trio.open_unix_socket(path) as stream,
    ):
        assert await ask(stream, b" " * (MAX_LINE_BYTES // 2) + METRICS) == ANSWER
        await stream.send_all(b" " * (MAX_LINE_BYTES + 1))
        await trio.testing.wait_all_tasks_blocked()
        assert await ask(stream, b" ") is None


async def test_console_socket_closes_connection_that_does_not_read(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    log = RecordingLog()
    async with serving(tmp_path, log) as path, await trio.open_unix_socket(path) as stream:
        with trio.move_on_after(1):
            while True:  # until both directions are full
                await stream.send_all(METRICS * 100)
        await trio.sleep(SEND_SECONDS)
        with trio.fail_after(1), suppress(trio.BrokenResourceError):  # a reset: it was not read
            async for _ in stream:
                pass
    assert log.entries == []


async def test_console_socket_logs_defect_and_serves_other_connections(tmp_path: Path) -> None:
    """docs/operating.md: `console.connection_failed` has the traceback."""
    console, log, defect = Mock(spec=Console), RecordingLog(), RuntimeError("a defect")
    console.view.side_effect = defect
    async with (
        serving(tmp_path, log, console) as path,
        await trio.open_unix_socket(path) as other,
        await trio.open_unix_socket(path) as stream,
    ):
        assert await ask(stream, b'{"do": "view"}\n') is None
        assert await ask(other) == ANSWER
    assert log.entries == [("console.connection_failed", {"exc_info": defect})]
