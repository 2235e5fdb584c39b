"""A service of several processes: starts them, restarts ended ones, and stops them in order.

The supervisor holds the site's lock, the listening socket and a channel to each process, and opens
no store. Each process runs the whole tree of `supervisors.service.tree` and accepts on the shared
socket, so that no process loses the connections that wait there when it ends. A process whose
supervisor has died ends by itself (`run.serve_process`).
"""

from __future__ import annotations

import os
import pickle  # nosec B403
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from math import inf
from typing import Any, Final

import trio

from fw_actors import __version__
from fw_actors.config import Config
from fw_actors.runtime import Log, SystemClock, SystemEntropy, open_runtime
from supervisors.children import ExternalFailure, task_child
from supervisors.service.control_channel import (
    GATHER_SECONDS,
    HEALTH_CHECK,
    Assignment,
    ChannelFailed,
    ControlChannel,
)
from supervisors.service.fork_server import ForkServer, RunningProcess
from supervisors.service.process import (
    GRACEFUL_SECONDS,
    STORE_AWAY,
    ServingRecord,
    ServingState,
    outcome_of,
    start_time,
)
from supervisors.service.run import OwnPidFile
from supervisors.service.site_files import (
    ServeLock,
    ServiceError,
    StoppedAtOnce,
    UnusableDataFolder,
)
from supervisors.tree import open_supervisor
from web.listening import Bound, bind

KILL_SECONDS: Final = 2.0
"""The time that a process may take to end at once."""
START_SECONDS: Final = 60.0
"""The time that a process may take to start while others serve; the store is migrated then."""
AWAY_SECONDS: Final = 2.0
"""The time between two attempts to start a process while the store is away."""
HEADER_BYTES: Final = 2048
"""The memory that `SharedSubscriptions` expects to be there; its snapshots extend it."""
CHECK_SECONDS: Final = 5.0
"""The time between two questions to each process, and that to answer, without a watchdog."""
_STOP_SECONDS: Final = GRACEFUL_SECONDS + KILL_SECONDS


class ProcessEnded(ServiceError, ExternalFailure):
    """Raised in the supervisor for a process that ended unexpectedly or with an error."""

    def __init__(self, number: int, pid: int, code: int) -> None:
        super().__init__(f"process {number} (pid {pid}) {outcome_of(code)}")


class Processes:
    """The running processes of one service, in its supervisor."""

    def __init__(
        self,
        config: Config,
        bound: Bound,
        lock: int,
        memory: int,
        run_folder: str,
        log: Log,
        patience: float,
        pid_file: OwnPidFile | None,
        fork_server: ForkServer,
    ) -> None:
        """`patience`: seconds without an answer after which a process is ended. `pid_file`: the
        file in which their states are recorded."""
        self.url = bound.url
        self._log, self._patience = log, patience
        self._bound, self._lock, self._memory = bound, lock, memory
        self._run_folder = run_folder
        self._pid_file = pid_file
        self._config = pickle.dumps(config)
        self.fork_server = fork_server
        self.all = [ServingProcess(n + 1, self) for n in range(config.processes)]

    async def failed(self) -> None:
        """Never return: `open_processes` raises a permanent failure.

        Ask all processes regularly, unless systemd's watchdog does, so that one that hangs is
        recorded as silent.
        """
        while self._patience == inf:
            began = trio.current_time()
            await self.answers(CHECK_SECONDS)
            await trio.sleep_until(began + CHECK_SECONDS)
        await trio.sleep_forever()

    def record(self) -> None:
        """Record the states of all processes for `fw status`."""
        if self._pid_file is not None:
            try:
                self._pid_file.serving([process.record() for process in self.all])
            except UnusableDataFolder as error:  # a full disk must not end the service
                self._log.warning("service.states_not_recorded", reason=str(error))

    def report_away(self, number: int) -> None:
        """Log that a process cannot be replaced yet."""
        self._log.warning("process.waits_for_store", process=number)

    async def answers(self, seconds: float) -> bool:
        """Ask all processes whether they work; return whether one of them does.

        A process that has not confirmed it for too long, or does not start, is ended and replaced.
        """
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for process in self.all:
                nursery.start_soon(process.check, seconds)
        for process in self.all:
            if process.silent_seconds > self._patience:
                self._log.error("process.silent", process=process.number, pid=process.pid)
                process.abort()
        return any(process.is_ready and process.answered >= began for process in self.all)

    def assignment(self, number: int, control: int) -> Assignment:
        """Return the assignment of a process."""
        return Assignment(
            number=number,
            count=len(self.all),
            version=__version__,
            pickled_config=self._config,
            url=self._bound.url,
            listening=self._bound.socket.fileno(),
            control=control,
            subscriptions=self._memory,
            lock=self._lock,
            alone=not any(process.is_ready for process in self.all),
            run_folder=self._run_folder,
        )

    async def answer(self, asker: ServingProcess, name: str, body: Any) -> object:
        """Answer a process: `gather` passes a request on to the others that are ready."""
        if name == "ready":
            asker.became_ready()
            return None
        if name != "gather":
            raise ValueError(f"there is no request {name!r}")
        request, argument, to = body
        others = [
            process
            for process in self.all
            if process is not asker and process.is_ready and to in (None, process.number)
        ]
        answers: dict[int, object] = {}

        async def ask(process: ServingProcess) -> None:
            with suppress(ChannelFailed):  # it is ending or stuck, so its answer is left out
                answers[process.number] = await process.ask(request, argument)

        async with trio.open_nursery() as nursery:
            for process in others:
                nursery.start_soon(ask, process)
        return {
            "asked": [process.number for process in others],
            "answers": answers,
            "restarts": {p.number: p.restarts for p in self.all},
        }

    def stop(self) -> None:
        """Request an orderly end of all processes; new connections are refused once they have
        ended."""
        self._bound.socket.close()
        self.fork_server.close()
        for process in self.all:
            process.stop()
        self.record()

    def end_at_once(self) -> None:
        """Request an end of all processes without draining; kill the remaining ones."""
        self._bound.socket.close()
        self.fork_server.close()
        for process in self.all:
            process.end_at_once()


