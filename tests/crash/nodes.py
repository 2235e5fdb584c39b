"""Sites of real processes for the tests of crashes: one alone, or several nodes on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.crash.rounds import OPS
from tests.live_site import LiveSite
from tests.site_kit import keep_database_at


def one_site(folder: Path, processes: int = 1) -> LiveSite:
    """Return a site whose deliveries wait only shortly between attempts."""
    return LiveSite(folder, ops={**OPS, "processes": processes})


@contextmanager
def several_nodes(folder: Path, url: str, count: int) -> Iterator[list[LiveSite]]:
    """Make the folders of nodes that share the database at `url`; their processes end with it."""
    with ExitStack() as stack:
        nodes = []
        for number in range(count):
            own = folder / f"node{number}"
            own.mkdir()
            keep_database_at(own, url)
            nodes.append(stack.enter_context(one_site(own)))
        yield nodes
