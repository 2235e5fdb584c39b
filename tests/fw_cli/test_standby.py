"""Commands on a PostgreSQL with a standby, which FW_DATABASE names first (O-24)."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.fw_cli.conftest import CommandLine
from tests.postgres_cluster import PostgresCluster, postgres_cluster

DATABASE = "replicated"


@pytest.fixture(scope="module")
def standby() -> Iterator[PostgresCluster]:
    """A read-only copy that has received nothing of the primary yet."""
    with postgres_cluster() as cluster:
        cluster.execute(f"CREATE DATABASE {DATABASE}")
        cluster.restart_as_standby()
        yield cluster


@pytest.fixture
def primary(cluster: PostgresCluster) -> Iterator[str]:
    """The URL of an empty database of the primary."""
    cluster.execute(f"CREATE DATABASE {DATABASE}")
    yield cluster.url(database=DATABASE)
    cluster.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")


@pytest.fixture
def site(
    fw: CommandLine, standby: PostgresCluster, cluster: PostgresCluster, primary: str
) -> CommandLine:
    """A site with a user, whose FW_DATABASE names the standby before the primary."""
    both = primary.replace(str(cluster.folder), f"{standby.folder},{cluster.folder}")
    fw.environ.update(FW_DATABASE=both, PATH="/usr/bin:/bin")
    fw.done("user", "add", "ada", "--email", "ada@x.test")
    return fw


def test_backup_and_restore_use_the_primary(site: CommandLine) -> None:
    """O-24, O-150. A backup of the standby would lack what it has not received."""
    site.done("backup", "copy.dump")
    site.done("user", "add", "later", "--email", "later@x.test")
    site.done("restore", "copy.dump", "--replace", "--yes")
    assert [row["name"] for row in site.json("user", "list", "--json")] == ["ada"]


def test_rekey_refuses_service_that_is_connected_to_the_primary(
    site: CommandLine, primary: str
) -> None:
    """O-24, O-326. The standby shows no connection of the service."""
    (site.folder / "new.key").write_text("n" * 40)
    (site.folder / "new.key").chmod(0o600)
    rekey = ("vault", "rekey", "--no-backup", "--new-key-file", "new.key")
    with psycopg.connect(primary, application_name="fw"):
        assert "stop every service and worker" in site.refused(*rekey)
    site.done(*rekey)