class ServingProcess:
    """One process of the service over all its restarts."""

    def __init__(self, number: int, service: Processes) -> None:
        self.number = number
        self.restarts = -1
        self.first_ready = trio.Event()
        """Set when the process accepts requests for the first time."""
        self._ready = trio.Event()
        self.ended_badly = False
        """Whether it has failed to end gracefully on request."""
        self._service = service
        self._channel: ControlChannel | None = None
        self._process: RunningProcess | None = None
        self._start_ticks: int | None = None
        self._silent = False
        self.answered = -inf
        """The time of its last report that it works, on trio's clock."""
        self._start_limit = inf
        self._stopping = False
        self._stop_requested = trio.Event()
        self._at_once = trio.Event()
        self._hangs = trio.Event()

    @property
    def is_ready(self) -> bool:
        """Whether the process accepts requests."""
        return self._ready.is_set()

    @property
    def pid(self) -> int | None:
        """The process id; None while no process runs."""
        return None if self._process is None else self._process.pid

    @property
    def silent_seconds(self) -> float:
        """Seconds since it last reported that it works.

        While it is not ready, the seconds by which its start exceeds `START_SECONDS`; 0 if it
        starts alone, because it may migrate the store.
        """
        now = trio.current_time()
        if self.is_ready:
            return now - self.answered
        return max(0.0, now - self._start_limit)

    def record(self) -> ServingRecord:
        """Return the state of the process for the pid file."""
        if self._stopping:
            state = ServingState.STOPPING
        elif self.is_ready:
            state = ServingState.SILENT if self._silent else ServingState.READY
        elif self.first_ready.is_set() or self.restarts > 0:
            state = ServingState.RESTARTING
        else:
            state = ServingState.STARTING
        start_ticks = None if self._process is None else self._start_ticks
        return ServingRecord(self.number, state.value, self.pid, start_ticks, max(0, self.restarts))

    async def check(self, seconds: float) -> None:
        """Ask the process whether it works; record the time if it does, and whether it answered."""
        channel, works = self._channel, False
        with suppress(ChannelFailed):
            works = bool(await self._send_request(HEALTH_CHECK, seconds, seconds))
        if works:
            self.answered = trio.current_time()
        if self.is_ready and self._channel is channel:  # else another process has answered
            self._silent = not works
            self._service.record()

    def abort(self) -> None:
        """End a process that hangs by SIGABRT, which prints its stacks; kill it if it survives."""
        if self._process is not None:
            self._process.send_signal(signal.SIGABRT)
            self._hangs.set()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Run a process to its end. Raises: ProcessEnded if it failed or did not end normally.

        While the store is away, each process that replaces one ends when it starts. Further ones
        are started until it is back, and the others continue.
        """
        self.restarts += 1
        started = _StartReport(task_status)
        while True:
            pid, code = await self._run_one(started)
            if code != STORE_AWAY or not self.first_ready.is_set() or self._stopping:
                break
            self._service.report_away(self.number)
            with trio.move_on_after(AWAY_SECONDS):
                await self._stop_requested.wait()
            if self._stop_requested.is_set():
                return
        if code:
            raise ProcessEnded(self.number, pid, code)

    async def _run_one(self, started: _StartReport) -> tuple[int, int]:
        """Run one process to its end; return its pid and its exit code."""
        own, others = socket.socketpair()
        with others:
            try:
                assignment = self._service.assignment(self.number, others.fileno())
                process = self._process = await self._service.fork_server.start(assignment)
                self._start_ticks = start_time(process.pid)
                self._service.record()
                began = trio.current_time()
                self._start_limit = inf if assignment.alone else began + START_SECONDS
            except BaseException:
                own.close()
                raise
        try:
            channel = self._channel = ControlChannel(own, partial(self._service.answer, self))
            if self._stopping:  # requested while the process was being created
                channel.tell("stop")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(channel.run)
                nursery.start_soon(_kill_after, self._at_once, process)
                nursery.start_soon(_kill_after, self._hangs, process)
                if not assignment.alone:
                    started.report()
                else:  # the others start when the store exists and is migrated
                    nursery.start_soon(self._report_ready, started)
                code = await process.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._ready, self._channel, self._process = trio.Event(), None, None
            self._start_limit = inf
            self._hangs, self._silent = trio.Event(), False
            await _kill(process)
            self.ended_badly = self._stopping and process.returncode not in (0, STORE_AWAY)
            self._service.record()
        return process.pid, code

    async def ask(self, request: str, argument: object) -> Any:
        """Pass a request on. Raises: ChannelFailed."""
        return await self._send_request(request, argument, GATHER_SECONDS)

    async def _send_request(self, request: str, argument: object, seconds: float) -> Any:
        if self._channel is None:
            raise ChannelFailed("the process has ended")
        return await self._channel.ask(request, argument, seconds=seconds)

    def became_ready(self) -> None:
        """Note that the process accepts requests."""
        self.answered = trio.current_time()
        self._ready.set()
        self.first_ready.set()
        self._service.record()

    def stop(self) -> None:
        """Request an orderly end of the process."""
        self._stopping = True
        self._stop_requested.set()
        if self._channel is not None:
            self._channel.tell("stop")

    def end_at_once(self) -> None:
        """Request an end of the process without draining; it is killed if it does not end."""
        self._stopping = True
        self._stop_requested.set()
        self._at_once.set()
        if self._channel is not None:
            self._channel.tell("end")

    async def _report_ready(self, started: _StartReport) -> None:
        await self._ready.wait()
        started.report()


class _StartReport:
    """Reports the start of a child to its supervisor once."""

    def __init__(self, task_status: trio.TaskStatus[None]) -> None:
        self._task_status: trio.TaskStatus[None] | None = task_status

    def report(self) -> None:
        """Report it, unless that was done."""
        if self._task_status is not None:
            self._task_status.started()
            self._task_status = None


async def _kill_after(event: trio.Event, process: RunningProcess) -> None:
    """Kill a process that survives the event that should have ended it."""
    await event.wait()
    await trio.sleep(KILL_SECONDS)
    process.kill()


async def _kill(process: RunningProcess) -> None:
    if process.returncode is None:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


def shared_memory() -> int:
    """Return the file descriptor of new memory for the `SharedSubscriptions` of the processes.

    It is not in the module of that class, which would load much that a supervisor does not need.
    """
    if sys.platform == "linux":
        descriptor = os.memfd_create("fw-subscriptions", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    # Written, because a hole cannot be filled on a full disk.
    os.write(descriptor, bytes(HEADER_BYTES))
    return descriptor


@asynccontextmanager
async def open_processes(
    config: Config,
    lock: ServeLock,
    log: Log,
    *,
    run_folder: str = "",
    patience: float = inf,
    pid_file: OwnPidFile | None = None,
    fork_server: ForkServer | None = None,
) -> AsyncIterator[Processes]:
    """Run the processes of a service; yields once all of them accept requests.

    `lock` is held, and given to the processes; `run_folder` is as in `Assignment`. A process
    that does not answer `Processes.answers` for `patience` seconds is replaced. The states of the
    processes are recorded in `pid_file`. `fork_server` may have been forked already. Leaving is the
    graceful stop, of all at the same time; cancelling stops at once.

    Raises: ConfigurationError; SupervisorFailed if a process cannot be kept running;
    StoppedAtOnce if one did not stop gracefully.
    """
    deployment = config.deployment
    bound = bind(deployment.bind_host, deployment.bind_port)
    memory = shared_memory()
    try:
        with closing(bound.socket):
            processes = Processes(
                config,
                bound,
                lock.descriptor,
                memory,
                run_folder,
                log,
                patience,
                pid_file,
                fork_server or ForkServer(),
            )
            async with _supervised(config, processes.all, log):
                try:
                    for process in processes.all:
                        await process.first_ready.wait()
                    yield processes
                except BaseException:
                    processes.end_at_once()
                    raise
                processes.stop()
    finally:
        os.close(memory)
    for process in processes.all:
        if process.ended_badly:
            raise StoppedAtOnce(f"process {process.number} did not stop gracefully")


@asynccontextmanager
async def _supervised(
    config: Config, processes: Sequence[ServingProcess], log: Log
) -> AsyncIterator[None]:
    clock = SystemClock(config.deployment.clock_offset)
    children = [
        task_child(
            f"process {process.number}",
            process.run,
            stop=process.stop,
            shutdown_seconds=_STOP_SECONDS,
            start_seconds=inf,
        )
        for process in processes
    ]
    scrub = config.scrubber.scrub_known
    async with (
        open_runtime(clock=clock, entropy=SystemEntropy(), log=log, scrub=scrub) as runtime,
        open_supervisor(runtime, "service", children, stop_seconds=_STOP_SECONDS),
    ):
        yield
