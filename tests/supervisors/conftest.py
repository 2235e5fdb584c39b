"""What the tests of supervision share: virtual time, a runtime in it, and 50 orders of tasks."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from fw_actors.runtime import Runtime, SeededEntropy, TrioClock, open_runtime
from fw_actors.runtime.testing import task_order
from tests.fw_actors.runtime.sample_actors import LogBook
from tests.virtual_time import in_virtual_time

ORDERS: Final = int(os.environ.get("TASK_ORDERS", "50"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that has a runtime in many orders of trio's tasks."""
    if "order" in metafunc.fixturenames:
        metafunc.parametrize("order", range(ORDERS), indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    in_virtual_time(items, Path(__file__).parent)


@pytest.fixture
def order(request: pytest.FixtureRequest) -> Iterator[int]:
    """The seed of the order of tasks."""
    seed: int = request.param
    with task_order(seed):
        yield seed


@pytest.fixture
def log() -> LogBook:
    return LogBook()


@pytest.fixture
async def runtime(log: LogBook, order: int) -> AsyncIterator[Runtime]:
    clock = TrioClock(1_700_000_000_000)
    async with open_runtime(clock=clock, entropy=SeededEntropy(1), log=log) as runtime:
        yield runtime
