"""A fork server: a process that has loaded the modules of the service, and forks its processes.

The supervisor cannot do so itself, because it runs trio. So it loads the modules and forks the
server first; the server runs nothing, and has one thread and no open store. All of them share the
pages of the modules as far as they do not write to them, and a process begins without importing
anything. The server ends when its supervisor does. If it dies, the supervisor starts another one as
a program.

The supervisor sends each assignment on a Unix socket, with the descriptors of the process attached.
The server forks twice, so that the process becomes a child of the supervisor, which is a "child
subreaper" (prctl(2)) meanwhile, and replies with its pid. On systems without that, the program
serves its first assignment itself, and is started for each process.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NoReturn, Protocol

import trio

from supervisors.service.control_channel import Assignment
from supervisors.service.site_files import ServiceError

COMMAND: Final = (sys.executable, "-P", "-m", "fw_cli.serving_process")
"""The program; -P, so that modules in the site's folder hide no others."""
_LENGTH: Final = struct.Struct("!I?")  # of an assignment, and whether it is to be forked
_PID: Final = struct.Struct("!i")
_END_POLLS: Final = 100
_SET_SUBREAPER: Final = 36  # PR_SET_CHILD_SUBREAPER
_GET_SUBREAPER: Final = 37

OnAssignment = Callable[[Assignment], None]


class RunningProcess(Protocol):
    """A child of the supervisor."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""

    async def wait(self) -> int:
        """Wait for its end, and return the exit code."""

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal; do nothing if it has ended."""

    def kill(self) -> None:
        """Send SIGKILL."""


REPLY_SECONDS: Final = 60.0
"""The time that the server may take to fork a process; a new server loads its modules first."""


class ForkServerEnded(ServiceError):
    """Raised if the program has ended, without having started a process."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the fork server ended with exit code {code}")
        self.code = code


class AdoptedProcess:
    """A process that the server has forked, as a child of this one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._descriptor = os.pidfd_open(pid)

    async def wait(self) -> int:
        """Wait for its end, and return the exit code. Only one task waits at a time."""
        if self.returncode is None:
            await trio.lowlevel.wait_readable(self._descriptor)
            _, status = os.waitpid(self.pid, os.WNOHANG)  # noqa: ASYNC222 - it has ended
            self.returncode = os.waitstatus_to_exitcode(status)
            os.close(self._descriptor)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal; do nothing if the process has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and nothing has waited for it yet
                signal.pidfd_send_signal(self._descriptor, number)

    def kill(self) -> None:
        """Send SIGKILL, which no process survives."""
        self.send_signal(signal.SIGKILL)


class _ServerProcess(Protocol):
    """The process of a fork server; `subprocess.Popen` is one."""

    def poll(self) -> int | None: ...
    def kill(self) -> None: ...
    def wait(self) -> int: ...


