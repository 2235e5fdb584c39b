"""The wheels that tests of upgrades install, and their receiver."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.installed_wheel import InstalledWheel
from tests.releases.upgrade_kit import OldBuild, UpgradeReceiver, old_builds, upgrade_receiver

OF_A_NIGHT = ("test_full_site", "test_rolling_upgrade")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "old_build" in metafunc.fixturenames:
        builds = old_builds()
        if metafunc.module.__name__.endswith(OF_A_NIGHT) and not os.environ.get("ALL_BUILDS"):
            builds = builds[:1]  # the last release
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
