"""A plugin for pytest, beside pytest-trio. It must be named to be loaded.

    pytest -p fw_actors.runtime.pytest_plugin        # or in the first conftest.py:
    pytest_plugins = ["fw_actors.runtime.pytest_plugin"]

It has the fixtures `actor_runtime`, an open runtime, and `actor_log`, the log of that runtime.
Tests with that runtime run in virtual time: a clock at 0 that jumps when all tasks wait. The option
`--only-seed` chooses one seed for all tests with `@seeds`.
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
    """Take over the option."""
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
    """Mark an async test: a clock that it names itself is used instead.

    pytest-trio uses a clock fixture only where a test names it, not where another fixture does.
    """
    if iscoroutinefunction(getattr(item, "obj", None)):
        item.add_marker(pytest.mark.trio(run=_run), append=False)


def _run(
    fn: Callable[..., Awaitable[Any]], *, clock: Clock | None, instruments: Sequence[Instrument]
) -> Any:
    """Stand in for `trio.run`."""
    clock = clock or MockClock(autojump_threshold=0)
    return trio.run(fn, clock=clock, instruments=instruments)
