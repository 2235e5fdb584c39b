"""Schemas on PostgreSQL that one test leaves to the next, emptied: to make the tables of a site
takes fifteen times as long as all else that a test does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from psycopg import sql

from tests.postgres_cluster import PostgresCluster

_LOCK: Final = "SET lock_timeout = '10s'"  # a connection that a test left open fails here
# The installation's key and the version stay: they are as old as the tables.
_EMPTY: Final = """
DO $$
DECLARE one text;
BEGIN
    FOR one IN SELECT oid::regclass FROM pg_class
        WHERE relkind = 'r' AND relnamespace = {schema}::regnamespace AND relname <> 'fw_meta'
    LOOP EXECUTE 'DELETE FROM ' || one; END LOOP;
    IF to_regclass({schema} || '.fw_meta') IS NOT NULL THEN
        EXECUTE 'DELETE FROM ' || {schema}
            || '.fw_meta WHERE key NOT IN (''schema_version'', ''installation_key'')';
    END IF;
    FOR one IN SELECT oid::regclass FROM pg_class
        WHERE relkind = 'S' AND relnamespace = {schema}::regnamespace
    LOOP PERFORM setval(one, 1, false); END LOOP;
END $$
"""
_SHAPE: Final = """
SELECT md5(string_agg(one, ',' ORDER BY one)) FROM (
    SELECT concat_ws(' ', relname, attname, format_type(atttypid, atttypmod), attnotnull) AS one
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
    WHERE relnamespace = {schema}::regnamespace AND attnum > 0 AND NOT attisdropped
) AS found
"""


class _Kept(NamedTuple):
    name: str
    shape: str | None


class KeptSchemas:
    """Lends schemas. One whose tables a test has changed is not lent again."""

    def __init__(self, cluster: PostgresCluster) -> None:
        self._cluster = cluster
        self._kept: dict[Path, _Kept] = {}

    @contextmanager
    def lend(self, folder: Path) -> Iterator[str]:
        """Give the URL of a schema for a test of `folder`, whose sites have the same DocTypes."""
        before = self._kept.pop(folder, None)
        name = before.name if before is not None else self._cluster.new_schema()
        try:
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
        owner = self._cluster.owner
        owner.execute(_LOCK)
        owner.execute(sql.SQL(_EMPTY).format(schema=schema))
        row = owner.execute(sql.SQL(_SHAPE).format(schema=schema)).fetchone()
        return None if row is None else row[0]
