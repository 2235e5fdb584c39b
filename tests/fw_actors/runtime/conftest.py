"""Fixtures of the runtime's tests: virtual time, a log book and a runtime."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fw_actors.runtime import Runtime, SeededEntropy, TrioClock, open_runtime
from tests.fw_actors.runtime.sample_actors import LogBook
from tests.virtual_time import in_virtual_time


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    in_virtual_time(items, Path(__file__).parent)


@pytest.fixture
def log() -> LogBook:
    return LogBook()


@pytest.fixture
async def runtime(log: LogBook) -> AsyncIterator[Runtime]:
    clock = TrioClock(1_700_000_000_000)
    async with open_runtime(clock=clock, entropy=SeededEntropy(1), log=log) as runtime:
        yield runtime
