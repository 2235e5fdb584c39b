"""Watches of other actors, restart intensity, and the failed keys of pools.

A watch sends messages to an actor about the ends and starts of another actor's instances. Instances
are numbered over the whole runtime: the number is the instance's `incarnation`. A watcher gets one
`Down` for each instance that ends while it watches. A watch on an actor without an instance is
notified at once, since it might otherwise wait forever, but not of an end of which its owner was
notified before. Therefore a handler of `Down` may watch again, and then waits for the end of the
next instance.

Restart intensity limits and delays restarts. The limit and the delays are pure functions on frozen
values. Supervisors use them for their children, keyed pools for each of their keys. A pool keeps
the keys with recent failures, bounded in number and in time: a key is removed when its last failure
is too old to count, or earlier if the table is full and its last failure is the oldest.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from fw_actors.runtime.clock import Deadlines, Entropy
from fw_actors.runtime.errors import ActorError
from fw_actors.runtime.messages import Message
from fw_actors.runtime.operations import PendingOperations, Timer, made_message, operations_of

if TYPE_CHECKING:
    from fw_actors.runtime.cell import ActorCell
    from fw_actors.runtime.ref import Ref


@dataclass(frozen=True, slots=True)
class RestartIntensity:
    """The limit of restarts, and the delays between them. Times are in seconds.

    The first restart is immediate; then the delay starts at `backoff` and doubles up to
    `backoff_cap`, each stretched by a random part of up to `jitter` of it. After `calm_seconds`
    without a failure the next restart is immediate again. After more than `restarts` failures
    within `seconds` a supervisor escalates, and a pool refuses the key for `calm_seconds`.
    """

    restarts: int = 5
    seconds: float = 30.0
    backoff: float = 0.1
    backoff_cap: float = 5.0
    jitter: float = 0.2
    calm_seconds: float = 60.0

    def __post_init__(self) -> None:
        if min(self.restarts, self.seconds, self.backoff, self.jitter, self.calm_seconds) < 0:
            raise ValueError(
                "restarts, seconds, backoff, jitter, calm_seconds must not be negative"
            )
        if self.backoff_cap < self.backoff:
            raise ValueError("backoff_cap must not be less than backoff")


@dataclass(frozen=True, slots=True)
class ConsecutiveFailures:
    """The number of consecutive failures of one child, and the time of the last (trio's clock)."""

    child: str
    failures: int
    last: float


@dataclass(frozen=True, slots=True)
class FailureHistory:
    """The failures that still count: times over all children, and consecutive ones by child."""

    times: tuple[float, ...] = ()
    consecutive: tuple[ConsecutiveFailures, ...] = ()

    def consecutive_failures(self, child: str) -> int:
        """Return the number of consecutive failures of the child."""
        return next((each.failures for each in self.consecutive if each.child == child), 0)


def after_failure(
    history: FailureHistory, intensity: RestartIntensity, child: str, now: float
) -> FailureHistory:
    """Return the history with one more failure of `child`, without expired ones."""
    times = tuple(at for at in history.times if now - at < intensity.seconds)
    recent = [s for s in history.consecutive if now - s.last < intensity.calm_seconds]
    before = next((s.failures for s in recent if s.child == child), 0)
    others = tuple(s for s in recent if s.child != child)
    return FailureHistory((*times, now), (*others, ConsecutiveFailures(child, before + 1, now)))


def backoff_delay(failures: int, intensity: RestartIntensity, entropy: Entropy) -> float:
    """Return the delay in seconds before the restart after consecutive failures."""
    if failures <= 1:
        return 0.0
    doublings = min(failures - 2, 64)  # by then the cap is reached, or the backoff is 0
    delay = min(intensity.backoff * 2.0**doublings, intensity.backoff_cap)
    return delay * entropy.uniform(1.0, 1.0 + intensity.jitter)


@dataclass(frozen=True, slots=True)
class FailedKey:
    """A key whose actor has failed. Times are on trio's clock."""

    history: FailureHistory
    last: float
    """The time of the last failure."""
    error: str
    """The last failure as one line."""
    start_at: float
    """The time from which the next instance may start."""
    refused: bool
    """Whether messages are refused until then, instead of waiting."""

    @property
    def failures(self) -> int:
        """The number of failures that count for the intensity."""
        return len(self.history.times)


def after_key_failure(
    before: FailedKey | None,
    intensity: RestartIntensity,
    error: str,
    *,
    now: float,
    entropy: Entropy,
) -> FailedKey:
    """Return the state of a key after one more failure, `error`; `before` is None at the first
    one."""
    history = before.history if before is not None else FailureHistory()
    history = after_failure(history, intensity, "", now)
    if len(history.times) > intensity.restarts:
        return FailedKey(history, now, error, now + intensity.calm_seconds, refused=True)
    delay = backoff_delay(history.consecutive_failures(""), intensity, entropy)
    return FailedKey(history, now, error, now + delay, refused=False)


class FailedKeys:
    """The failed keys of one pool, at most `limit` of them.

    While there are any, one deadline is set for the first key to be removed.
    """

    def __init__(
        self, deadlines: Deadlines, intensity: RestartIntensity, entropy: Entropy, limit: int
    ) -> None:
        self.intensity = intensity
        self._deadlines = deadlines
        self._entropy = entropy
        self._limit = limit
        self.keys: OrderedDict[str, FailedKey] = OrderedDict()
        """In the order of their last failures, which is the order of their removal."""
        self._alarm_set = False

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, key: str, error: str) -> FailedKey:
        """Record a failure, and return the new state of the key."""
        failed = self.keys[key] = after_key_failure(
            self.get(key),
            self.intensity,
            error,
            now=self._deadlines.now(),
            entropy=self._entropy,
        )
        self.keys.move_to_end(key)
        if len(self.keys) > self._limit:
            self.keys.popitem(last=False)
        self._set_alarm()
        return failed

    def get(self, key: str) -> FailedKey | None:
        """Return a key whose failures still count; None for any other."""
        failed = self.keys.get(key)
        if failed is not None and failed.refused and failed.start_at <= self._deadlines.now():
            del self.keys[key]  # the key is accepted again
            return None
        return failed

    def clear(self) -> None:
        """Forget all keys."""
        self.keys.clear()
        self._alarm_set = False
        self._deadlines.withdraw(self, inf)

    def expire(self) -> None:
        """Remove the keys whose failures no longer count; called by the runtime's deadlines."""
        self._alarm_set = False
        now = self._deadlines.now()
        while self.keys and self._forget_at() <= now:
            self.keys.popitem(last=False)
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self.keys and not self._alarm_set:
            self._alarm_set = True
            self._deadlines.add_at(self, self._forget_at())

    def _forget_at(self) -> float:
        """Return the time from which the failures of the first key no longer count."""
        first = next(iter(self.keys.values()))
        return first.last + max(self.intensity.calm_seconds, self.intensity.seconds)


