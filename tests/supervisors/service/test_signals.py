"""The effects of SIGTERM, SIGINT and SIGHUP (O-31, O-32)."""

from __future__ import annotations

import signal

import pytest
import trio
from trio.testing import MockClock

from supervisors.service.process import End, stop_on_signals

BOTH = [signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize("number", [*BOTH, signal.SIGHUP])
async def test_first_signal_requests_a_drained_end(number: signal.Signals) -> None:
    async with stop_on_signals() as stop:
        stop.accepting()
        signal.raise_signal(number)
        with trio.fail_after(5):
            await stop.requested.wait()
        await trio.testing.wait_all_tasks_blocked()
    assert stop.end is End.DRAINED


@pytest.mark.parametrize("second", BOTH)
async def test_second_signal_stops_at_once(second: signal.Signals) -> None:
    async with stop_on_signals() as stop:
        stop.accepting()
        signal.raise_signal(signal.SIGTERM)
        with trio.fail_after(5):
            await stop.requested.wait()
            signal.raise_signal(second)
            await trio.Event().wait()
    assert stop.end is End.SECOND_SIGNAL


async def test_second_hangup_does_not_cut_the_drain() -> None:
    """The end of a terminal sends SIGHUP twice: by the shell and by the kernel."""
    async with stop_on_signals() as stop:
        stop.accepting()
        for _ in range(2):
            signal.raise_signal(signal.SIGHUP)
            await trio.testing.wait_all_tasks_blocked()
        assert stop.requested.is_set()
        assert not stop.at_once.cancel_called
    assert stop.end is End.DRAINED


async def test_ignored_hangup_stays_ignored() -> None:
    """As nohup starts a service."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        async with stop_on_signals() as stop:
            signal.raise_signal(signal.SIGHUP)
            await trio.testing.wait_all_tasks_blocked()
            assert not stop.requested.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_signal_during_the_start_stops_at_once() -> None:
    async with stop_on_signals() as stop:
        signal.raise_signal(signal.SIGTERM)
        with trio.fail_after(5):
            await trio.Event().wait()
    assert stop.end is End.UNSTARTED


async def test_drain_is_cut_after_fifteen_seconds(
    autojump_clock: MockClock,
) -> None:
    """10 s for work in progress, and 5 s to release leases and close."""
    async with stop_on_signals() as stop:
        stop.accepting()
        stop.signalled()
        began = trio.current_time()
        with trio.fail_after(60):
            await trio.Event().wait()
    assert stop.end is End.TOO_SLOW
    assert trio.current_time() - began == pytest.approx(15)


async def test_second_signal_after_the_drain_changes_nothing() -> None:
    async with stop_on_signals() as stop:
        stop.accepting()
        stop.signalled()
        stop.signalled()
    assert stop.end is End.DRAINED


async def test_signal_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in BOTH]
    async with stop_on_signals():
        assert [signal.getsignal(number) for number in BOTH] != before
    assert [signal.getsignal(number) for number in BOTH] == before
