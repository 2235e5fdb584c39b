"""A running service, one for all modules of this folder that a process runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live_site import LiveSite


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    """A site with the manager `admin`."""
    with LiveSite(tmp_path_factory.mktemp("client")) as site:
        site.add_manager()
        site.start()
        yield site
