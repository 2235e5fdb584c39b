"""Executors: run functions on database engines in threads, or inline, for trio tasks.

A service uses `ThreadExecutor`, deterministic tests use `InlineExecutor`; both have
`execute`, `poll` and `close`, called on trio's thread.

The module has more than 500 lines because executors and engines share the items, their counters
and the log of refused writes.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import outcome
import trio

from fw_actors.errors import OverloadedError
from fw_actors.rules.safe_output import is_app_file
from fw_actors.store.transaction import AfterCommit, SlowCallback, Tx

_log: Final = logging.getLogger(__name__)


_CALLBACK_FAILED: Final = "a callback after a commit failed"


def _call_each(callbacks: Sequence[AfterCommit]) -> None:
    for callback in callbacks:
        try:
            callback()
        except Exception:
            _log.exception(_CALLBACK_FAILED)


class WorkItem:
    """A function to be run by an engine, and the trio task that waits for its result.

    `answer` is None until an engine has run or refused the item; it stays None for an item that was
    cancelled first. `made` is its time.monotonic(). `durable`: see `Store.write`. `abandoned`: the
    caller was cancelled while the function ran, and gets no result. `try_claim()` returns True
    exactly once: to the engine, which then sets `begun` and runs the function, or to the caller
    that withdraws the item.
    """

    __slots__ = (
        "_claimed",
        "_raise_cancelled",
        "abandoned",
        "answer",
        "begun",
        "callbacks",
        "durable",
        "fn",
        "made",
        "now",
        "task",
        "try_claim",
    )

    def __init__(self, fn: Callable[[Tx], Any], now: int, *, durable: bool = True) -> None:
        self.fn = fn
        self.now = now
        self.made = time.monotonic()
        self.durable = durable
        self.task: trio.lowlevel.Task | None = None
        self.answer: outcome.Outcome[Any] | None = None
        self.begun = False
        self.abandoned = False
        self._raise_cancelled: Callable[[], Any] | None = None
        self.callbacks: list[AfterCommit] = []
        self._claimed = threading.Lock()
        self.try_claim = partial(self._claimed.acquire, False)

    def begin(self) -> bool:
        """Claim the item for an engine; return False when it was cancelled while it waited."""
        self.begun = self.try_claim()
        return self.begun

    @property
    def withdrawn(self) -> bool:
        """Whether the item was cancelled while it waited, so that no preparation is needed."""
        return not self.begun and self._claimed.locked()

    def refuse(self, error: Exception) -> None:
        """Answer with `error`; the changes of the function were undone."""
        self.callbacks = []
        self.answer = outcome.Error(error)

    async def wait(
        self, withdrawn: Callable[[], None], abandoned: Callable[[], None] | None = None
    ) -> Any:
        """Wait for `wake`.

        If the caller is cancelled before the function begins, the item is withdrawn and `withdrawn`
        is called. A later cancellation waits for the function; `abandoned` is called to interrupt
        it, and if the function fails, the caller gets the cancellation.
        """
        self.task = trio.lowlevel.current_task()

        def abort(raise_cancelled: Callable[[], Any]) -> trio.lowlevel.Abort:
            if self.try_claim():
                withdrawn()
                return trio.lowlevel.Abort.SUCCEEDED
            if abandoned is not None:
                self._raise_cancelled, self.abandoned = raise_cancelled, True
                abandoned()
            return trio.lowlevel.Abort.FAILED

        return await trio.lowlevel.wait_task_rescheduled(abort)

    def run_callbacks(self) -> None:
        """Run all callbacks of `Tx.after_commit` in order; an exception is logged."""
        _call_each(self.callbacks)

    def run_fast_callbacks(self) -> list[SlowCallback]:
        """Run the callbacks that are not slow; return the others."""
        slow: list[SlowCallback] = []
        fast: list[AfterCommit] = []
        for each in self.callbacks:
            if isinstance(each, SlowCallback):
                slow.append(each)
            else:
                fast.append(each)
        _call_each(fast)
        return slow

    def wake(self) -> None:
        """Wake the caller with the answer, on trio's thread."""
        answer = self.answer
        if self.task is not None and answer is not None:
            if self._raise_cancelled is not None and isinstance(answer, outcome.Error):
                answer = outcome.capture(self._raise_cancelled)
            trio.lowlevel.reschedule(self.task, answer)


