"""A process that serves no requests, for tests of the surroundings of a service.

Run as `fake_service.py FOLDER BEHAVIOUR`; it imports nothing of the tests, and logs to stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from fw_actors.rules.safe_output import Scrubber
from fw_actors.runtime import SystemClock
from supervisors.service.logs import configure
from supervisors.service.run import Announcer, Service, serve
from supervisors.service.site_files import ServiceError, SitePaths
from supervisors.service.systemd import Notifier

BEHAVIOURS = (
    "obeys", "refuses", "never ready", "fails", "drains for ever", "ignores the end", "hangs",
)  # fmt: skip


class FakeService:
    """Accepts at a made-up address; fails if its behaviour says so."""

    url = "http://127.0.0.1:1"

    def __init__(self, behaviour: str) -> None:
        self._behaviour = behaviour

    async def failed(self) -> None:
        if self._behaviour != "fails":
            await trio.sleep_forever()

    async def answers(self, seconds: float) -> bool:
        if self._behaviour == "hangs":
            await trio.sleep(seconds)
            return False
        return True


@asynccontextmanager
async def open_fake(behaviour: str) -> AsyncIterator[Service]:
    if behaviour == "refuses":
        raise ServiceRefusalOfTests("the fake refuses\x1b[31m to start")
    if behaviour == "never ready":
        await trio.sleep_forever()
    try:
        yield FakeService(behaviour)
        if behaviour == "drains for ever":
            await trio.sleep_forever()
    finally:
        if behaviour == "ignores the end":
            with trio.CancelScope(shield=True):
                await trio.sleep_forever()


class ServiceRefusalOfTests(ServiceError):
    """The message of a fake that refuses to start."""


def say_ready(url: str) -> None:
    print(f"ready {url}", flush=True)  # noqa: T201 - this is what a starter waits for


def main(folder: str, behaviour: str) -> int:
    run = partial(
        serve,
        SitePaths(Path(folder)),
        partial(open_fake, behaviour),
        version="9.9",
        announcer=Announcer(say_ready, Notifier.of(os.environ, os.getpid())),
        log=configure(
            style="text", level="info", clock=SystemClock(), stream=sys.stderr, scrubber=Scrubber()
        ),
    )
    refused = False
    try:
        trio.run(run)
    except* ServiceError as refusals:
        refused = True
        sys.stderr.write(f"{innermost(refusals)}\n")
    return int(refused)


def innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
