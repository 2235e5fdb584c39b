"""Error Logs: defects of the service and of apps, written beside the transaction that failed.

A defect is noted in memory first, since the transaction in which it happened is undone; whoever
may write flushes what was noted. No more than `PER_MINUTE` are kept a minute, by all processes
together, and none longer than `KEPT_DAYS` (D-226).
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import sqlalchemy as sa

from fw_actors.documents.permissions import ADMINISTRATOR
from fw_actors.documents.registry import Registry
from fw_actors.documents.rows import SystemRows
from fw_actors.rules.redaction import Scrubber
from fw_actors.runtime import Entropy
from fw_actors.runtime.clock import MS_PER_DAY, MS_PER_MINUTE
from fw_actors.store import Statement, Tx

QUEUE: Final = "errors"
"""What `recorded` is told when something was noted."""

PER_MINUTE: Final = 60
KEPT_DAYS: Final = 30
WAITING: Final = 200
_METHOD_CHARACTERS: Final = 140
_TEXT_CHARACTERS: Final = 4_000
_FRAMES: Final = 30


class Noted(NamedTuple):
    """One defect, scrubbed."""

    method: str
    message: str
    request_id: str


class ErrorRecorder:
    """What waits to be written. Used on trio's thread, but for `flush`."""

    def __init__(
        self,
        registry: Registry,
        entropy: Entropy,
        scrubber: Scrubber,
        noted: Callable[[], None],
    ) -> None:
        """`noted` is called for each defect."""
        c = registry.tables["Error Log"].table.c
        self._records = SystemRows(registry, "Error Log", entropy)
        recent = sa.select(c.name).where(c.creation > sa.bindparam("since")).limit(PER_MINUTE)
        self._recent = Statement(sa.select(sa.func.count()).select_from(recent.subquery()))
        self._forget = Statement(
            sa.delete(registry.tables["Error Log"].table).where(c.creation < sa.bindparam("before"))
        )
        self._scrubber = scrubber
        self._noted = noted
        self._waiting: deque[Noted] = deque(maxlen=WAITING)  # the oldest gives way: it is logged

    @property
    def waits(self) -> bool:
        """Whether there is anything to flush."""
        return bool(self._waiting)

    def note(self, method: str, error: BaseException, request_id: str) -> None:
        """Keep a defect to be written: where it happened, and what was raised, scrubbed."""
        # Scrubbed before it is cut. A folder's name may look like a secret, and is none.
        raised = self._scrubber.scrub(_raised(error))[:_TEXT_CHARACTERS]
        places = (self._scrubber.scrub_known(place) for place in _places(error))
        message = "\n".join([raised, *places])
        self._waiting.append(Noted(method[:_METHOD_CHARACTERS], message, request_id))
        self._noted()

    def flush(self, tx: Tx) -> int:
        """Write what waits, as far as this minute has room; return how many were written.

        What has no room is dropped: the process's log has it. When the transaction fails, what
        it took goes on waiting.
        """
        taken = tuple(self._waiting)
        tx.run(self._forget, before=tx.now - KEPT_DAYS * MS_PER_DAY)
        room = PER_MINUTE - int(tx.scalar(self._recent, since=tx.now - MS_PER_MINUTE))
        written = taken[:room]
        for each in written:
            self._records.add(
                tx,
                ADMINISTRATOR,
                method=each.method,
                message=each.message,
                request_id=each.request_id or None,
            )
        tx.after_commit(lambda: self._forget_waiting(taken))
        return len(written)

    def _forget_waiting(self, taken: tuple[Noted, ...]) -> None:
        done = set(map(id, taken))
        left = [each for each in self._waiting if id(each) not in done]
        self._waiting.clear()
        self._waiting.extend(left)


def _raised(error: BaseException) -> str:
    """The kind and text of an exception."""
    return f"{type(error).__name__}: {error}".replace("\x00", "\ufffd")


def _places(error: BaseException) -> list[str]:
    """The places that an exception came through, the innermost last."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    return [f"  {frame.filename}, line {frame.lineno}, in {frame.name}" for frame in frames]
