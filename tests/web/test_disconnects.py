"""A client's disconnect is noticed while the server does not read from it (H-132)."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from web.disconnects import DisconnectWatch


@pytest.fixture
def watch() -> DisconnectWatch:
    return DisconnectWatch()


async def test_watch_reports_a_disconnect_once_and_no_data(
    watch: DisconnectWatch, nursery: trio.Nursery
) -> None:
    seen: list[str] = []
    ours, theirs = trio.socket.socketpair()
    with ours, theirs:
        watch.add(ours, lambda: seen.append("gone"))
        nursery.start_soon(watch.run)
        await theirs.send(b"data")
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert seen == []
        theirs.shutdown(trio.socket.SHUT_WR)
        await trio.testing.wait_all_tasks_blocked(0.01)
        theirs.close()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert seen == ["gone"]
        watch.discard(ours)
    nursery.cancel_scope.cancel()


async def test_watch_reports_a_disconnect_before_the_registration(
    watch: DisconnectWatch, nursery: trio.Nursery
) -> None:
    gone = trio.Event()
    ours, theirs = trio.socket.socketpair()
    with ours:
        theirs.close()
        watch.add(ours, gone.set)
        nursery.start_soon(watch.run)
        with trio.fail_after(5):
            await gone.wait()
    nursery.cancel_scope.cancel()


async def test_watch_does_not_report_a_discarded_socket(
    watch: DisconnectWatch, nursery: trio.Nursery
) -> None:
    seen: list[str] = []
    ours, theirs = trio.socket.socketpair()
    with ours:
        watch.add(ours, lambda: seen.append("gone"))
        watch.discard(ours)
        nursery.start_soon(watch.run)
        theirs.close()
        await trio.testing.wait_all_tasks_blocked(0.01)
    nursery.cancel_scope.cancel()
    assert seen == []


async def test_watch_is_handed_over_to_the_next_run(watch: DisconnectWatch) -> None:
    """The server of the start and its successor share their connections."""
    gone = trio.Event()
    ours, theirs = trio.socket.socketpair()
    with ours:
        watch.add(ours, gone.set)
        async with trio.open_nursery() as second:
            async with trio.open_nursery() as first:
                first.start_soon(watch.run)
                await trio.testing.wait_all_tasks_blocked()
                second.start_soon(watch.run)
                await trio.testing.wait_all_tasks_blocked()
                first.cancel_scope.cancel()
            theirs.close()
            with trio.fail_after(5):
                await gone.wait()
            second.cancel_scope.cancel()
