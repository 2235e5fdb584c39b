"""One process of a service of several: its connection to its supervisor and the others.

It stops gracefully when the supervisor requests it, or has died, which closes the channel. A
separate thread kills the process if it is stuck.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from typing import Any, Final

import trio
from structlog.typing import FilteringBoundLogger

from fw_actors.actors.console import paused_elsewhere
from supervisors.service.assignment import Assignment
from supervisors.service.control_channel import ControlChannel
from supervisors.service.process import DRAIN_SECONDS, SETTLE_SECONDS, Stop, stop_on_signals
from supervisors.service.run import OpenService, conclude, until_asked
from supervisors.service.siblings import ANSWERS, Siblings

_ORPHAN_SECONDS: Final = DRAIN_SECONDS + SETTLE_SECONDS + 2.0
"""The time for which a process may outlive its supervisor."""


async def serve_process(
    assignment: Assignment,
    siblings: Siblings,
    open_service: OpenService,
    log: FilteringBoundLogger,
) -> None:
    """Serve as one process of a service until the supervisor or a signal requests the end.

    Raises: StoppedAtOnce; ServiceFailed; the errors of `open_service`, in trio's exception groups.
    """
    control = socket.socket(fileno=assignment.control)
    _end_with_supervisor(control)
    async with stop_on_signals() as stop, trio.open_nursery() as nursery:
        channel = ControlChannel(control, lambda name, body: _handle(stop, siblings, name, body))
        await nursery.start(channel.run)
        nursery.start_soon(_stop_with_channel, channel, stop)
        siblings.connect(channel)
        async with open_service() as service:
            stop.accepting()
            siblings.answers(ANSWERS, service.answers)
            channel.tell("ready")
            log.info("process.ready", pid=os.getpid())
            for receiver in await paused_elsewhere(siblings):  # also since they were read before
                await siblings.answer("pause", [receiver, True])
            await until_asked(service, stop)
            log.info("process.stopping")
        nursery.cancel_scope.cancel()
    conclude(stop, log, "process.stopped")


async def _handle(stop: Stop, siblings: Siblings, name: str, body: Any) -> object:
    if name == "stop":
        stop.request()
        return None
    if name == "end":
        stop.end_at_once()
        return None
    return await siblings.answer(name, body)


async def _stop_with_channel(channel: ControlChannel, stop: Stop) -> None:
    await channel.closed.wait()
    stop.request()


def _end_with_supervisor(control: socket.socket) -> None:
    """Kill this process if it outlives its supervisor for too long, even if it is stuck."""
    poll = select.poll()
    poll.register(os.dup(control.fileno()), 0)  # not for data, only for the end

    def watch() -> None:
        poll.poll()
        time.sleep(_ORPHAN_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="fw-supervisor", daemon=True).start()