class _SlowCallbacks:
    """Runs slow callbacks in a thread, in the order of the commits, and then wakes the callers.

    Used on trio's thread. The thread is started when it is first needed. If that fails, callbacks
    run on trio's thread, because an exception in `_settle` would end the process.
    """

    def __init__(self, name: str, send: Callable[..., None]) -> None:
        """`send(function, *arguments)` calls a function on trio's thread."""
        self._name, self._send = name, send
        self._queue: SimpleQueue[tuple[WorkItem, list[SlowCallback]] | None] = SimpleQueue()
        self._started = False
        self._unfinished = 0
        self._finished = trio.Event()

    def run(self, item: WorkItem, callbacks: list[SlowCallback]) -> None:
        """Run the callbacks of an item, and wake its caller."""
        self._unfinished += 1
        if self._start():
            self._queue.put((item, callbacks))
        else:
            self._end(item, [(each, each.run()) for each in callbacks])

    def _start(self) -> bool:
        """Return whether the thread runs; it cannot be started at the system's limit of threads."""
        if not self._started:
            with suppress(RuntimeError):
                threading.Thread(target=self._serve, name=self._name, daemon=True).start()
                self._started = True
        return self._started

    async def close(self) -> None:
        """Wait for the callbacks, and end the thread."""
        while self._unfinished:
            self._finished = trio.Event()
            await self._finished.wait()
        self._queue.put(None)

    def _serve(self) -> None:
        while (taken := self._queue.get()) is not None:
            item, callbacks = taken
            self._send(self._end, item, [(each, each.run()) for each in callbacks])

    def _end(self, item: WorkItem, ran: list[tuple[SlowCallback, BaseException | None]]) -> None:
        for callback, error in ran:
            if error is not None:
                _log.error(_CALLBACK_FAILED, exc_info=error)
                callback.failed(error)
        self._unfinished -= 1
        self._finished.set()
        item.wake()


@dataclass
class EngineCounts:
    """Counters of one engine (see `StoreStatistics`); written by its thread, read by any."""

    commits: int = 0
    committed: int = 0
    rolled_back: int = 0
    refused: int = 0
    reads: int = 0
    largest_group: int = 0
    external_commits: int = 0


QUIET_SECONDS: Final = 10.0
"""The time without a refused write after which writes count as accepted again."""


class RefusedWrites:
    """Logs when a database begins to refuse writes, with the reason, and when it takes them again.

    Shared by the writing threads of a store. A nearly full disk refuses long writes and takes short
    ones. Each reason is therefore logged once until no write was refused for `QUIET_SECONDS`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reasons: set[str] = set()
        self._refused_at = 0.0
        self.is_open = False
        """Whether it is still to be logged that writes are accepted again; read after each commit,
        without the lock."""

    def refused(self, reason: str) -> None:
        """Log the reason for which a write was refused, unless it is logged already."""
        with self._lock:
            self._refused_at = time.monotonic()
            is_new = reason not in self._reasons
            self._reasons.add(reason)
            self.is_open = True
        if is_new:
            _log.warning("the database refuses writes: %s", reason)

    def accepted(self) -> None:
        """Log that the database takes writes again, if it has refused none for a while."""
        with self._lock:
            if not self._reasons or time.monotonic() - self._refused_at < QUIET_SECONDS:
                return
            self._reasons.clear()
            self.is_open = False
        _log.warning("the database takes writes again")


class Pull(Protocol):
    """Returns the next waiting item, or None; never blocks."""

    def __call__(self, *, to_refuse: bool = False) -> WorkItem | None:
        """`to_refuse`: also an item that could not join the group: of another durability, or too
        late for a group that is not durable.
        """


class Engine(Protocol):
    """Runs calls on one connection, in one thread."""

    def run(self, first: WorkItem, pull: Pull, empty: Callable[[], bool]) -> list[WorkItem]:
        """Run `first` and waiting items; return them, each answered or withdrawn.

        The items of one run are all durable or all not durable. `empty()` returns whether the queue
        is empty; it costs less than `pull`.
        """

    def poll(self) -> bool:
        """Return whether another process has committed since the last poll."""

    def close(self) -> None:
        """Close the connection."""


def run_alone(engine: Engine, fn: Callable[[Tx], T], now: int) -> T:
    """Return the result of one function on an engine that has no thread yet.

    Raises what `fn` raises.
    """
    item = WorkItem(fn, now)
    engine.run(item, _nothing, _always)
    assert item.answer is not None
    result: T = item.answer.unwrap()
    return result


def _nothing(*, to_refuse: bool = False) -> None:
    """Pull nothing: an item runs alone."""


def _always() -> bool:
    return True


class SerialisingLock:
    """A lock that serialises threads, and whose waiters continue without it after `patience`.

    Two threads with short work hand over the interpreter's lock with each statement. Measured with
    64 callers: reads of 50 µs took 52 µs one after the other, and 60 to 110 µs in parallel.
    """

    def __init__(self, patience: float) -> None:
        """`patience`: seconds after the acquisition, until which waiters wait for the holder."""
        self._patience = patience
        self._lock = threading.Lock()
        self._began = 0.0

    @property
    def is_held(self) -> bool:
        """Whether a thread holds the lock."""
        return self._lock.locked()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Wait for the lock; continue without it if its holder exceeds `patience`."""
        left = self._began + self._patience - time.monotonic()
        acquired = self._lock.acquire(timeout=max(0.0, left))
        if acquired:
            self._began = time.monotonic()
        try:
            yield
        finally:
            if acquired:
                self._lock.release()


