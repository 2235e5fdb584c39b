"""A body has a limit while it is read, and a time to arrive in (interface §1)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from fw_actors.errors import PayloadTooLargeError, RequestTimeoutError
from web.body import LINGER_SECONDS, LimitedBody


def arrived(*parts: bytes, ended: bool = True) -> LimitedBody:
    body = LimitedBody()
    for part in parts:
        body.append(part)
    if ended:
        body.set_complete()
    return body


async def test_a_body_that_is_there_is_read_whole() -> None:
    assert await arrived(b"a", b"bc").read(3) == b"abc"
    assert await arrived().read(0) == b""


async def test_a_body_that_arrives_in_parts_is_waited_for(nursery: trio.Nursery) -> None:
    body = LimitedBody()

    async def send() -> None:
        for part in (b"a", b"b"):
            await trio.testing.wait_all_tasks_blocked()
            body.append(part)
        await trio.testing.wait_all_tasks_blocked()
        body.set_complete()

    nursery.start_soon(send)
    assert await body.read(2) == b"ab"


@pytest.mark.parametrize("ended", [True, False])
async def test_too_much_is_refused_before_the_end_is_there(ended: bool) -> None:
    body = arrived(b"abc", b"d", ended=ended)
    with pytest.raises(PayloadTooLargeError):
        await body.read(3)


async def test_nothing_beyond_the_limit_is_kept() -> None:
    body = arrived(b"x" * 4096, ended=False)
    with pytest.raises(PayloadTooLargeError):
        await body.read(10)
    body.append(b"y")
    body.set_complete()
    with pytest.raises(PayloadTooLargeError):
        await body.read(1)


async def test_a_body_that_does_not_end_in_time_is_a_timeout(autojump_clock: MockClock) -> None:
    start = trio.current_time()
    with pytest.raises(RequestTimeoutError):
        await arrived(b"a", ended=False).read(10, seconds=30)
    assert trio.current_time() - start == pytest.approx(30)


async def test_the_time_is_for_all_of_it(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """A part every second keeps nobody waiting longer."""
    body = LimitedBody()

    async def drip() -> None:
        while True:
            await trio.sleep(1)
            body.append(b"a")

    nursery.start_soon(drip)
    with pytest.raises(RequestTimeoutError):
        await body.read(100, seconds=30)
    nursery.cancel_scope.cancel()


async def test_what_is_dropped_is_waited_for_and_forgotten(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    body = arrived(b"a", ended=False)

    async def end() -> None:
        await trio.sleep(1)
        body.append(b"b")
        body.set_complete()

    nursery.start_soon(end)
    await body.drop()
    assert body.ended
    assert await body.read(10) == b""


async def test_dropping_has_an_end_too(autojump_clock: MockClock) -> None:
    start = trio.current_time()
    await arrived(b"a", ended=False).drop()
    assert trio.current_time() - start == pytest.approx(LINGER_SECONDS)
