"""A plugin for pytest, used with pytest-trio. It must be enabled explicitly.

    pytest -p fw_actors.runtime.pytest_plugin        # or in the first conftest.py:
    pytest_plugins = ["fw_actors.runtime.pytest_plugin"]

It has the fixtures `actor_runtime`, an open runtime, and `actor_log`, the log of that runtime.
Tests with that runtime run in virtual time, with a clock that starts at 0 and jumps when all tasks
wait. The option `--only-seed` selects one seed for all tests with `@seeds`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any

import pytest
import trio
from trio.abc import Clock, Instrument
from trio.testing import MockClock

from fw_actors.runtime.clock import SeededEntropy, TrioClock
from fw_actors.runtime.system import Runtime, open_runtime
from fw_actors.runtime.testing import START_MS, LogBook, SeedOption


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--only-seed`."""
    parser.getgroup("actors").addoption(
        "--only-seed", type=int, help="Run tests with @seeds under this seed alone."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Store the value of the option."""
    SeedOption.only = config.getoption("--only-seed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests with an `actor_runtime` in virtual time."""
    for item in items:
        if "actor_runtime" in getattr(item, "fixturenames", ()):
            run_in_virtual_time(item)


@pytest.fixture
def actor_log() -> LogBook:
    """The log of `actor_runtime`."""
    return LogBook()


@pytest.fixture
async def actor_runtime(actor_log: LogBook) -> AsyncIterator[Runtime]:
    """A runtime in virtual time."""
    clock, entropy = TrioClock(START_MS), SeededEntropy(1)
    async with open_runtime(clock=clock, entropy=entropy, log=actor_log) as runtime:
        yield runtime


def run_in_virtual_time(item: pytest.Item) -> None:
    """Make an async test run in virtual time, unless it requests its own clock.

    pytest-trio uses a clock fixture only if the test requests it, not if another fixture does.
    """
    if iscoroutinefunction(getattr(item, "obj", None)):
        item.add_marker(pytest.mark.trio(run=_run), append=False)


def _run(
    fn: Callable[..., Awaitable[Any]], *, clock: Clock | None, instruments: Sequence[Instrument]
) -> Any:
    """Replace `trio.run`."""
    clock = clock or MockClock(autojump_threshold=0)
    return trio.run(fn, clock=clock, instruments=instruments)