class _ForkedServer:
    """A fork server that is a fork of this process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        return self._waited(os.WNOHANG)

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> int:
        code = self._waited(0)
        assert code is not None
        return code

    def _waited(self, options: int) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self._pid, options)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code


class ForkServer:
    """Starts processes, in the supervisor."""

    def __init__(self) -> None:
        self._server: _ServerProcess | None = None
        self._socket: socket.socket | None = None
        self._starting = trio.Lock()
        self._closed = False

    def fork(self, run: OnAssignment) -> None:
        """Fork the server from this process, which has loaded the modules and has one thread.

        Args:
            run: serves in a process that the server has forked, to its end.
        """
        if not can_fork():
            return
        own, its = socket.socketpair()
        _flush()  # or each fork would write the same text
        _freeze()
        pid = os.fork()
        if pid == 0:  # whatever the callers of this function have to clean up is not its own
            own.close()
            _use_null_device()
            os.setpgid(0, 0)  # Ctrl-C in a terminal reaches only the supervisor
            _exit_after(lambda: _serve(its, _loaded_already, run))
        its.close()
        self._server, self._socket = _ForkedServer(pid), own

    async def start(self, assignment: Assignment) -> RunningProcess:
        """Start a process; it has copies of its descriptors.

        Raises: ForkServerEnded if the server ends meanwhile, or is ended because it has not replied
            within `REPLY_SECONDS`; it may have forked the process.
        """
        if not can_fork():
            return await _started_alone(assignment)
        async with self._starting:
            if self._server is not None and self._server.poll() is not None:
                self._end()  # it has died since the last start, which is no failure of this one
            if self._socket is None:
                self._server, self._socket = _program()
            try:
                with _adopting(), trio.fail_after(REPLY_SECONDS):
                    return AdoptedProcess(await self._forked(assignment))
            except trio.TooSlowError:  # it is frozen; without a limit nothing would be replaced
                raise ForkServerEnded(self._end()) from None
            except BaseException:
                self._end()  # a reply may be under way that belongs to this assignment
                raise
            finally:
                if self._closed:
                    self._end()

    def close(self) -> None:
        """End the server; a start that is under way is completed first."""
        self._closed = True
        if not self._starting.locked():
            self._end()

    def _end(self) -> int:
        if self._server is None or self._socket is None:
            return 0
        self._socket.close()
        self._server.kill()
        code = self._server.wait()
        self._server = self._socket = None
        return code

    async def _forked(self, assignment: Assignment) -> int:
        """Send an assignment and return the pid of its process. Raises: ForkServerEnded."""
        assert self._socket is not None
        channel = trio.socket.from_stdlib_socket(self._socket)
        try:
            await _send(channel, assignment, forked=True)
            reply = await channel.recv(_PID.size)  # sent in one piece
        except OSError:
            reply = b""
        if not reply:
            raise ForkServerEnded(await self._ended())
        return int(_PID.unpack(reply)[0])

    async def _ended(self) -> int:
        """Return the exit code of a server that has closed its socket, and is about to end."""
        assert self._server is not None
        for _ in range(_END_POLLS):
            if (code := self._server.poll()) is not None:
                return code
            await trio.sleep(0.01)
        return self._end()


def can_fork() -> bool:
    """Whether this system lets a process adopt the children of its children, and wait for them."""
    if sys.platform != "linux" or _prctl(_GET_SUBREAPER, ctypes.byref(ctypes.c_int())):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:  # refused by a sandbox
        return False
    return True


def _prctl(option: int, argument: object) -> int:
    failed: int = ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)
    return failed


@contextmanager
def _adopting() -> Iterator[None]:
    """Adopt orphaned descendants for a while."""
    _prctl(_SET_SUBREAPER, 1)
    try:
        yield
    finally:
        _prctl(_SET_SUBREAPER, 0)


def _program() -> tuple[_ServerProcess, socket.socket]:
    own, its = socket.socketpair()
    with its:
        return subprocess.Popen(COMMAND, stdin=its.fileno(), process_group=0), own


async def _started_alone(assignment: Assignment) -> RunningProcess:
    """Start the program for one assignment that it serves itself."""
    own, its = socket.socketpair()
    with its:
        process = await trio.lowlevel.open_process(COMMAND, stdin=its.fileno(), process_group=0)
    with trio.socket.from_stdlib_socket(own) as channel, suppress(OSError):
        # Else it has already ended; its exit code gives the reason.
        await _send(channel, assignment, forked=False)
    return process


async def _send(channel: trio.socket.SocketType, assignment: Assignment, *, forked: bool) -> None:
    content = assignment.encoded()
    content = _LENGTH.pack(len(content), forked) + content
    descriptors = assignment.descriptors
    attached = struct.pack(f"{len(descriptors)}i", *descriptors)
    sent = await channel.sendmsg([content], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, attached)])
    while sent < len(content):
        sent += await channel.send(content[sent:])


def serve_assignments(load: OnAssignment, run: OnAssignment) -> None:
    """Fork a process for each assignment, until the supervisor closes the socket at the standard
    input: the program.

    Args:
        load: imports the modules that a process needs.
        run: serves in a forked process, to its end.
    """
    _serve(_standard_input(), load, run)


def _serve(channel: socket.socket, load: OnAssignment, run: OnAssignment) -> None:
    gc.disable()  # a collection would write to the pages of all objects
    while (received := _received(channel)) is not None:
        assignment, forked = received
        load(assignment)
        if not forked or _forks(channel):
            channel.close()
            gc.enable()
            run(assignment)
            return
        for descriptor in assignment.descriptors:
            os.close(descriptor)


def _freeze() -> None:
    gc.collect()
    gc.freeze()


def _loaded_already(_assignment: Assignment) -> None:
    """Load nothing: the supervisor had loaded all before it forked the server."""


def _exit_after(work: Callable[[], None]) -> NoReturn:
    """Work and end this process, without unwinding the stack that it has from its parent."""
    code = 1
    try:
        work()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def _standard_input() -> socket.socket:
    """Return the socket at the standard input, which becomes the null device."""
    channel = socket.socket(fileno=os.dup(0))
    _use_null_device()
    return channel


def _use_null_device() -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _received(channel: socket.socket) -> tuple[Assignment, bool] | None:
    """Return the next assignment, with descriptors of this process, and whether it is forked."""
    content, descriptors = b"", list[int]()
    end = _LENGTH.size
    while len(content) < end:
        part, its, _flags, _address = socket.recv_fds(channel, end - len(content), 4)
        descriptors += its
        if not part:
            return None
        content += part
        if end == _LENGTH.size == len(content):
            end += _LENGTH.unpack(content)[0]
    _, forked = _LENGTH.unpack_from(content)
    return Assignment.decoded(content[_LENGTH.size :], descriptors), forked


def _forks(channel: socket.socket) -> bool:
    """Fork a process; return True in it.

    Its pid is sent to the supervisor once its parent has ended, so that it is the supervisor's.
    """
    _freeze()
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid != 0:
            os.write(writing, _PID.pack(pid))
            os._exit(0)
        os.close(reading)
        os.close(writing)
        os.setpgid(0, 0)
        return True
    os.close(writing)
    pid_sent = os.read(reading, _PID.size)
    os.close(reading)
    os.waitpid(between, 0)
    if not pid_sent:
        raise ChildProcessError("a process could not be forked")
    channel.sendall(pid_sent)
    return False
