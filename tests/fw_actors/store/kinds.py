"""The two stores that the contract's tests run on, and their known differences."""

from __future__ import annotations

from typing import Any, Final

from fw_actors.store.statement import POSTGRESQL, SQLITE

KINDS: Final = (SQLITE, POSTGRESQL)

IN_ORDER: Final[dict[str, dict[str, Any]]] = {SQLITE: {}, POSTGRESQL: {"writer_threads": 1}}
"""Options that make writes run in sequence: several writers of PostgreSQL overlap."""

NO_TEXT: Final[dict[str, tuple[object, ...]]] = {
    SQLITE: (2**63, "\ud800", object()),
    POSTGRESQL: (2**63, "\ud800", object(), "nul \x00"),
}
"""Values that a column for text refuses."""

ANOTHER_TRANSACTION: Final[dict[str, tuple[str, ...]]] = {
    SQLITE: (
        "BEGIN IMMEDIATE",
        "ROLLBACK TO member",
        "ATTACH '/tmp/other.db' AS other",
        "DETACH main",
        "PRAGMA synchronous=OFF",
    ),
    POSTGRESQL: (
        "START TRANSACTION",
        "COMMIT AND CHAIN",
        "PREPARE TRANSACTION 'x'",
        "SET lock_timeout = 0",
        "RESET ALL",
        "DISCARD ALL",
        "LISTEN other",
        "DO 'BEGIN COMMIT; END'",
        "SELECT pg_advisory_lock(1)",
        "SELECT set_config('lock_timeout', '0', false)",
    ),
}
"""Raw SQL of one dialect that would reach beyond the transaction."""
