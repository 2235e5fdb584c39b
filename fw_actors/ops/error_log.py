"""Error Logs: defects of the service and of apps, written outside the failed transaction.

A defect is queued in memory first, because the transaction in which it occurred is rolled back; the
next flush writes the queue. At most `PER_MINUTE` are written per minute by all processes together,
and the write deletes some that are older than `KEPT_DAYS` (D-226).
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import sqlalchemy as sa

from fw_actors.documents.core import ErrorLogEntry
from fw_actors.documents.permissions import ADMINISTRATOR
from fw_actors.documents.rows import SystemRows
from fw_actors.documents.tables import table_of
from fw_actors.rules.safe_output import Scrubber, storable, text_of
from fw_actors.runtime import Entropy
from fw_actors.runtime.clock import MS_PER_DAY, MS_PER_MINUTE
from fw_actors.store import Statement, Tx, deletion_of_oldest

QUEUE: Final = "errors"
"""The argument of `recorded` after a defect was queued."""

PER_MINUTE: Final = 60
KEPT_DAYS: Final = 30
MAX_DELETED: Final = 1000
"""The maximum number of expired Error Logs that one write deletes."""
MAX_WAITING_DEFECTS: Final = 200
_METHOD_CHARACTERS: Final = 140
_TEXT_CHARACTERS: Final = 4_000
_FRAMES: Final = 30
_CHAINED: Final = 3
"""The maximum number of exceptions in one Error Log: the last one and those before it."""
_LIMIT: Final = "fw.error_log"


class QueuedDefect(NamedTuple):
    """One scrubbed defect."""

    method: str
    message: str
    request_id: str


_ERRORS: Final = table_of(ErrorLogEntry).table
_RECENT: Final = (
    sa.select(_ERRORS.c.name)
    .where(
        _ERRORS.c.creation > sa.bindparam("since"),
        # Entries of a clock that was ahead would otherwise use up the limit until it is reached.
        _ERRORS.c.creation <= sa.bindparam("now"),
    )
    .limit(PER_MINUTE)
)
_COUNT_RECENT: Final = Statement(sa.select(sa.func.count()).select_from(_RECENT.subquery()))
_DELETE_OLDEST: Final = deletion_of_oldest(_ERRORS, _ERRORS.c.creation)


class ErrorRecorder:
    """Queues defects to be written. Used on trio's thread, except `flush`."""

    def __init__(self, entropy: Entropy, scrubber: Scrubber, noted: Callable[[], None]) -> None:
        """`noted` is called for each defect."""
        self._records = SystemRows(ErrorLogEntry, entropy)
        self._scrubber = scrubber
        self._noted = noted
        # Drops the oldest, which is in the log.
        self._waiting: deque[QueuedDefect] = deque(maxlen=MAX_WAITING_DEFECTS)

    @property
    def waits(self) -> bool:
        """Whether there are defects to flush."""
        return bool(self._waiting)

    def note(self, method: str, error: BaseException, request_id: str) -> None:
        """Queue a defect: its place and its exception, scrubbed."""
        lines: list[str] = []
        for number, each in enumerate(_chain(error)):
            # Scrub before cutting. The name of a folder may look like a secret without being one.
            raised = self._scrubber.scrub(_raised(each))[:_TEXT_CHARACTERS]
            lines.append(f"after {raised}" if number else raised)
            lines += map(self._scrubber.scrub_known, _traceback(each))
        # One text that the store refuses would keep all later defects from being written.
        message = storable("\n".join(lines))
        place = storable(self._scrubber.scrub_known(method))[:_METHOD_CHARACTERS]
        self._waiting.append(QueuedDefect(place, message, request_id))
        self._noted()

    def flush(self, tx: Tx) -> int:
        """Write queued defects within the limit of this minute; return the number written.

        The rest is dropped: the process's log contains it. If the transaction fails, the defects
        stay queued.
        """
        defects = tuple(self._waiting)
        tx.lock(_LIMIT)  # of all processes together
        # A few times as many as are written, so that other writes do not wait for a whole month.
        before = tx.now - KEPT_DAYS * MS_PER_DAY - 1
        tx.run(_DELETE_OLDEST, before=before, limit=MAX_DELETED)
        recent = tx.scalar(_COUNT_RECENT, since=tx.now - MS_PER_MINUTE, now=tx.now)
        remaining = PER_MINUTE - int(recent)
        written = defects[:remaining]
        for each in written:
            self._records.add(
                tx,
                ADMINISTRATOR,
                method=each.method,
                message=each.message,
                request_id=each.request_id or None,
            )
        tx.after_commit(lambda: self._discard_waiting(defects))
        return len(written)

    def _discard_waiting(self, defects: tuple[QueuedDefect, ...]) -> None:
        discarded = set(map(id, defects))
        remaining = [each for each in self._waiting if id(each) not in discarded]
        self._waiting.clear()
        self._waiting.extend(remaining)


def _chain(error: BaseException) -> list[BaseException]:
    """Return an exception and those that led to it, the last one first."""
    chain = [error]
    while len(chain) < _CHAINED:
        last = chain[-1]
        before = last.__cause__ or (None if last.__suppress_context__ else last.__context__)
        if before is None or any(before is each for each in chain):
            break
        chain.append(before)
    return chain


def _raised(error: BaseException) -> str:
    """Return type and text of an exception."""
    return f"{type(error).__name__}: {text_of(error)}"


def _traceback(error: BaseException) -> list[str]:
    """Return the frames that an exception passed through, innermost last."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    return [f"  {frame.filename}, line {frame.lineno}, in {frame.name}" for frame in frames]
