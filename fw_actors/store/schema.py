"""The store's own tables. Times are whole milliseconds since the epoch.

The tables of DocTypes are created by `fw_actors.documents`. A change here needs a step in
`fw_actors.store.migrations`.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
)

from fw_actors.store.statement import partial_index

METADATA: Final = MetaData()

# SQLite numbers rows automatically only if the type is spelled INTEGER.
_ROW_ID: Final = BigInteger().with_variant(Integer(), "sqlite")


def _text(name: str) -> Column[Any]:
    """Return a text column that is never null; its default is empty."""
    return Column(name, Text, nullable=False, server_default="")


def _time(name: str) -> Column[Any]:
    return Column(name, BigInteger, nullable=False)


def _time_or_none(name: str) -> Column[Any]:
    return Column(name, BigInteger, nullable=True)


def _count(name: str) -> Column[Any]:
    return Column(name, Integer, nullable=False, server_default="0")


META: Final = Table(
    "fw_meta",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
"""Facts about the installation: `schema_version`, `installation_key` (32 bytes in hex),
`vault_rotation` once the Vault's key was rotated, and how far `payload_sweep` has come for each
final status."""

DATA_MIGRATION: Final = Table(
    "fw_data_migration",
    METADATA,
    Column("app", Text, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("name", Text, nullable=False),  # of its function
    Column("cursor", Text, nullable=True),  # JSON; where the next batch begins
    _time_or_none("done"),
)
"""The data migrations of apps that have begun or are done."""

PASSWORD: Final = Table(
    "fw_password",
    METADATA,
    Column("user", Text, primary_key=True),
    Column("hash", Text, nullable=False),
    _time("changed"),
)
"""Password hashes, which are not a field of the User document. An invited account has no row."""

PASSWORD_COST: Final = Table(
    "fw_password_cost",
    METADATA,
    Column("id", _ROW_ID, primary_key=True),
    Column("cost", Text, nullable=False),  # memory in KiB, time, parallelism, as in FW_ARGON2
    Column("hashes", Integer, nullable=False),
)
"""The number of hashes in `fw_password` by cost: the sum of all rows of that cost."""

IDENTIFIER: Final = Table(
    "fw_identifier",
    METADATA,
    Column("key", Text, primary_key=True),  # canonical form of a user's name or e-mail
    Column("user", Text, nullable=False),
    Index("fw_identifier_user", "user"),
)
"""Maps identifiers to accounts. Its key ensures that no name equals another account's e-mail."""

SERIES: Final = Table(
    "fw_series",
    METADATA,
    Column("prefix", Text, primary_key=True),
    Column("current", BigInteger, nullable=False),
)
"""The last number given out in each naming series."""

SESSION: Final = Table(
    "fw_session",
    METADATA,
    Column("id", Text, primary_key=True),  # the public handle that apps see; not the sid
    Column("sid_hash", LargeBinary, nullable=False, unique=True),
    Column("user", Text, nullable=False),
    _text("ip"),
    _text("user_agent"),
    _time("created"),
    _time("last_seen"),
    _time("expires"),
    Index("fw_session_user", "user"),
    Index("fw_session_expires", "expires"),
)

API_KEY: Final = Table(
    "fw_api_key",
    METADATA,
    Column("id", Text, primary_key=True),  # the name of the API Key document, and the public part
    Column("secret_hash", LargeBinary, nullable=False),  # SHA-256
)
"""The secret part of an API Key document, which is not a field of it."""

LOGIN_ATTEMPT: Final = Table(
    "fw_login_attempt",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("key", LargeBinary, nullable=False),  # HMAC of kind and canonical identifier
    _time("at"),
    Column("state", SmallInteger, nullable=False),  # 0 in flight, 1 failed
    _time_or_none("until"),
    # For an attempt from an IPv6 address: HMACs of the networks that contain it.
    Column("network_56", LargeBinary, nullable=True),
    Column("network_48", LargeBinary, nullable=True),
    Index("fw_login_attempt_key", "key", "at"),
    Index("fw_login_attempt_at", "at"),
    *(
        partial_index(
            f"fw_login_attempt_{name}",
            name,
            "at",
            where=f"{name} IS NOT NULL",
        )
        for name in ("network_56", "network_48")
    ),
    partial_index("fw_login_attempt_until", "until", "key", where="until IS NOT NULL"),
)

KNOWN_ADDRESS: Final = Table(
    "fw_known_address",
    METADATA,
    Column("user", Text, primary_key=True),
    Column("key", LargeBinary, primary_key=True),  # HMAC of the address, IPv6 per /64
    _time("seen"),
    Index("fw_known_address_seen", "seen"),
)
"""The addresses from which an account signed in, noted once a day for each; a few rows per user."""

KNOWN_DEVICE: Final = Table(
    "fw_known_device",
    METADATA,
    Column("user", Text, primary_key=True),
    Column("key", LargeBinary, primary_key=True),  # HMAC of kind of browser and network
    _time("seen"),
    Index("fw_known_device_seen", "seen"),
)
"""The devices with which an account signed in, noted once a day for each; a few rows per user."""

