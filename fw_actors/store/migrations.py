"""Brings a database to the tables that this program knows.

A new database gets `fw_actors.store.schema` as it stands; an older one gets the numbered steps that
it lacks. A test compares the results of both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    bindparam,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

from fw_actors.errors import ConfigurationError
from fw_actors.runtime.clock import Entropy
from fw_actors.store.backup import RESTORING
from fw_actors.store.schema import META, METADATA
from fw_actors.store.statement import Statement, partial_index
from fw_actors.store.transaction import Tx

INSTALLATION_KEY_BYTES: Final = 32
FIRST_VERSION: Final = 1

SCHEMA_VERSION_KEY: Final = "schema_version"
INSTALLATION_KEY: Final = "installation_key"

_GET: Final = Statement(select(META.c.value).where(META.c.key == bindparam("name")))
_PUT: Final = Statement(insert(META).values(key=bindparam("name"), value=bindparam("content")))
_SET_VERSION: Final = Statement(
    update(META).where(META.c.key == SCHEMA_VERSION_KEY).values(value=bindparam("content"))
)


@dataclass(frozen=True)
class MigrationStep:
    """One change of the schema: brings a database from `version - 1` to `version`."""

    version: int
    apply: Callable[[Tx], None]


# As of this step, independent of later changes to the schema.
_API_KEY: Final = Table(
    "fw_api_key",
    MetaData(),
    Column("id", Text, primary_key=True),
    Column("secret_hash", LargeBinary, nullable=False),
)


_BULK_REPLAY: Final = Table(
    "fw_bulk_replay",
    MetaData(),
    Column("id", Text, primary_key=True),
    Column("user", Text, nullable=False),
    Column("request_id", Text, nullable=False, server_default=""),
    Column("filters", Text, nullable=False),
    Column("last", Text, nullable=False, server_default=""),
    Column("cursor", Text, nullable=False, server_default=""),
    Column("state", Text, nullable=False),
    Column("total", Integer, nullable=False, server_default="0"),
    Column("replayed", Integer, nullable=False, server_default="0"),
    Column("reasons", Text, nullable=False),
    Column("error", Text, nullable=False, server_default=""),
    Column("begun", BigInteger, nullable=False),
    Column("ended", BigInteger, nullable=True),
)


_PASSWORD: Final = Table(
    "fw_password", MetaData(), Column("user", Text, primary_key=True), Column("hash", Text)
)
_PASSWORD_COST: Final = Table(
    "fw_password_cost",
    MetaData(),
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True),
    Column("cost", Text, nullable=False),
    Column("hashes", Integer, nullable=False),
)
_NETWORKS: Final = Table(
    "fw_login_attempt",
    MetaData(),
    Column("at", BigInteger, nullable=False),
    *(Column(name, LargeBinary, nullable=True) for name in ("network_56", "network_48")),
    *(
        partial_index(
            f"fw_login_attempt_{name}",
            name,
            "at",
            where=f"{name} IS NOT NULL",
        )
        for name in ("network_56", "network_48")
    ),
)
_KNOWN_ADDRESS: Final = Table(
    "fw_known_address",
    MetaData(),
    Column("user", Text, primary_key=True),
    Column("key", LargeBinary, primary_key=True),
    Column("seen", BigInteger, nullable=False),
    Index("fw_known_address_seen", "seen"),
)
_DELIVERY_ATTEMPT: Final = Table(
    "fw_delivery_attempt",
    MetaData(),
    Column("delivery", Text, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("number", Integer, nullable=False),
    Column("status", Text, nullable=True),
    Column("next_attempt", BigInteger, nullable=True),
    Column("last_attempt", BigInteger, nullable=True),
    Column("response_status", BigInteger, nullable=True),
    Column("response_body", Text, nullable=True),
    Column("error", Text, nullable=True),
    Column("duration_ms", BigInteger, nullable=True),
    Column("trace", Text, nullable=True),
    Column("replayed", Text, nullable=True),
    sqlite_with_rowid=False,
)
_WEBHOOK_HOUR: Final = Table(
    "fw_webhook_hour",
    MetaData(),
    Column("webhook", Text, primary_key=True),
    Column("hour", BigInteger, primary_key=True),
    *(
        Column(name, Integer, nullable=False, server_default="0")
        for name in ("sent", "retried", "failed")
    ),
    Index("fw_webhook_hour_hour", "hour"),
    sqlite_with_rowid=False,
)
_WEBHOOK_HEALTH: Final = Table(
    "fw_webhook_health",
    MetaData(),
    Column("webhook", Text, primary_key=True),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("failing_since", BigInteger, nullable=True),
    Column("last_error", Text, nullable=True),
    Column("last_failure", BigInteger, nullable=True),
    Column("last_success", BigInteger, nullable=True),
)
_RECEIVER_NOTICES: Final = Table(
    "fw_webhook_health",
    MetaData(),
    Column("noticed", BigInteger, nullable=True),
    Column("notice_open", Integer, nullable=False, server_default="0"),
    Column("disabled", BigInteger, nullable=True),
)
_WEBHOOK_CLAIM: Final = Table(
    "fw_webhook_claim",
    MetaData(),
    Column("webhook", Text, primary_key=True),
    Column("used_until", BigInteger, nullable=False, server_default="0"),
)
_LANES: Final = Table(
    "fw_job",
    MetaData(),
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True),
    Column("partition", Text, nullable=False),
    Column("lane", Text, nullable=True),
    *(
        partial_index(
            name,
            "partition",
            "lane",
            *more,
            where=of,
        )
        for name, more, of in (
            ("fw_job_lane", ("id",), "lane IS NOT NULL"),
            ("fw_job_begun", (), "lane IS NOT NULL AND (lease IS NOT NULL OR attempts > 0)"),
        )
    ),
)
_ORDERING_KEYS: Final = Table(
    "fw_job",
    MetaData(),
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True),
    Column("partition", Text, nullable=False),
    Column("ordering_key", Text, nullable=True),
    partial_index(
        "fw_job_ordering_key",
        "partition",
        "ordering_key",
        "id",
        where="ordering_key IS NOT NULL",
    ),
)
_KNOWN_DEVICE: Final = Table(
    "fw_known_device",
    MetaData(),
    Column("user", Text, primary_key=True),
    Column("key", LargeBinary, primary_key=True),
    Column("seen", BigInteger, nullable=False),
    Index("fw_known_device_seen", "seen"),
)
_ATTEMPTS_BY_TIME: Final = Table(
    "fw_delivery_attempt",
    MetaData(),
    Column("delivery", Text, primary_key=True),
    Column("last_attempt", BigInteger, nullable=True),
    Column("webhook", Text, nullable=True),
    Index("fw_delivery_attempt_time", "last_attempt"),
    Index("fw_delivery_attempt_webhook", "webhook", "last_attempt"),
)
_LOCKS: Final = Table(
    "fw_login_attempt",
    MetaData(),
    Column("id", Text, primary_key=True),
    Column("key", LargeBinary, nullable=False),
    Column("until", BigInteger, nullable=True),
    partial_index("fw_login_attempt_until", "until", "key", where="until IS NOT NULL"),
)
_DATA_MIGRATION: Final = Table(
    "fw_data_migration",
    MetaData(),
    Column("app", Text, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("cursor", Text, nullable=True),
    Column("done", BigInteger, nullable=True),
)
_JOB_TRACES: Final = Table("fw_job", MetaData(), Column("trace_context", Text, nullable=True))
HASH_PAGE: Final = 10_000
_COST: Final = re.compile(r"\$argon2[a-z]+\$(?:v=\d+\$)?m=(\d{1,7}),t=(\d{1,2}),p=(\d{1,2})\$")


class AddColumn(ExecutableDDLElement):
    """ALTER TABLE … ADD COLUMN, which Core itself has no construct for."""

    inherit_cache = False

    def __init__(self, column: Column[Any]) -> None:
        self.column = column


@compiles(AddColumn)
def _compile_add_column(element: AddColumn, compiler: Any, **_given: Any) -> str:
    table = compiler.preparer.format_table(element.column.table)
    return f"ALTER TABLE {table} ADD COLUMN {compiler.get_column_specification(element.column)}"


def _create_table(tx: Tx, table: Table) -> None:
    tx.run(_creation(table))
    _create_indexes(tx, table)


def _create_indexes(tx: Tx, table: Table) -> None:
    for creation in _index_creations(table):
        tx.run(creation)


@cache  # of the tables in this module and in the schema; processes that make many stores gain
def _creation(table: Table) -> Statement:
    return Statement(CreateTable(table, if_not_exists=True))


@cache
def _index_creations(table: Table) -> tuple[Statement, ...]:
    ordered = sorted(table.indexes, key=lambda index: str(index.name))
    return tuple(Statement(CreateIndex(index)) for index in ordered)


def _password_costs(tx: Tx) -> None:
    """Create the table and count the existing hashes."""
    _create_table(tx, _PASSWORD_COST)
    page = Statement(
        select(_PASSWORD.c.user, _PASSWORD.c.hash)
        .where(_PASSWORD.c.user > bindparam("last"))
        .order_by(_PASSWORD.c.user)
        .limit(HASH_PAGE)
    )
    counts: Counter[str] = Counter()
    rows = tx.rows(page, last="")
    while rows:
        found = (_COST.match(text) for _, text in rows)
        counts.update(",".join(cost.groups()) for cost in found if cost is not None)
        rows = tx.rows(page, last=rows[-1][0])
    for cost, hashes in counts.items():
        tx.run(insert(_PASSWORD_COST).values(cost=cost, hashes=hashes))


def _networks(tx: Tx) -> None:
    """Add the counters of wider networks, and the table of known addresses."""
    for name in ("network_56", "network_48"):
        tx.run(AddColumn(_NETWORKS.c[name]))
    _create_indexes(tx, _NETWORKS)
    _create_table(tx, _KNOWN_ADDRESS)


def _receiver_notices(tx: Tx) -> None:
    """Add the columns for reported failures of receivers."""
    for column in _RECEIVER_NOTICES.c:
        tx.run(AddColumn(column))


def _lanes(tx: Tx) -> None:
    """Add a column for the ordering key of jobs; waiting jobs have none."""
    tx.run(AddColumn(_LANES.c.lane))
    _create_indexes(tx, _LANES)


def _ordering_keys(tx: Tx) -> None:
    """Rename the lanes of jobs to ordering keys. Some builds created them under the new name."""
    (jobs,) = tx.layouts(["fw_job"])
    if "lane" not in jobs.columns:
        return
    tx.run(text("ALTER TABLE fw_job RENAME COLUMN lane TO ordering_key"))
    tx.run(text("DROP INDEX fw_job_lane"))
    _create_indexes(tx, _ORDERING_KEYS)


def _attempts_by_time(tx: Tx) -> None:
    """Write the Webhook of earlier attempts, and index attempts by time."""
    tx.run(AddColumn(_ATTEMPTS_BY_TIME.c.webhook))
    (deliveries,) = tx.layouts(["doc_webhook_delivery"])
    if deliveries.columns:
        tx.run(
            text(
                "UPDATE fw_delivery_attempt SET webhook = (SELECT d.webhook"
                " FROM doc_webhook_delivery d WHERE d.name = fw_delivery_attempt.delivery)"
            )
        )
    _create_indexes(tx, _ATTEMPTS_BY_TIME)


def _job_traces(tx: Tx) -> None:
    """Add a column for the trace in which a job was queued; waiting jobs have none."""
    tx.run(AddColumn(_JOB_TRACES.c.trace_context))


# In order, from FIRST_VERSION + 1, without gaps. A step that has been released is never changed. A
# step only adds what the last release can ignore, whose nodes serve on meanwhile (O-29).
STEPS: Final[tuple[MigrationStep, ...]] = (
    MigrationStep(2, partial(_create_table, table=_API_KEY)),
    MigrationStep(3, partial(_create_table, table=_BULK_REPLAY)),
    MigrationStep(4, _password_costs),
    MigrationStep(5, _networks),
    MigrationStep(6, partial(_create_table, table=_DELIVERY_ATTEMPT)),
    MigrationStep(7, partial(_create_table, table=_WEBHOOK_HOUR)),
    MigrationStep(8, partial(_create_table, table=_WEBHOOK_HEALTH)),
    MigrationStep(9, _receiver_notices),
    MigrationStep(10, partial(_create_table, table=_WEBHOOK_CLAIM)),
    MigrationStep(11, _lanes),
    MigrationStep(12, partial(_create_table, table=_KNOWN_DEVICE)),
    MigrationStep(13, _ordering_keys),
    MigrationStep(14, _attempts_by_time),
    MigrationStep(15, partial(_create_table, table=_DATA_MIGRATION)),
    MigrationStep(16, _job_traces),
    MigrationStep(17, partial(_create_indexes, table=_LOCKS)),
)


def is_migrated(tx: Tx) -> bool:
    """Return whether `migrate` would change nothing. It only reads."""
    newest = str(FIRST_VERSION + len(STEPS))
    return bool(tx.columns(META.name)) and bool(tx.scalar(_GET, name=SCHEMA_VERSION_KEY) == newest)


def migrate(tx: Tx, entropy: Entropy, steps: Sequence[MigrationStep] = STEPS) -> int:
    """Bring the database to the newest version, inside one `Store.write`.

    If two processes migrate at once, the second waits for the transaction of the first, and then
    finds nothing to do.

    Returns: the version that it had before, 0 for a new database.
    Raises: ConfigurationError when the database is newer than this program.
    """
    tx.lock("fw.migrations")
    tx.run(_creation(META))
    found = tx.scalar(_GET, name=SCHEMA_VERSION_KEY)
    before = 0 if found is None else int(found)
    newest = FIRST_VERSION + len(steps)
    if before > newest:
        raise ConfigurationError(
            [
                f"The database has version {before} and this program knows {newest}: "
                "a newer program has used it. Start that one, or restore a backup."
            ]
        )
    if before == 0:
        _create(tx, newest, entropy)
    else:
        _upgrade(tx, before, steps)
    return before


def end_restore(tx: Tx) -> None:
    """End a restore, in the transaction that ends the access which the backup revives."""
    tx.run(text(f"DROP TABLE IF EXISTS {RESTORING}"))


def installation_key(tx: Tx) -> bytes:
    """Return the 32 random bytes that were made together with this database."""
    return bytes.fromhex(tx.scalar(_GET, name=INSTALLATION_KEY))


def _create(tx: Tx, version: int, entropy: Entropy) -> None:
    for table in METADATA.sorted_tables:
        _create_table(tx, table)
    tx.run(_PUT, name=SCHEMA_VERSION_KEY, content=str(version))
    tx.run(_PUT, name=INSTALLATION_KEY, content=entropy.bytes(INSTALLATION_KEY_BYTES).hex())


def _upgrade(tx: Tx, before: int, steps: Sequence[MigrationStep]) -> None:
    for step in steps:
        if step.version > before:
            step.apply(tx)
            tx.run(_SET_VERSION, content=str(step.version))
