"""The effects of SIGTERM and SIGINT (O-31, O-32)."""

from __future__ import annotations

import signal

import pytest
import trio
from trio.testing import MockClock

from supervisors.service.process import End, stop_on_signals

BOTH = [signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize("number", BOTH)
async def test_the_first_signal_asks_and_lets_what_runs_end(number: signal.Signals) -> None:
    async with stop_on_signals() as stop:
        stop.accepting()
        signal.raise_signal(number)
        await stop.requested.wait()
        await trio.testing.wait_all_tasks_blocked()
    assert stop.end is End.DRAINED


@pytest.mark.parametrize("second", BOTH)
async def test_the_second_signal_stops_at_once(second: signal.Signals) -> None:
    async with stop_on_signals() as stop:
        stop.accepting()
        signal.raise_signal(signal.SIGTERM)
        await stop.requested.wait()
        signal.raise_signal(second)
        await trio.Event().wait()
    assert stop.end is End.SECOND_SIGNAL


async def test_a_signal_before_anything_was_accepted_stops_at_once() -> None:
    async with stop_on_signals() as stop:
        signal.raise_signal(signal.SIGTERM)
        await trio.Event().wait()
    assert stop.end is End.UNSTARTED


async def test_what_does_not_end_is_ended_after_fifteen_seconds(
    autojump_clock: MockClock,
) -> None:
    """10 s for what is in flight, and 5 s to give back and close."""
    async with stop_on_signals() as stop:
        stop.accepting()
        stop.signalled()
        began = trio.current_time()
        await trio.Event().wait()
    assert stop.end is End.TOO_SLOW
    assert trio.current_time() - began == pytest.approx(15)


async def test_a_second_signal_that_comes_too_late_changes_nothing() -> None:
    async with stop_on_signals() as stop:
        stop.accepting()
        stop.signalled()
        stop.signalled()
    assert stop.end is End.DRAINED


async def test_the_handlers_are_given_back() -> None:
    before = [signal.getsignal(number) for number in BOTH]
    async with stop_on_signals():
        assert [signal.getsignal(number) for number in BOTH] != before
    assert [signal.getsignal(number) for number in BOTH] == before
