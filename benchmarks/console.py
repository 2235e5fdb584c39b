"""What being looked at costs the service: `python -m benchmarks.console`.

A service with 100,000 actors and 10,000 waiting events is watched by two consoles, each view made
into JSON as their streams do; what it computes in that time is compared with as long unwatched.
"""

from __future__ import annotations

import json
import resource
import tempfile
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, Final

import structlog
import trio
import trio.lowlevel

from fw_actors.actors.console import Console
from fw_actors.actors.counters import Counter
from fw_actors.config import load
from fw_actors.runtime import Actor, KeyedPool, Message, handles
from supervisors.service.delivering import DISPATCHER
from supervisors.service.tree import RunningService, open_service
from web.json_out import encode

ACTORS: Final = 100_000
EVENTS: Final = 10_000
WATCHERS: Final = 2
SECONDS: Final = 30.0
WARM_UP_SECONDS: Final = 10.0
POLICY: Final = {"site": {"name": "bench"}, "ops": {"scheduler": False}}
HOOK: Final = {
    "url": "https://192.0.2.1/x",  # TEST-NET: nobody answers there, and events wait
    "event_type": "Custom",
    "custom_event": "bench.waits",
    "secret": "s",
}


class Poke(Message, frozen=True):
    pass


class Idle(Actor):
    @handles(Poke)
    def poke(self, message: Poke) -> None:
        """Be alive."""


def main() -> None:
    """Measure, and print the shares of one core."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "fw.json").write_text(json.dumps(POLICY))
        environ = {"FW_BIND": "127.0.0.1:0", "FW_SECRET_KEY": "k" * 40}
        print(json.dumps(trio.run(measure, load(environ, Path(folder)))))


async def measure(config: Any) -> dict[str, float]:
    """Return the shares of a core, unwatched and watched, and what the console adds."""
    log = structlog.get_logger()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    async with open_service(config, log=log) as service:
        await furnish(service)
        pool = KeyedPool(
            service.runtime, "many", lambda _: Idle(), capacity=ACTORS, idle_seconds=1e6
        )
        for number in range(ACTORS):
            pool[str(number)].tell(Poke())
            if number % 1000 == 0:
                await trio.lowlevel.checkpoint()
        await trio.sleep(WARM_UP_SECONDS)
        console = Console(
            service.site,
            service.runtime,
            service.runtime.ref(DISPATCHER),
            Counter(("Sent", "Retrying", "Failed")),
        )
        async with trio.open_nursery() as nursery:
            for _ in range(WATCHERS):
                nursery.start_soon(watch, console)
            await trio.sleep(WARM_UP_SECONDS)
            watched = await share()
            nursery.cancel_scope.cancel()
        unwatched = await share()
        assert len(pool) == ACTORS
    return {
        "unwatched": round(unwatched, 4),
        "watched": round(watched, 4),
        "console": round(watched - unwatched, 4),
        "maxRssMiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


async def furnish(service: RunningService) -> None:
    """Let events wait."""

    def write(fw: Any) -> None:
        fw.new_doc("Webhook", **HOOK).insert()

    await service.site.write("Administrator", write)
    for number in range(EVENTS // 100):
        await service.site.write("Administrator", partial(emit, number))


def emit(number: int, fw: Any) -> None:
    """Emit a hundred events in one transaction."""
    for each in range(100):
        fw.webhooks.emit("bench.waits", {"number": number * 100 + each})


async def watch(console: Console) -> None:
    """Take view after view, and make JSON of each, as a stream does."""
    number = 0
    while True:
        view = await console.view(number)
        number = view.number
        encode(view)


async def share() -> float:
    """Return how much of a core the process takes."""
    before, began = process_time(), trio.current_time()
    await trio.sleep(SECONDS)
    return (process_time() - before) / (trio.current_time() - began)


if __name__ == "__main__":
    main()
