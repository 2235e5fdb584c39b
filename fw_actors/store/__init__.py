"""The store: durable transactions, the tables that the service itself needs, and jobs."""

from fw_actors.store.executor import THREAD_SWITCH_SECONDS
from fw_actors.store.jobs import LeasedJob, QueueHead, QueueStats
from fw_actors.store.migrations import installation_key
from fw_actors.store.query_limits import Like
from fw_actors.store.statement import (
    AllRows,
    ConstraintViolation,
    FramedRow,
    FramedRows,
    JsonRows,
    Octets,
    PlainText,
    Statement,
    StatementError,
    StoreError,
    TextBytes,
    UniqueViolation,
    deletion_of_oldest,
    earlier,
    one_of,
    partial_index,
    read_frames,
    rows_as_json,
    update_of_times_ahead,
)
from fw_actors.store.store import Store, StoreStatistics, UserShares
from fw_actors.store.transaction import AfterCommit, Row, SlowCallback, Tx
from fw_actors.store.trio_sqlite import open_sqlite

__all__ = [
    "THREAD_SWITCH_SECONDS",
    "AfterCommit",
    "AllRows",
    "ConstraintViolation",
    "FramedRow",
    "FramedRows",
    "JsonRows",
    "LeasedJob",
    "Like",
    "Octets",
    "PlainText",
    "QueueHead",
    "QueueStats",
    "Row",
    "SlowCallback",
    "Statement",
    "StatementError",
    "Store",
    "StoreError",
    "StoreStatistics",
    "TextBytes",
    "Tx",
    "UniqueViolation",
    "UserShares",
    "deletion_of_oldest",
    "earlier",
    "installation_key",
    "one_of",
    "open_sqlite",
    "partial_index",
    "read_frames",
    "rows_as_json",
    "update_of_times_ahead",
]
