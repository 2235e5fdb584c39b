"""Processes of `fw` forked from one that has its modules: real ones, without a second of imports.

A test that starts `fw serve` wants its sockets, signals and transactions; the interpreter's start
and the imports are nine tenths of what such a process computes. So each process of the tests keeps
a server that has imported the service and does nothing but fork. A fork gets its own arguments,
folder, environment and streams, and runs `fw_cli.main` to its end.

A fork cannot show these, which are tested by `subprocess`: the interpreter's options, which modules
a command imports, and /proc/PID/environ, where the kernel shows the server's environment.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import posix
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
_MODULES: Final = (
    "fw_cli.main", "fw_cli.service", "fw_cli.evaluation", "fw_cli.user", "fw_cli.webhooks",
    "fw_cli.vault", "supervisors.service.run", "supervisors.service.background",
    "supervisors.service.tree", "fw_actors.store.postgres", "web.app",
)  # fmt: skip
_NUMBER: Final = struct.Struct("i")
_LONGEST_REQUEST: Final = 1 << 17
_STREAMS: Final = 3


class ForkedProcess:
    """A process of `fw`, with the methods of `subprocess.Popen` that tests need.

    It is the child of the server, which reports its end; `returncode` is that of Popen.
    """

    def __init__(self, report: int) -> None:
        self._report = report
        self.returncode: int | None = None
        self.pid = self._next()

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; return the exit code. Raises: subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._report], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("fw", timeout or 0.0)
            self.returncode = os.waitstatus_to_exitcode(self._next())
            os.close(self._report)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _next(self) -> int:
        answer = os.read(self._report, _NUMBER.size)
        assert answer, "the server of forks has died"
        (number,) = _NUMBER.unpack(answer)
        return int(number)


def fork_fw(
    *args: str,
    folder: Path,
    environ: Mapping[str, str],
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
) -> ForkedProcess:
    """Start `fw` with `args` in `folder`.

    `environ` is its whole environment. The streams are descriptors, which the caller may close when
    this returns; None is /dev/null.
    """
    request = {"args": args, "folder": str(folder), "environ": dict(environ)}
    nowhere = os.open(os.devnull, os.O_RDWR)
    read, write = os.pipe()
    streams = [nowhere if stream is None else stream for stream in (stdin, stdout, stderr)]
    try:
        socket.send_fds(_channel(), [json.dumps(request).encode()], [*streams, write])
    finally:
        os.close(nowhere)
        os.close(write)
    return ForkedProcess(read)


@cache
def _channel() -> socket.socket:
    """Start the server of this process at its first use; it ends with the channel."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FW_")}
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.fork_server", str(theirs.fileno())],
            cwd="/", env={**environ, "PYTHONPATH": str(ROOT)}, pass_fds=[theirs.fileno()],
        )  # fmt: skip

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


@dataclass
class _Request:
    """The work of a fork; `streams` are its stdin, stdout and stderr."""

    args: list[str]
    folder: str
    environ: dict[str, str]
    streams: list[int]

    def run(self) -> None:
        """Become `fw`."""
        for number, stream in enumerate(self.streams):
            os.dup2(stream, number)
            os.close(stream)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open to the end
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environ)
        posix.environ.clear()
        posix.environ.update({os.fsencode(k): os.fsencode(v) for k, v in self.environ.items()})
        sys.argv = ["fw", *self.args]
        from fw_cli.main import main

        main()


def _serve(channel: socket.socket) -> _Request | None:
    """Fork for each request; return it in the fork, and None when the tests have ended."""
    reports: dict[int, int] = {}

    def reap(*_: Any) -> None:
        while reports:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            report = reports.pop(pid)
            with suppress(BrokenPipeError):  # its test has ended before it
                os.write(report, _NUMBER.pack(status))
            os.close(report)

    signal.signal(signal.SIGCHLD, reap)
    while True:
        message, descriptors, *_ = socket.recv_fds(channel, _LONGEST_REQUEST, _STREAMS + 1)
        if not message:
            return None
        *streams, report = descriptors
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # until it is among the reports
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            for open_one in (report, *reports.values()):
                os.close(open_one)
            channel.close()
            return _Request(**json.loads(message), streams=streams)
        reports[pid] = report
        os.write(report, _NUMBER.pack(pid))
        for stream in streams:
            os.close(stream)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def _main() -> None:
    for module in _MODULES:
        import_module(module)
    gc.collect()
    gc.freeze()
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        request.run()


if __name__ == "__main__":
    _main()