TOKEN: Final = Table(
    "fw_token",
    METADATA,
    Column("hash", LargeBinary, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("user", Text, nullable=False),
    _time("created"),
    _time("expires"),
    _time_or_none("spent"),
    Index("fw_token_user", "user", "kind"),
    Index("fw_token_expires", "expires"),
)

BULK_REPLAY: Final = Table(
    "fw_bulk_replay",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("user", Text, nullable=False),
    _text("request_id"),
    Column("filters", Text, nullable=False),  # JSON
    _text("last"),
    _text("cursor"),
    Column("state", Text, nullable=False),
    _count("total"),
    _count("replayed"),
    Column("reasons", Text, nullable=False),  # JSON: the number of refused deliveries by reason
    _text("error"),
    _time("begun"),
    _time_or_none("ended"),
)
"""The newest bulk replays: `fw_actors.webhooks.replay`."""

DELIVERY_ATTEMPT: Final = Table(
    "fw_delivery_attempt",
    METADATA,
    Column("delivery", Text, primary_key=True),
    Column("position", Integer, primary_key=True),  # among all attempts of the delivery
    Column("number", Integer, nullable=False),  # since the event, or the replay
    Column("status", Text, nullable=True),
    Column("next_attempt", BigInteger, nullable=True),
    Column("last_attempt", BigInteger, nullable=True),
    Column("response_status", BigInteger, nullable=True),
    Column("response_body", Text, nullable=True),
    Column("error", Text, nullable=True),
    Column("duration_ms", BigInteger, nullable=True),
    Column("trace", Text, nullable=True),
    Column("replayed", Text, nullable=True),
    Column("webhook", Text, nullable=True),
    Index("fw_delivery_attempt_time", "last_attempt"),
    Index("fw_delivery_attempt_webhook", "webhook", "last_attempt"),
    sqlite_with_rowid=False,
)
"""The attempts of deliveries except the last one, which is in columns of the same names in the
delivery's row: `fw_actors.webhooks.attempts`."""

WEBHOOK_HOUR: Final = Table(
    "fw_webhook_hour",
    METADATA,
    Column("webhook", Text, primary_key=True),
    Column("hour", BigInteger, primary_key=True),  # the beginning of the hour
    _count("sent"),
    _count("retried"),
    _count("failed"),
    Index("fw_webhook_hour_hour", "hour"),
    sqlite_with_rowid=False,
)
"""The number of outcomes of each Webhook in each hour of the last days."""

WEBHOOK_HEALTH: Final = Table(
    "fw_webhook_health",
    METADATA,
    Column("webhook", Text, primary_key=True),
    _count("failures"),  # since the last success
    _time_or_none("failing_since"),  # the first of them
    Column("last_error", Text, nullable=True),
    _time_or_none("last_failure"),
    _time_or_none("last_success"),
    # Reactions to failures, as the time of the first failure: the notice, and disabling the
    # Webhook.
    _time_or_none("noticed"),
    _count("notice_open"),  # 1 while the end of `noticed` has not been reported
    _time_or_none("disabled"),
)

WEBHOOK_CLAIM: Final = Table(
    "fw_webhook_claim",
    METADATA,
    Column("webhook", Text, primary_key=True),
    Column("used_until", BigInteger, nullable=False, server_default="0"),  # microseconds
)
"""The claim state of each Webhook with a rate limit or an order: the row that a claim locks, and
the time up to which its allowed requests are used (`fw_actors.webhooks.pacing`)."""

JOB: Final = Table(
    "fw_job",
    METADATA,
    Column("id", _ROW_ID, primary_key=True),
    Column("queue", Text, nullable=False),
    _text("partition"),
    _text("subject"),
    _text("function"),
    _text("arguments"),
    _text("user"),
    _time_or_none("next_at"),  # due time, or the lease's end; null if the job is never due
    _count("attempts"),
    _count("deaths"),
    Column("lease", Text, nullable=True),  # token of the holder
    _time("created"),
    Column("error", Text, nullable=True),
    Column("ordering_key", Text, nullable=True),  # of its partition; null for a job in no order
    Column("trace_context", Text, nullable=True),  # of a job or mail, when it was queued
    # Partial, so that finished rows cost nothing; begins with the columns of a claim.
    partial_index(
        "fw_job_due",
        "queue",
        "partition",
        "next_at",
        where="next_at IS NOT NULL",
    ),
    Index("fw_job_subject", "queue", "subject"),
    # Partial too: jobs without a key cost nothing. `fw_actors.store.ordered_jobs`
    *(
        partial_index(
            name,
            "partition",
            "ordering_key",
            *more,
            where=of,
        )
        for name, more, of in (
            ("fw_job_ordering_key", ("id",), "ordering_key IS NOT NULL"),
            (
                "fw_job_begun",
                (),
                "ordering_key IS NOT NULL AND (lease IS NOT NULL OR attempts > 0)",
            ),
        )
    ),
    sqlite_autoincrement=True,  # an id is never used twice
)