POLL_SECONDS: Final = 1.0

THREAD_SWITCH_SECONDS: Final = 0.001
"""The `sys.setswitchinterval` of a serving process, set at its start.

SQLite's calls release the interpreter's lock, and each waits up to that interval to get it back
from a busy trio thread. Measured with 64 callers and a task that is never idle: 600 to 1,000
writes/s with Python's 5 ms, and 12,000 to 22,000 with 1 ms; trio's thread was hardly slower.
"""

SLOW_SECONDS: Final = 10.0
"""The duration of a call that is logged while it runs."""

OnExternalCommit = Callable[[], None]


def _place_of(thread: int) -> str:
    """Return the place in an app's code that a thread is at, as `, in shop.py, line 12`, if any."""
    top = sys._current_frames().get(thread)
    for frame, line in () if top is None else traceback.walk_stack(top):
        file = frame.f_code.co_filename
        if is_app_file(file):
            return f", in {Path(file).name}, line {line}"
    return ""


class ThreadExecutor:
    """One bounded queue, and a thread for each engine.

    Args:
        name: of the threads.
        engines: one for each thread.
        capacity: items that may wait; further ones raise OverloadedError.
        noticed: called on trio's thread when another process has committed; None: never poll.
        serialising: the lock shared by all threads that run one at a time.
        max_wait_seconds: an item that has waited longer is refused.
        abandoned: called on trio's thread when the caller of a running item was cancelled, to
            interrupt it; None: the item runs to its end.
    """

    def __init__(
        self,
        name: str,
        engines: Sequence[Engine],
        capacity: int,
        noticed: OnExternalCommit | None = None,
        *,
        serialising: SerialisingLock | None = None,
        max_wait_seconds: float = inf,
        abandoned: Callable[[], None] | None = None,
    ) -> None:
        self.waiting = 0
        self.skipped = 0
        self.refused = 0
        self._capacity = capacity
        self._noticed = noticed
        self._serialising = serialising or SerialisingLock(0.0)
        self._max_wait_seconds = max_wait_seconds
        self._abandoned = abandoned
        self._withdrawn = 0  # withdrawn items that are still in the queue
        self._closing = False
        self._poll_wanted = False
        self._queue: SimpleQueue[WorkItem | None] = SimpleQueue()  # None only wakes a thread
        self._token = trio.lowlevel.current_trio_token()
        self._answered: deque[list[WorkItem]] = deque()
        self._settling = threading.Lock()  # held from a wake-up of trio until it settles them
        self._slow_callbacks = _SlowCallbacks(f"{name}-callbacks", self._send)
        self._busy: dict[int, float] = {}  # threads that run something, and since when
        self._reported: set[tuple[int, float]] = set()
        self._next_check = 0.0
        self._running = len(engines)
        self._ended = trio.Event()
        for number, engine in enumerate(engines, 1):
            threading.Thread(
                target=self._serve, args=(engine,), name=f"{name}-{number}", daemon=True
            ).start()

    async def execute(self, fn: Callable[[Tx], Any], now: int, *, durable: bool = True) -> Any:
        """Run `fn` and return its result. `durable` and cancellation: see `Store.write`."""
        if self._closing or self.waiting >= self._capacity:
            self.refused += 1
            await trio.lowlevel.checkpoint()
            raise OverloadedError(
                "The store is closing." if self._closing else "Too many calls wait for the store."
            )
        item = WorkItem(fn, now, durable=durable)
        if self._busy and item.made >= self._next_check:
            self.report_slow()
        self.waiting += 1
        self._queue.put(item)
        return await item.wait(self._withdraw, self._abandoned)

    @property
    def longest_seconds(self) -> float:
        """The seconds that the longest of the running calls has taken so far; 0 if none runs."""
        now = time.monotonic()
        return max((now - since for since in self._busy.copy().values()), default=0.0)

    def poll(self) -> None:
        """Check for commits of other processes now, or after the running group."""
        if not self._poll_wanted:  # else the check to come sees these commits too
            self._poll_wanted = True
            self._queue.put(None)

    async def close(self) -> None:
        """Answer the waiting items, refuse further ones, and close the engines."""
        self._closing = True
        self._queue.put(None)
        with trio.CancelScope(shield=True):
            await self._ended.wait()
            await self._slow_callbacks.close()

    def _serve(self, engine: Engine) -> None:
        """Run groups of items, and poll once a second between them: the body of a thread."""
        thread, next_poll = threading.get_ident(), time.monotonic() + POLL_SECONDS
        following: WorkItem | None = None
        try:
            while following is not None or not (self._closing and self._queue.empty()):
                item = self._in_time(following or self._next(next_poll))
                following = None
                if item is None or self._poll_wanted or time.monotonic() >= next_poll:
                    next_poll = time.monotonic() + POLL_SECONDS
                    self._poll(engine)
                if item is not None:
                    with self._serialising.hold():
                        self._busy[thread] = time.monotonic()
                        answered, following = self._run(engine, item)
                        del self._busy[thread]
                    self._answer(answered)
            self._queue.put(None)  # for the next thread of this executor
            engine.close()
        finally:
            self._send(self._end)

    def _next(self, next_poll: float) -> WorkItem | None:
        if self._noticed is None:
            return self._queue.get()
        left = 0.0 if self._poll_wanted else max(0.0, next_poll - time.monotonic())
        with suppress(Empty):
            return self._queue.get(timeout=left)
        return None

    def _run(self, engine: Engine, first: WorkItem) -> tuple[list[WorkItem], WorkItem | None]:
        """Run `first` and the items that may share its commit; return them, and the next item
        if it had to be taken from the queue to see that it may not.

        Durable items may join a running group, because they share its fsync. Other items may
        not: joining would save only a commit, and delay the members that are done.
        """
        following: WorkItem | None = None
        taken = [first]
        room = inf if first.durable else self._queue.qsize()

        def pull(*, to_refuse: bool = False) -> WorkItem | None:
            nonlocal following, room
            if following is None and (room > 0 or to_refuse):
                room -= 1
                with suppress(Empty):
                    item = self._queue.get_nowait()
                    while item is None:  # a poll follows the group; it does not end it
                        item = self._queue.get_nowait()
                    following = self._in_time(item)
            if following is None:
                return None
            if following.durable is not first.durable and not to_refuse:
                return None
            member, following = following, None
            taken.append(member)
            return member

        try:
            return engine.run(first, pull, self._queue.empty), following
        except BaseException:  # it must not end the thread, nor leave callers waiting forever
            _log.exception("the engine of a store failed")
            for item in taken:
                if item.answer is None and (item.begun or item.begin()):
                    item.refuse(OverloadedError("The store failed. Try again in a moment."))
            return taken, following

    def _in_time(self, item: WorkItem | None) -> WorkItem | None:
        """Return the item; or refuse it and return None if it has waited longer than
        `max_wait_seconds`."""
        if (
            item is None
            or time.monotonic() - item.made <= self._max_wait_seconds
            or not item.begin()
        ):
            return item
        item.refuse(OverloadedError("The database is busy with other queries. Try again later."))
        self._answer([item])
        return None

    def report_slow(self) -> None:
        """Log each group of calls that has run for `SLOW_SECONDS`, once.

        On SQLite all writes wait for it, and nothing else would tell for what they wait.
        """
        now = time.monotonic()
        self._next_check = now + 1.0
        running = set(self._busy.copy().items())
        self._reported &= running
        for thread, since in running - self._reported:
            if now - since >= SLOW_SECONDS:
                self._reported.add((thread, since))
                place = _place_of(thread)
                _log.warning("a transaction has taken %.0f s so far%s", now - since, place)

    def _withdraw(self) -> None:
        """Free the queue place of an item whose caller was cancelled."""
        self.waiting -= 1
        self.skipped += 1
        self._withdrawn += 1
        full = self._withdrawn > self._capacity
        if full and not self._closing:  # threads that close end when the queue is empty
            self._purge()

    def _purge(self) -> None:
        """Remove withdrawn items from the queue, so that it stays bounded."""
        kept: list[WorkItem | None] = []
        with suppress(Empty):
            while True:
                item = self._queue.get_nowait()
                if item is None or not item.withdrawn:
                    kept.append(item)
        for item in kept:
            self._queue.put(item)
        self._withdrawn = 0

    def _poll(self, engine: Engine) -> None:
        self._poll_wanted = False  # first: a notice from now on may tell of a later commit
        if self._noticed is None:
            return
        try:
            others_committed = engine.poll()
        except BaseException:  # it must not end the thread
            _log.exception("the engine of a store failed to poll")
            return
        if others_committed:
            self._send(self._noticed)

    def _send(self, fn: Callable[..., None], *args: object) -> None:
        with suppress(trio.RunFinishedError):  # trio has ended
            self._token.run_sync_soon(fn, *args)

    def _answer(self, items: list[WorkItem]) -> None:
        """Have trio settle the items; one wake-up serves all that are answered before it comes."""
        self._answered.append(items)
        if self._settling.acquire(blocking=False):
            self._send(self._settle)

    def _settle(self) -> None:
        self._settling.release()  # first: what is answered from now on wakes trio again
        while self._answered:
            for item in self._answered.popleft():
                if item.answer is None:
                    self._withdrawn = max(0, self._withdrawn - 1)  # a purge has begun again
                    continue
                self.waiting -= 1
                if item.callbacks and (slow := item.run_fast_callbacks()):
                    self._slow_callbacks.run(item, slow)
                else:
                    item.wake()

    def _end(self) -> None:
        self._running -= 1
        if not self._running:
            self._ended.set()