MAX_UNDELIVERED: Final = 64


@dataclass(frozen=True, slots=True)
class Down:
    """An instance of the actor `name` ended; `error` is None after an orderly end.

    `incarnation` is the instance's number, which later instances of the runtime exceed; 0 if there
    was none, or if a passivated keyed actor was not watched when it ended.
    """

    name: str
    error: str | None
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class Up:
    """An instance of the actor `name` has started; `incarnation` is its number, as in `Down`."""

    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Presence:
    """The state of a watched actor when the watch begins."""

    alive: bool
    incarnation: int | None
    """The `incarnation` of the current instance, or else of the last one; None if unknown."""
    last_error: str | None


class Watch:
    """A subscription to the ends and starts of another actor's instances: `context.watch`."""

    __slots__ = ("_cell", "_pending", "_ref", "_repeat", "_then", "_undelivered", "_up")
    serves: Final = None

    def __init__(
        self,
        cell: ActorCell,
        ref: Ref,
        then: Callable[[Down], Message],
        up: Callable[[Up], Message] | None,
        repeat: bool,
    ) -> None:
        """Raises MailboxFull and ActorGone, as `PendingOperations.add_timer`."""
        self._cell, self._ref, self._then, self._up, self._repeat = cell, ref, then, up, repeat
        self._undelivered: deque[Down | Up] = deque(maxlen=MAX_UNDELIVERED)
        self._pending = True
        operations = operations_of(cell)
        presence = ref.presence()
        operations.add_timer(self)
        ref.add_watch(self)
        if not presence.alive and not _notified_ends(operations).covers(
            ref.name, presence.incarnation
        ):
            self.down(Down(ref.name, presence.last_error, presence.incarnation or 0))

    def down(self, down: Down) -> None:
        """Queue the completion: an instance has ended, or there was none when the watch began."""
        if not self._repeat:
            self._ref.remove_watch(self)
        self._queue(down)

    def up(self, up: Up) -> None:
        """Queue the completion, if starts are watched: an instance has started."""
        if self._up is not None:
            self._queue(up)

    def cancel(self) -> None:
        """End the watch and drop its messages that were not handled yet; may be called at any
        time."""
        if self._pending:
            self._pending = False
            self._ref.remove_watch(self)
            operations_of(self._cell).remove_timer(self)

    def take(self) -> Message | None:
        """Return the next message, and end a watch that does not repeat; None if cancelled."""
        if not self._pending:
            return None
        event = self._undelivered.popleft()
        if self._undelivered:
            operations_of(self._cell).complete(self)
        if isinstance(event, Up):
            assert self._up is not None
            return made_message(self._up(event))
        _notified_ends(operations_of(self._cell)).add(self._ref.name, event.incarnation)
        if not self._repeat:
            self.cancel()
        return made_message(self._then(event))

    def abandon(self, error: ActorError) -> None:
        """End the watch because the watching instance has ended."""
        self._pending = False
        self._ref.remove_watch(self)

    def _queue(self, event: Down | Up) -> None:
        if not self._undelivered:
            operations_of(self._cell).complete(self)
        self._undelivered.append(event)


class NotifiedEnds:
    """The ends of other actors of which an instance was notified, by the actors' names.

    Bounded: an end that was dropped from here is notified once more if the actor is watched again.
    """

    __slots__ = ("_incarnations", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._incarnations: OrderedDict[str, int] = OrderedDict()

    def add(self, name: str, incarnation: int) -> None:
        """Record that the instance was notified of the end of an `incarnation`."""
        self._incarnations[name] = incarnation
        self._incarnations.move_to_end(name)
        if len(self._incarnations) > self._limit:
            self._incarnations.popitem(last=False)

    def covers(self, name: str, incarnation: int | None) -> bool:
        """Return whether the instance was notified of this end, or of any if the number is None."""
        notified = self._incarnations.get(name)
        return notified is not None and incarnation in (None, notified)


def _notified_ends(operations: PendingOperations) -> NotifiedEnds:
    if operations.notified_ends is None:
        operations.notified_ends = NotifiedEnds(operations.max_timers)
    return operations.notified_ends


def cancel_timers(cell: ActorCell) -> None:
    """Cancel the timers and watches of a cell: a stopping actor does not wait for them."""
    for operation in cell.pending:
        if isinstance(operation, Timer | Watch):
            operation.cancel()
