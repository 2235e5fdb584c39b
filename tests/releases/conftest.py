"""The wheels that tests of upgrades install, and their receiver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.installed_wheel import InstalledWheel
from tests.releases.upgrade_kit import (
    ALL_BUILDS,
    OldBuild,
    UpgradeReceiver,
    old_builds,
    upgrade_receiver,
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "old_build" in metafunc.fixturenames:
        builds = old_builds()
        if not ALL_BUILDS:
            is_backup = metafunc.module.__name__.endswith("test_upgrade")
            builds = (
                builds[-1:] if is_backup else builds[:1]
            )  # an older schema, or the last release
        metafunc.parametrize("old_build", builds, ids=lambda build: build.version)


@pytest.fixture
def wheels(
    tmp_path: Path, installed_wheel: InstalledWheel, old_build: OldBuild
) -> tuple[Path, Path]:
    """The older build's and this one's."""
    (tmp_path / "older").mkdir()
    return old_build.wheel(tmp_path / "older"), installed_wheel.wheel


@pytest.fixture
def receiver() -> Iterator[UpgradeReceiver]:
    """A receiver of the sites."""
    with upgrade_receiver() as receiver:
        yield receiver
