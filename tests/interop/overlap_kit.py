"""Two transactions of one PostgreSQL that overlap."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
import trio

from fw_actors.access.sessions import begin as begin_session
from fw_actors.access.users import add_user
from fw_actors.errors import FwError
from fw_actors.ops.site import Site, open_site
from fw_actors.store import Tx
from fw_actors.store.postgres import open_postgres
from fw_actors.webhooks.subscriptions import SharedSubscriptions
from tests.site_kit import make_config

APPS: Final = Path(__file__).parent.parent / "fw_actors" / "documents" / "apps"
WAITS = "SELECT count(*) FROM pg_locks WHERE NOT granted"
PASSWORD: Final = "correct horse battery"
OTHER: Final = "another decent passphrase"
Fn = Callable[[Tx], Any]


@asynccontextmanager
async def patient_site(
    url: str, monkeypatch: pytest.MonkeyPatch, shared: SharedSubscriptions | None = None
) -> AsyncIterator[Site]:
    """Open a site on PostgreSQL whose transactions wait 30 s for a lock.

    `shared`: the subscriptions of a service with several processes.
    """
    patient = partial(open_postgres, url, busy_seconds=30)  # a slow machine is no lock
    monkeypatch.setattr(
        "fw_actors.ops.site.open_store",
        lambda config, clock, entropy, *, limited, **options: patient(
            clock=clock, entropy=entropy, **options
        ),
    )
    config = make_config(APPS, apps=("shop", "examples.notes"), database=url)
    async with open_site(config, shared=shared) as site:
        yield site


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


async def add_account(site: Site, name: str) -> None:
    """Add a user with `PASSWORD`."""
    email = f"{name}@x.test"
    hashed = await site.hash_password(PASSWORD, name, email)
    await site.write("Administrator", lambda fw: add_user(fw, name, email, "", (), hashed))


async def begin(site: Site, user: str) -> None:
    """Begin the session `s1` of a user."""
    opened = partial(begin_session, handle="s1", sid="secret", ip="", user_agent="", days=1)
    await site.store.write(partial(opened, user=user))
