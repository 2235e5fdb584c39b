"""The Unix socket of the console, which only the service's own user can open.

One line of JSON per request, one line of JSON per response. `{"do": "view", "after": 3}` is
answered with `{"view": …}` once there is a view after number 3; `{"do": "metrics"}` with the text
of `/metrics`; `{"do": "pause", "name": …}` and the other actions with `{"ok": true}`; errors are
`{"error": {"type", "message"}}`. Every client is Administrator: it could read the database and the
service's memory as well.

The socket is not in the data folder: a kill leaves it behind, and many tools cannot copy a folder
that contains a socket. It has its own folder, and a file in the data folder names its path.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from fw_actors.errors import BadRequestError, FwError, too_many_consoles
from fw_actors.runtime import Log
from supervisors.children import ChildSpec, task_child
from supervisors.service.site_files import path_in, peer_user

if TYPE_CHECKING:
    from fw_actors.actors.console import Console  # `fw console` looks here for the socket alone

PRIVATE: Final = 0o600
BACKLOG: Final = 8
_NAME: Final = "socket"


@contextmanager
def listening(address_file: Path, run_folder: Path | None = None) -> Iterator[socket.socket]:
    """Listen in a new folder (0700) and write the socket's path to `address_file`.

    The folder is in `run_folder`, or else in the system's folder for temporary files. Only the
    caller writes `address_file`: a path found there belongs to a killed process and is removed
    with its socket.

    Raises: OSError if the socket cannot be created.
    """
    remove_socket(address_file)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.setblocking(False)
        path = Path(tempfile.mkdtemp(prefix="fw-console-", dir=run_folder)) / _NAME
        try:
            listener.bind(str(path))  # no other user can enter the folder
            path.chmod(PRIVATE)
            listener.listen(BACKLOG)
            with open(
                os.open(address_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb"
            ) as file:
                file.write(os.fsencode(path))
            yield listener
        finally:
            _remove(path)
            address_file.unlink(missing_ok=True)


def remove_socket(address_file: Path) -> None:
    """Remove the socket that `address_file` names, its folder, and `address_file`."""
    with suppress(OSError):
        path = path_in(address_file)
        if path.name == _NAME:  # never remove anything else that `address_file` may name
            _remove(path)
    address_file.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    with suppress(OSError):  # other files were put there
        path.parent.rmdir()


MAX_CONNECTIONS: Final = 8
MAX_LINE_BYTES: Final = 4096
SEND_SECONDS: Final = 10.0
CHECK_SECONDS: Final = 2.0
"""The time between two checks that the socket is still there, or attempts to make it."""
ROOT: Final = 0

Metrics = Callable[[], Awaitable[bytes]]
"""Returns the text of `/metrics`."""
ConsoleAction = Callable[[str], Awaitable[None]]


class ConsoleCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request from a client."""

    do: str
    name: str = ""
    after: int = 0


def console_socket(
    address_file: Path, run_folder: Path | None, console: Console, log: Log, metrics: Metrics
) -> ChildSpec:
    """Return the child that serves the console at the path in `address_file`, as in `listening`.

    `metrics` is for `fw doctor`: over HTTP they are only for loopback and for API keys, and the
    service may be bound to another address.

    While no socket can be created, the service runs without one and has logged a warning. A socket
    that another program has removed, as those do that clean folders for temporary files, is made
    again.
    """
    # Here, because `fw console` would wait for the imports.
    from web.connections import RAISE_LIMIT, PatientListener

    server = _ConsoleServer(console, _actions_of(console), log, metrics)

    async def serve(opened: socket.socket) -> None:
        listener = PatientListener(
            opened,
            lambda: False,
            lambda reason: log.warning("console.no_descriptors", reason=reason, hint=RAISE_LIMIT),
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, server.attend, [listener])
            await _until_removed(address_file, opened.getsockname())
            nursery.cancel_scope.cancel()

    async def run(*, task_status: trio.TaskStatus[Any]) -> None:
        is_started = is_missing = False
        while True:
            with ExitStack() as stack:
                opened = None
                try:
                    opened = stack.enter_context(listening(address_file, run_folder))
                except OSError as error:
                    if not is_missing:
                        log.warning("console.no_socket", reason=str(error))
                is_missing = opened is None
                if not is_started:
                    task_status.started()
                    is_started = True
                if opened is None:
                    await trio.sleep(CHECK_SECONDS)
                else:
                    await serve(opened)

    return task_child("console", run)


async def _until_removed(address_file: Path, path: str) -> None:
    """Return when the socket at `path`, or its address, is gone."""
    while _is_at(address_file, path):  # noqa: ASYNC110 - another program removes it
        await trio.sleep(CHECK_SECONDS)


def _is_at(address_file: Path, path: str) -> bool:
    try:
        return str(path_in(address_file)) == path and Path(path).exists()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # as without a free descriptor, when `fw doctor` needs the socket
        return True


def _actions_of(console: Console) -> dict[str, ConsoleAction]:
    """Return the actions of a terminal by name."""
    from fw_actors.documents.permissions import ADMINISTRATOR  # not for `fw console`

    def by_administrator(action: Callable[[str, str], Awaitable[None]]) -> ConsoleAction:
        return lambda name: action(ADMINISTRATOR, name)

    own = {
        "pause": console.pause,
        "resume": console.resume,
        "restart": console.restart,
        "trace": console.trace,
        "unlock": console.unlock,
        "replay": console.replay,
        "retryJob": console.retry_job,
        "cancelJob": console.cancel_job,
    }
    actions = {name: by_administrator(action) for name, action in own.items()}
    return {**actions, "refresh": lambda _name: console.use_stored_subscriptions()}


class _ConsoleServer:
    """Accepts connections and answers their requests."""

    def __init__(
        self, console: Console, actions: Mapping[str, ConsoleAction], log: Log, metrics: Metrics
    ) -> None:
        self._console, self._actions, self._log, self._metrics = console, actions, log, metrics
        self._inside = 0

    async def attend(self, stream: trio.SocketStream) -> None:
        """Serve one connection until its end; an error is logged and ends only this connection."""
        self._inside += 1
        try:
            async with stream:
                if peer_user(stream.socket) not in (os.geteuid(), ROOT):
                    self._log.warning("console.peer_rejected", user=peer_user(stream.socket))
                    return
                if self._inside > MAX_CONNECTIONS:
                    await _send(stream, _refused(too_many_consoles(MAX_CONNECTIONS)))
                    return
                await self._serve(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client has disconnected
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
                if not part or len(buffer) > MAX_LINE_BYTES:
                    return
                buffer += part
                continue
            buffer = rest
            await _send(stream, await self._answer(line))

    async def _answer(self, line: bytes) -> object:
        try:
            command = msgspec.json.decode(line, type=ConsoleCommand)
            if command.do == "view":
                return {"view": await self._console.view(command.after)}
            if command.do == "history":
                return {"history": await self._console.history()}
            if command.do == "metrics":
                return {"metrics": (await self._metrics()).decode()}
            action = self._actions.get(command.do)
            if action is None:
                raise BadRequestError(f"There is no action {command.do[:40]}.")
            await action(command.name)
        except (msgspec.DecodeError, UnicodeDecodeError):  # the latter for bytes that are not UTF-8
            return _refused(BadRequestError("A line must be a JSON object with `do`."))
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
