"""Sweeps of sessions and Audit Events beside other transactions of PostgreSQL (B-430)."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import trio

from fw_actors.access.sessions import delete_expired
from fw_actors.ops.audit import Action, delete_old
from fw_actors.ops.site import Site
from fw_actors.store import Tx


async def test_sweep_of_sessions_fills_its_batch_beside_locked_session(site: Site) -> None:
    """A sweep waits for no transaction that uses a session, and does not end early (O-74)."""
    locked, swept = threading.Event(), threading.Event()

    def put(tx: Tx) -> None:
        for n in range(4):
            tx.raw(
                'INSERT INTO fw_session (id, sid_hash, "user", created, last_seen, expires)'
                " VALUES (:id, :id_hash, 'ada', 0, 0, :n)",
                {"id": str(n), "id_hash": bytes([n]), "n": n},
            )

    def use(tx: Tx) -> None:
        tx.raw("UPDATE fw_session SET last_seen = 1 WHERE id = '0'")
        locked.set()
        assert swept.wait(30), "the sweep waits for the lock"

    await site.store.write(put)
    sweep = partial(delete_expired, limit=2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.store.write, use)
        await trio.to_thread.run_sync(locked.wait, 30)
        assert await site.store.write(sweep) == 2
        assert await site.store.write(sweep) == 1
        swept.set()
    assert await site.store.write(sweep) == 1


async def test_sweeps_of_audit_events_at_once_delete_different_ones(site: Site) -> None:
    """Those of two processes: one that waited would find its events deleted, and end early."""
    swept, done = threading.Event(), threading.Event()

    def put(fw: Any) -> None:
        for n in range(3):
            site.audit.record(fw, Action.ERASE, str(n), {})
        fw.db.sql("UPDATE doc_audit_event SET creation = 0")

    def sweep_and_wait(tx: Tx) -> None:
        assert delete_old(tx, retention_days=1, limit=2) == 2
        swept.set()
        assert done.wait(30), "the other sweep waits for this one"

    await site.write("Administrator", put)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.store.write, sweep_and_wait)
        await trio.to_thread.run_sync(swept.wait, 30)
        sweep = partial(delete_old, retention_days=1, limit=2)
        assert await site.store.write(sweep) == 1
        done.set()
