"""The contents of a simulated site's store: the rows that promises are about, read in one go."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple


class Delivery(NamedTuple):
    """A Webhook Delivery as it stands in the store."""

    status: str
    attempts: int
    max_attempts: int
    next_attempt: int | None
    last_attempt: int | None
    payload: str | None
    webhook: str
    event: str
    reference: str | None
    sent: int | None
    error: str | None
    answer: str | None
    erased: int | None


class JobRow(NamedTuple):
    """A row of the queue."""

    queue: str
    subject: str
    next_at: int | None
    lease: str | None
    attempts: int
    partition: str
    ordering_key: str | None

    @property
    def waits(self) -> bool:
        """Whether it is due at some time, or parked until an earlier one of its key has ended."""
        return self.next_at is not None or self.ordering_key is not None


class WebhookRow(NamedTuple):
    """A Webhook's row: `paused_until` is None without a pause; secrets are sealed."""

    max_attempts: int
    enabled: int
    paused_until: int | None
    rate_limit: int
    ordering: str
    row_id: str
    secret: str | None
    old_secret: str | None
    old_until: int | None

    @property
    def ordered(self) -> bool:
        """Whether one delivery of a document is in flight at a time."""
        return bool(self.enabled) and self.ordering == "document"


class PasswordRow(NamedTuple):
    """A user's hash (two passwords may be set in one millisecond), sessions and open links."""

    hashed: str | None
    sessions: frozenset[str]
    links: frozenset[str]


@dataclass(frozen=True)
class StoredState:
    """The rows that promises are about."""

    deliveries: Mapping[str, Delivery] = field(default_factory=dict)
    jobs: Mapping[int, JobRow] = field(default_factory=dict)
    mails: Mapping[str, str] = field(default_factory=dict)
    passwords: Mapping[str, PasswordRow] = field(default_factory=dict)
    hooks: Mapping[str, WebhookRow] = field(default_factory=dict)
    impossible: tuple[str, ...] = ()
    """What no transaction may leave behind."""


_DELIVERIES: Final = """SELECT name, status, attempts, max_attempts, next_attempt, last_attempt,
    payload, webhook, event, reference_name, sent, error, response_body, erased
    FROM doc_webhook_delivery"""
_JOBS: Final = """SELECT id, queue, subject, next_at, lease, attempts, partition, ordering_key
    FROM fw_job"""
_MAILS: Final = "SELECT name, status FROM doc_email_delivery"
_PASSWORDS: Final = """SELECT u.name, p.hash,
    (SELECT group_concat(id) FROM fw_session s WHERE s.user = u.name),
    (SELECT group_concat(kind || ' ' || hex(hash)) FROM fw_token t
        WHERE t.user = u.name AND t.spent IS NULL)
    FROM doc_user u LEFT JOIN fw_password p ON p.user = u.name"""
_HOOKS: Final = """SELECT name, max_attempts, enabled,
    CASE WHEN paused_since IS NOT NULL THEN coalesce(paused_until, 9e15) END,
    coalesce(rate_limit, 0), ordering, row_id, secret, old_secret, old_secret_until
    FROM doc_webhook"""
# Rows that are there in part, or that outlive what they were good for.
_IMPOSSIBLE: Final = """
    SELECT 'a session of ' || user FROM fw_session
        WHERE user NOT IN (SELECT name FROM doc_user WHERE enabled = 1)
    UNION ALL SELECT 'an open link of ' || user FROM fw_token
        WHERE spent IS NULL AND user NOT IN (SELECT name FROM doc_user WHERE enabled = 1)
    UNION ALL SELECT 'an API key of ' || user FROM doc_api_key
        WHERE user NOT IN (SELECT name FROM doc_user WHERE enabled = 1)
    UNION ALL SELECT 'an API key without its secret, ' || name FROM doc_api_key
        WHERE name NOT IN (SELECT id FROM fw_api_key)
    UNION ALL SELECT 'the secret of no API key, ' || id FROM fw_api_key
        WHERE id NOT IN (SELECT name FROM doc_api_key)
    UNION ALL SELECT 'an answer of the erased ' || name FROM doc_webhook_delivery d
        WHERE erased IS NOT NULL AND (payload IS NOT NULL OR response_body IS NOT NULL OR EXISTS
            (SELECT 1 FROM fw_delivery_attempt a
                WHERE a.delivery = d.name AND a.response_body IS NOT NULL))
    UNION ALL SELECT 'a line of no ticket, ' || parent FROM doc_ticketline
        WHERE parent NOT IN (SELECT name FROM doc_ticket)"""


def read(database: sqlite3.Connection) -> StoredState:
    """Return the state of this moment."""
    execute = database.execute
    execute("BEGIN")
    try:
        return StoredState(
            {row[0]: Delivery(*row[1:]) for row in execute(_DELIVERIES)},
            {row[0]: JobRow(*row[1:]) for row in execute(_JOBS)},
            dict(execute(_MAILS).fetchall()),
            {row[0]: _password(row) for row in execute(_PASSWORDS)},
            {row[0]: WebhookRow(*row[1:]) for row in execute(_HOOKS)},
            tuple(row[0] for row in execute(_IMPOSSIBLE)),
        )
    finally:
        execute("COMMIT")


def _password(row: tuple[Any, ...]) -> PasswordRow:
    sessions, links = (frozenset((text or "").split(",")) - {""} for text in row[2:4])
    return PasswordRow(row[1], sessions, links)
