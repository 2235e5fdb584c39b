"""Interrupts queries that exceed their time or whose caller was cancelled, from its own thread.

Each thread that runs calls has one `QueryLimit`, which says what may be interrupted there at this
moment. One `QueryWatch` for all of them looks at those that are busy and interrupts. An interrupt
never reaches the call that comes next: both it and the end of a call hold the limit's lock.

SQLite looks for an interrupt at each jump of its machine, and PostgreSQL at each row; so what
happens within one row has to be short by itself (`like_patterns`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Final, Protocol

from fw_actors.errors import OverloadedError, query_timeout

LONGEST_PERIOD: Final = 0.25
_PERIODS: Final = 4  # in the time that a query may take

_log: Final = logging.getLogger(__name__)


class Abandonable(Protocol):
    """A work item whose caller may be cancelled."""

    abandoned: bool


class Stoppable(Protocol):
    """A transaction that can be stopped from another thread."""

    def stop(self, refusal: Exception) -> None:
        """Refuse every further statement. Called in another thread."""


class QueryLimit:
    """The running query of one thread and its deadline.

    `begin` and `end` are called in that thread, `check` by the watch. `fired` says that the call
    at hand was interrupted; code that runs long within one row asks for it.
    """

    __slots__ = (
        "_busy",
        "_call",
        "_deadline",
        "_interrupt",
        "_lock",
        "_seconds",
        "_transaction",
        "fired",
    )

    def __init__(self, seconds: float | None = None) -> None:
        """`seconds`: how long a call may take; None: as long as it likes."""
        self.fired = False
        self._seconds = seconds
        self._busy: threading.Event | None = None
        self._lock = threading.Lock()
        self._interrupt: Callable[[], None] | None = None
        self._transaction: Stoppable | None = None
        self._call: Abandonable | None = None
        self._deadline = inf

    def watched_by(self, busy: threading.Event) -> None:
        """Set `busy` whenever something begins."""
        self._busy = busy

    def begin(
        self,
        interrupt: Callable[[], None],
        call: Abandonable | None = None,
        transaction: Stoppable | None = None,
    ) -> None:
        """From here on the watch may call `interrupt`: after the time, or when `call` is abandoned.

        `transaction`, where the whole of it is limited, is told to run nothing more then.
        """
        self.fired = False
        self._call, self._transaction = call, transaction
        self._deadline = inf if self._seconds is None else time.monotonic() + self._seconds
        self._interrupt = interrupt
        if self._busy is not None and not self._busy.is_set():
            self._busy.set()

    def end(self) -> None:
        """From here on nothing is interrupted; waits for an interrupt that is under way."""
        with self._lock:
            self._interrupt = self._call = self._transaction = None
            self.fired = False

    @property
    def is_busy(self) -> bool:
        """Whether something runs that may be interrupted."""
        return self._interrupt is not None

    def check(self, now: float) -> None:
        """Interrupt what has had its time or lost its caller; again each time, while it runs.

        An interrupt between two statements has no effect, and one of them may begin just then.
        """
        call = self._call
        if now < self._deadline and (call is None or not call.abandoned):
            return
        with self._lock:
            if self._interrupt is None or self._call is not call:
                return
            if now < self._deadline and (call is None or not call.abandoned):
                return  # another search of the same thread
            self.fired = True
            if self._transaction is not None:
                self._transaction.stop(self.refusal())
            self._interrupt()

    def refusal(self) -> OverloadedError:
        """Return what an interrupted query raises."""
        return query_timeout(self._seconds or 0.0)


class QueryWatch:
    """The thread that checks limits: periodically while a query runs, and at once on request.

    It sleeps without end while nothing runs.
    """

    def __init__(self, limits: Sequence[QueryLimit], seconds: float | None) -> None:
        """`seconds`: as the limits have it."""
        self._limits = limits
        self._period = (
            LONGEST_PERIOD if seconds is None else min(LONGEST_PERIOD, seconds / _PERIODS)
        )
        self._busy = threading.Event()
        self._wake_up = threading.Event()
        self._closing = False
        for limit in limits:
            limit.watched_by(self._busy)
        self._thread = threading.Thread(target=self._watch, name="fw-query-watch", daemon=True)
        self._thread.start()

    def check_now(self) -> None:
        """Check at once: a caller has gone."""
        self._wake_up.set()

    def close(self) -> None:
        """End the thread; nothing runs any more."""
        self._closing = True
        self._busy.set()
        self._wake_up.set()

    def _watch(self) -> None:
        while True:
            self._busy.wait()
            self._wake_up.wait(self._period)
            if self._closing:
                return
            self._wake_up.clear()
            now = time.monotonic()
            for limit in self._limits:
                try:
                    limit.check(now)
                except Exception:  # the next check tries again
                    _log.exception("a query could not be interrupted")
            self._busy.clear()
            if any(limit.is_busy for limit in self._limits):
                self._busy.set()
