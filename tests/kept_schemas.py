"""Schemas on PostgreSQL that one test leaves to the next, emptied, with their connections: to make
the tables of a site takes fifteen times as long as all else that a test does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from tests.postgres_cluster import PostgresCluster

# The installation's key and the version stay: they are as old as the tables.
_EMPTY: Final = """
SET lock_timeout = '10s'; -- a connection that a test left open fails here
DO $$
DECLARE one text;
BEGIN
    FOR one IN SELECT oid::regclass FROM pg_class
        WHERE relkind = 'r' AND relnamespace = {schema}::regnamespace AND relname <> 'fw_meta'
            AND pg_relation_size(oid) > 0
    LOOP EXECUTE 'DELETE FROM ' || one; END LOOP;
    IF to_regclass({schema} || '.fw_meta') IS NOT NULL THEN
        EXECUTE 'DELETE FROM ' || {schema}
            || '.fw_meta WHERE key NOT IN (''schema_version'', ''installation_key'')';
    END IF;
    FOR one IN SELECT oid::regclass FROM pg_class
        WHERE relkind = 'S' AND relnamespace = {schema}::regnamespace
    LOOP PERFORM setval(one, 1, false); END LOOP;
END $$;
SELECT md5(string_agg(one, ',' ORDER BY one)) FROM (
    SELECT concat_ws(' ', relname, attname, format_type(atttypid, atttypmod), attnotnull) AS one
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
    WHERE relnamespace = {schema}::regnamespace AND attnum > 0 AND NOT attisdropped
) AS one_of_each
"""


# A ROLLBACK makes psycopg deallocate its prepared statements: a test may make tables anew. Beside a
# connection of the name `fw`, `fw vault rekey` would refuse to run.
_RESET: Final = (
    b"RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD TEMP; ROLLBACK; "
    b"SET application_name = 'kept'"
)
_LEND: Final = b"RESET application_name"
_MAX_KEPT: Final = 4


class _KeptConnection(psycopg.Connection[Any]):
    """A connection that is kept when it is closed, unless something may still happen on it."""

    keeper: KeptConnections
    was_cancelled = False

    def cancel_safe(self, *, timeout: float = 30.0) -> None:
        self.was_cancelled = True
        super().cancel_safe(timeout=timeout)

    def close(self) -> None:
        if self.closed or not self.keeper.keep(self):
            super().close()


class KeptConnections:
    """Connections of stores to one schema at a time. A new backend fills its caches anew for each
    table, which takes longer than most of what a test has it do."""

    def __init__(self, cluster: PostgresCluster) -> None:
        self._host = str(cluster.folder)
        self._schema = ""
        self._idle: list[_KeptConnection] = []

    @contextmanager
    def lend(self, schema: str) -> Iterator[None]:
        """Keep the connections to `schema` that stores open and close in the block."""
        if schema != self._schema:
            self.close()
            self._schema = schema
        with patch.object(psycopg, "connect", self._connect):
            yield

    def keep(self, connection: _KeptConnection) -> bool:
        """Reset a connection and keep it; return whether that was possible."""
        if (
            connection.was_cancelled  # a late cancellation could reach the next test
            or connection.pgconn.transaction_status != TransactionStatus.IDLE
            or len(self._idle) >= _MAX_KEPT
        ):
            return False
        try:
            connection.execute(_RESET)
            for _ in connection.notifies(timeout=0):
                pass
        except psycopg.Error:
            return False
        self._idle.append(connection)
        return True

    def close(self) -> None:
        """Close all that are idle."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.was_cancelled = True
            connection.close()

    def _connect(self, conninfo: str = "", **settings: Any) -> psycopg.Connection[Any]:
        purpose = {"host": self._host, "options": f"-csearch_path={self._schema}"}
        if {**settings, **purpose, "application_name": "fw"} != settings:
            return psycopg.Connection.connect(conninfo, **settings)
        with suppress(IndexError):  # not tested before: stores with threads connect at once
            kept = self._idle.pop()
            kept.execute(_LEND)
            return kept
        connection = _KeptConnection.connect(conninfo, **settings)
        connection.keeper = self
        return connection


class _Kept(NamedTuple):
    name: str
    shape: str | None


class KeptSchemas:
    """Lends schemas. One whose tables a test has changed is not lent again."""

    def __init__(self, cluster: PostgresCluster) -> None:
        self._cluster = cluster
        self._kept: dict[Path, _Kept] = {}
        self._connections = KeptConnections(cluster)

    def close(self) -> None:
        """Close the connections that are kept."""
        self._connections.close()

    @contextmanager
    def lend(self, folder: Path) -> Iterator[str]:
        """Give the URL of a schema for a test of `folder`, whose sites have the same DocTypes."""
        before = self._kept.pop(folder, None)
        name = before.name if before is not None else self._cluster.new_schema()
        try:
            with self._connections.lend(name):
                yield self._cluster.url(name)
        finally:
            shape = self._emptied(name)
            if before is None or before.shape == shape:
                self._kept[folder] = _Kept(name, shape)
            else:
                self._cluster.drop_schema(name)

    def _emptied(self, name: str) -> str | None:
        """Empty a schema's tables; return what distinguishes them from others."""
        schema = sql.Literal(name)
        results = self._cluster.owner.execute(sql.SQL(_EMPTY).format(schema=schema))
        while results.nextset():
            pass
        row = results.fetchone()
        return None if row is None else row[0]
