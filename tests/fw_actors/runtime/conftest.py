"""Fixtures of the runtime's tests: virtual time, a log book and a runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from fw_actors.runtime import Runtime
from fw_actors.runtime.pytest_plugin import actor_log, actor_runtime
from fw_actors.runtime.testing import LogBook
from tests.virtual_time import in_virtual_time

__all__ = ["actor_log", "actor_runtime"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    in_virtual_time(items, Path(__file__).parent)


@pytest.fixture
def log(actor_log: LogBook) -> LogBook:
    return actor_log


@pytest.fixture
def runtime(actor_runtime: Runtime) -> Runtime:
    return actor_runtime
