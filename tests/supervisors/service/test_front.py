"""The web front as a child of the service."""

from __future__ import annotations

from typing import Any, cast

import httpx
import pytest
import trio

from supervisors.service import front
from tests.web.fakes import FakeGateway, app_of
from web.listening import bind


async def test_a_server_that_failed_is_started_again_on_the_same_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accept = trio.SocketListener.accept
    failures = [OSError("the socket fails")]

    async def failing(listener: trio.SocketListener) -> trio.SocketStream:
        if failures:
            raise failures.pop()
        return await accept(listener)

    monkeypatch.setattr(trio.SocketListener, "accept", failing)
    monkeypatch.setattr(front, "application", lambda *_: app_of(FakeGateway()))
    bound = bind("127.0.0.1", 0)
    unused: Any = None
    child = front.front(unused, bound, unused, unused).make(unused)
    with pytest.RaisesGroup(OSError, flatten_subgroups=True):
        await child.run(cast(Any, trio.TASK_STATUS_IGNORED))
    async with trio.open_nursery() as nursery:
        await nursery.start(child.run)
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"{bound.url}/api/health")).status_code == 200
        assert child.request_stop(0)
    assert bound.socket.fileno() == -1, "nobody is left waiting in its queue"