class InlineExecutor:
    """Runs each function on the caller's own task, after a checkpoint.

    For deterministic tests: trio's autojump clock does not see work in threads.
    """

    def __init__(self, engine: Engine, noticed: OnExternalCommit | None = None) -> None:
        self.waiting = self.skipped = self.refused = 0
        self.longest_seconds = 0.0
        self._engine, self._noticed = engine, noticed
        self._closed = False

    async def execute(self, fn: Callable[[Tx], Any], now: int, *, durable: bool = True) -> Any:
        """Run `fn` and return its result. `durable` and cancellation: see `Store.write`."""
        await trio.lowlevel.checkpoint()
        if self._closed:
            self.refused += 1
            raise OverloadedError("The store is closing.")
        item = WorkItem(fn, now, durable=durable)
        self._engine.run(item, _nothing, _always)
        item.run_callbacks()
        assert item.answer is not None
        return item.answer.unwrap()

    def poll(self) -> None:
        """Check now for commits of other processes."""
        if self._noticed is not None and self._engine.poll():
            self._noticed()

    def report_slow(self) -> None:
        """Do nothing: no call runs while another function does."""

    async def close(self) -> None:
        """Answer the waiting items, refuse further ones, and close the engines."""
        self._closed = True
        self._engine.close()


Executor = ThreadExecutor | InlineExecutor


class Executors(NamedTuple):
    """The executors of a store.

    `writes` runs the calls of `Store.write`, `reads` those of `Store.read`, and `lookups` its
    reserved reads. `closed` is called when all of them are closed.
    """

    writes: Executor
    reads: Executor
    lookups: Executor
    closed: Callable[[], None] | None = None


def inline_executors(
    writer: Engine, reader: Engine, lookup: Engine, noticed: OnExternalCommit | None = None
) -> Executors:
    """Return executors for the caller's task; `noticed`: called when another process committed."""
    return Executors(
        InlineExecutor(writer, noticed), InlineExecutor(reader), InlineExecutor(lookup)
    )


T = TypeVar("T")


async def open_in_thread(opening: Callable[[], T], close: Callable[[T], None]) -> T:
    """Run `opening` in a thread and return its result; raises what it raises.

    A cancelled start ends at once, even while another process holds the migration lock (up to half
    a minute) or the server does not answer; `close` then closes the late result.
    """
    opened: list[T] = []
    is_first = partial(threading.Lock().acquire, False)

    def work() -> T:
        found = opening()
        opened.append(found)
        if not is_first():
            close(found)
        return found

    try:
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True)
    except trio.Cancelled:
        if not is_first():
            close(opened[0])
        raise
