"""Two transactions of one PostgreSQL that overlap."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import psycopg
import trio

from fw_actors.errors import FwError
from fw_actors.ops.site import Site
from fw_actors.store import Tx

WAITS = "SELECT count(*) FROM pg_locks WHERE NOT granted"
Fn = Callable[[Tx], Any]


class Overlap:
    """Runs a transaction, and beside it something that has to wait for it."""

    def __init__(self, site: Site, url: str) -> None:
        self._site, self._url = site, url
        self._worked = threading.Event()

    async def __call__(self, first: Fn, second: Callable[[], Awaitable[Any]]) -> tuple[Any, Any]:
        found: list[Any] = [None, None]

        async def run(place: int, call: Callable[[], Awaitable[Any]]) -> None:
            try:
                found[place] = await call()
            except FwError as refusal:
                found[place] = refusal

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, 0, partial(self._site.store.write, partial(self._hold, first)))
            await trio.to_thread.run_sync(self._worked.wait, 30)
            nursery.start_soon(run, 1, second)
        return found[0], found[1]

    def _hold(self, first: Fn, tx: Tx) -> Any:
        result = first(tx)
        tx.raw("SELECT 1 AS one")  # a deferred statement runs before the next one
        if not self._worked.is_set():
            self.meet()
        return result

    def meet(self) -> None:
        """Let the second one begin, and wait until it waits; for a first one in its midst."""
        self._worked.set()
        deadline = time.monotonic() + 30
        with psycopg.connect(self._url, autocommit=True) as watcher:
            while watcher.execute(WAITS).fetchone() == (0,):
                assert time.monotonic() < deadline, "the second transaction does not wait"
                time.sleep(0.01)


def as_administrator(site: Site, fn: Callable[[Any], Any]) -> Fn:
    return lambda tx: fn(site.handle(tx, "Administrator"))
