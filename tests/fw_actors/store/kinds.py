"""The two stores that the contract's tests run on, and every difference that they know of."""

from __future__ import annotations

from typing import Any, Final

from fw_actors.store.statement import POSTGRESQL, SQLITE

KINDS: Final = (SQLITE, POSTGRESQL)

IN_ORDER: Final[dict[str, dict[str, Any]]] = {SQLITE: {}, POSTGRESQL: {"writer_threads": 1}}
"""What makes writes run one after another: PostgreSQL's overlap where it has several writers."""

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
"""Raw SQL, beyond what both have, that would reach beyond the transaction."""
