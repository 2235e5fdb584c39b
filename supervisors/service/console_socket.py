"""The console's door for the terminal: a Unix socket that only the service's own user can open.

A line of JSON in, a line of JSON out, in turn. `{"do": "view", "after": 3}` is answered by
`{"view": …}` once there is one after number 3; `{"do": "pause", "name": …}` and the other acts by
`{"ok": true}`; what is refused by `{"error": {"type", "message"}}`. Whoever may open the socket is
Administrator: it could read the database and the service's memory as well.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

from fw_actors.actors.console import Console
from fw_actors.errors import BadRequestError, FwError, OverloadedError
from fw_actors.runtime import Log
from supervisors.children import ChildSpec, task_child

ADMINISTRATOR: Final = "Administrator"
MOST_CONNECTIONS: Final = 8
LONGEST_LINE: Final = 4096
LONGEST_PATH: Final = 100  # the kernel takes 107 bytes
SEND_SECONDS: Final = 10.0
PRIVATE: Final = 0o177

Act = Callable[[str], Awaitable[None]]


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line from a client."""

    do: str
    name: str = ""
    after: int = 0


def console_socket(path: Path, console: Console, log: Log) -> ChildSpec:
    """Return the child that serves the console at `path`."""
    door = _Door(console, _acts_of(console), log)

    async def run(*, task_status: trio.TaskStatus[Any]) -> None:
        with _bound(path) as listening:
            listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
            await trio.serve_listeners(door.attend, [listener], task_status=task_status)

    return task_child("console", run)


def _acts_of(console: Console) -> dict[str, Act]:
    """Return what a terminal can do, by its name."""

    def by_administrator(act: Callable[[str, str], Awaitable[None]]) -> Act:
        return lambda name: act(ADMINISTRATOR, name)

    own = {
        "pause": console.pause,
        "resume": console.resume,
        "restart": console.restart,
        "trace": console.trace,
        "unlock": console.unlock,
        "replay": console.replay,
    }
    return {name: by_administrator(act) for name, act in own.items()}


class _Door:
    """Answers those who come in."""

    def __init__(self, console: Console, acts: Mapping[str, Act], log: Log) -> None:
        self._console, self._acts, self._log = console, acts, log
        self._inside = 0

    async def attend(self, stream: trio.SocketStream) -> None:
        """Serve one connection to its end; a failure in it is logged and ends it alone."""
        self._inside += 1
        try:
            async with stream:
                if self._inside > MOST_CONNECTIONS:
                    await _send(stream, _refused(OverloadedError("Too many consoles are open.")))
                    return
                await self._serve(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client has gone
        except Exception as error:
            self._log.error("console.connection_failed", exc_info=error)
        finally:
            self._inside -= 1

    async def _serve(self, stream: trio.SocketStream) -> None:
        buffer = b""
        while True:
            line, found, rest = buffer.partition(b"\n")
            if not found:
                part = await stream.receive_some()
                if not part or len(buffer) > LONGEST_LINE:
                    return
                buffer += part
                continue
            buffer = rest
            await _send(stream, await self._answer(line))

    async def _answer(self, line: bytes) -> object:
        try:
            asked = msgspec.json.decode(line, type=Asked)
            if asked.do == "view":
                return {"view": await self._console.view(asked.after)}
            act = self._acts.get(asked.do)
            if act is None:
                raise BadRequestError(f"There is no act {asked.do[:40]}.")
            await act(asked.name)
        except msgspec.DecodeError:
            return _refused(BadRequestError("A line is a JSON object with `do`."))
        except FwError as error:
            return _refused(error)
        return {"ok": True}


def _refused(error: FwError) -> object:
    return {"error": {"type": type(error).__name__, "message": error.message}}


async def _send(stream: trio.SocketStream, answer: object) -> None:
    with trio.move_on_after(SEND_SECONDS) as scope:
        await stream.send_all(msgspec.json.encode(answer) + b"\n")
    if scope.cancelled_caught:
        raise trio.BrokenResourceError("The client does not read.")


@contextlib.contextmanager
def _bound(path: Path) -> Iterator[socket.socket]:
    """Listen at `path`, open to the own user alone; what a killed process left there goes first.

    The caller holds the site's serve lock: nobody else listens there.
    """
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        before = os.umask(PRIVATE)
        try:
            with short_path(path) as short:
                listening.bind(short)
        finally:
            os.umask(before)
        listening.listen(MOST_CONNECTIONS)
        yield listening
    finally:
        listening.close()
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Give a name for a socket's path that the kernel takes, also where the folder's is long."""
    if len(os.fsencode(path)) <= LONGEST_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
