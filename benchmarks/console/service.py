"""A service that is busy: 100,000 actors, and 1,000 deliveries a second.

`python -m benchmarks.console.service FOLDER HOOK ACTORS` prints its URL and runs until its input
ends.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import structlog
import trio
import trio.lowlevel

from benchmarks.delivery.events import EVENT, data
from benchmarks.delivery.site import subscribe
from fw_actors.config import Config, load
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import ADMINISTRATOR
from fw_actors.ops.site import Site
from fw_actors.runtime import Actor, KeyedPool, Message, Runtime, handles
from supervisors.service import process
from supervisors.service.tree import RunningService, open_service

ACTORS: Final = 100_000
DELIVERIES_A_SECOND: Final = 1_000
BEATS_A_SECOND: Final = 20
MANAGER: Final = "admin"
PASSWORD: Final = "correct horse battery staple"
_POLICY: Final = {"site": {"name": "bench"}, "ops": {"scheduler": False}}
_ERROR_LEVEL: Final = 40


class Poke(Message, frozen=True):
    """Something to handle."""


class Worker(Actor):
    """One of the many."""

    @handles(Poke)
    def poke(self, message: Poke) -> None:
        """Be there."""


def main(folder: str, hook: str, actors: str) -> None:
    """Serve a new site in `folder`, whose events go to `hook`, with so many actors."""
    process.prepare()
    (Path(folder) / "fw.json").write_text(json.dumps(_POLICY))
    environ = {"FW_BIND": "127.0.0.1:0", "FW_SECRET_KEY": "k" * 40, "FW_MODE": "development"}
    trio.run(serve, load(environ, Path(folder)), hook, int(actors))


async def serve(config: Config, hook: str, actors: int) -> None:
    """Serve, and be busy, until the input ends."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_ERROR_LEVEL))
    async with open_service(config, log=structlog.get_logger()) as service:
        await service.site.write(ADMINISTRATOR, _manager)
        await subscribe(service.site, [hook])
        pool = await _many(service.runtime, actors)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_beat, partial(_emit, service.site))
            nursery.start_soon(_beat, _MessageLoad(pool, actors))
            print(service.url, flush=True)
            await _until_the_input_ends(service)
            nursery.cancel_scope.cancel()
        if len(pool) != actors:
            raise SystemExit(f"Of {actors} actors {len(pool)} are left.")


def _manager(fw: Fw) -> None:
    email = f"{MANAGER}@example.test"
    user = fw.new_doc("User", name=MANAGER, email=email, roles=[{"role": "System Manager"}])
    user.new_password = PASSWORD
    user.insert()


async def _many(runtime: Runtime, actors: int) -> KeyedPool:
    pool = KeyedPool(runtime, "many", lambda _: Worker(), capacity=actors, idle_seconds=1e6)
    for number in range(actors):
        pool[str(number)].tell(Poke())
        if number % 1_000 == 0:
            await trio.lowlevel.checkpoint()
    return pool


async def _beat(work: Callable[[], object]) -> None:
    """Call `work`, awaiting what it gives, so many times a second; none is left out or doubled."""
    due = trio.current_time()
    while True:
        done = work()
        if hasattr(done, "__await__"):
            await done
        due += 1 / BEATS_A_SECOND
        await trio.sleep_until(due)


class _MessageLoad:
    """Pokes the actors in turn, as many a second as there are deliveries."""

    def __init__(self, pool: KeyedPool, actors: int) -> None:
        self._pool, self._actors, self._next = pool, actors, 0

    def __call__(self) -> None:
        for _ in range(DELIVERIES_A_SECOND // BEATS_A_SECOND):
            self._pool[str(self._next)].tell(Poke())
            self._next = (self._next + 1) % self._actors


async def _emit(site: Site) -> None:
    happened = data()

    def work(fw: Fw) -> None:
        for _ in range(DELIVERIES_A_SECOND // BEATS_A_SECOND):
            fw.webhooks.emit(EVENT, happened)

    await site.write(ADMINISTRATOR, work)


async def _until_the_input_ends(service: RunningService) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.failed)
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    main(*sys.argv[1:])
