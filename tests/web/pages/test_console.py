"""The stream of the console ends with the credential that opened it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import trio
from trio.testing import MockClock

from fw_actors.access.sessions import Caller
from fw_actors.errors import AuthenticationError
from fw_actors.runtime.clock import SeededEntropy
from tests.web.fakes import KEY, SID, FakeGateway
from web.exchange import Exchange
from web.pages.console import CHECK_SECONDS, ConsolePages
from web.request import front_request
from web.response import EventStreams
from web.settings import Settings

T = TypeVar("T")
VIEW_SECONDS = 20
MANAGER = SimpleNamespace(rights=SimpleNamespace(administers=True))


class ManagersGateway(FakeGateway):
    """Its user administers the site, until the credential is taken away."""

    is_revoked = False

    async def authenticate(self, sid: str) -> Caller:
        return await super().authenticate("ended" if self.is_revoked else sid)

    async def caller(self, key: str, address: str) -> Caller:
        return await super().caller("revoked" if self.is_revoked else key, address)

    async def read(self, caller: Caller, fn: Callable[[Any], T], request_id: str = "") -> T:
        return fn(MANAGER)


class SlowConsole:
    """Has a view every 20 seconds."""

    async def view(self, after: int = 0) -> Any:
        await trio.sleep(VIEW_SECONDS)
        return SimpleNamespace(number=after + 1)

    async def history(self) -> list[Any]:
        return []


@pytest.mark.parametrize("credential", ["session", "key"])
async def test_console_stream_ends_with_its_credential(
    credential: str, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("web.pages.console.encode", lambda view: str(view).encode())
    gateway, console, unused = ManagersGateway(), SlowConsole(), None
    made: Any = (gateway, console, EventStreams(), unused)
    headers = [(b"authorization", f"Bearer {KEY}".encode())] if credential == "key" else []
    request = front_request("GET", b"/app/console/events", headers, "1.1", ("192.0.2.1", 50000))
    exchange = Exchange(request, Settings("bb", "http://127.0.0.1:1"), SeededEntropy(1))
    exchange.sid = SID if credential == "session" else None
    exchange.caller = Caller("ann", frozenset())
    answer = await ConsolePages(*made).events(exchange)
    sent: list[bytes] = []

    async def send(part: bytes) -> None:
        sent.append(part)

    assert answer.stream is not None
    began = trio.current_time()
    gateway.is_revoked = True
    with pytest.raises(AuthenticationError):
        await answer.stream(send)
    assert trio.current_time() - began <= CHECK_SECONDS + VIEW_SECONDS
    assert not any(part.startswith(b"data:") for part in sent), "no view after its end"
