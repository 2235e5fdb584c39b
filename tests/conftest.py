"""What tests of several folders need: a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres_cluster import PostgresCluster, postgres_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[PostgresCluster]:
    """A server for the whole run; tests fail, with what to install, where there is none."""
    with postgres_cluster() as cluster:
        yield cluster


@pytest.fixture
def postgres_url(cluster: PostgresCluster) -> Iterator[str]:
    """The URL of an empty schema."""
    with cluster.schema() as url:
        yield url
