"""The slow writes of one user do not delay the writes of the others (H-143)."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from fw_actors.access.sessions import Caller
from fw_actors.errors import OverloadedError
from tests.security.threaded_site import a_site

pytestmark = pytest.mark.usefixtures("on_both_stores")

WRITES = 24


async def test_writes_of_others_are_made_while_one_user_writes(tmp_path: Path) -> None:
    """Once the writes of a user are slow, those that wait do so outside of the store."""
    async with a_site(tmp_path) as site:
        await site.add_account("walter", "Note Writer")
        sid = await site.sid("walter")
        writes, over = 0, False

        def change(fw: Any) -> None:
            time.sleep(0 if over else 0.4)

        async def count(gateway: Any, caller: Caller) -> None:
            nonlocal writes
            with suppress(OverloadedError):
                await gateway.write(caller, change)
            writes += 1

        async with trio.open_nursery() as nursery:
            for _ in range(WRITES):
                nursery.start_soon(count, site.service.gateway, Caller("wendy", frozenset()))
            await trio.sleep(0.1)
            note = {"title": "a", "text": "b"}
            reply = await site.ask("POST", "/api/resource/Note", note, sid=sid)
            made_before = writes
            over = True
    assert reply.status == 201, reply.body
    assert made_before <= WRITES // 2, "each writer ends what it has begun"
