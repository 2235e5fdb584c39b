"""What an actor begins beside its mailbox and hears of later: work, timers, watches.

Each is a hold on the instance that began it, and arrives in the side lane as a message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from outcome import Error, Outcome, Value

from fw_actors.runtime.cell import Cell
from fw_actors.runtime.faults import RuntimeFault
from fw_actors.runtime.life import Down
from fw_actors.runtime.messages import Message
from fw_actors.runtime.rings import CURRENT
from fw_actors.runtime.workers import Lifeline


class Work:
    """One async function, run by a worker; a job for `Workers.submit`."""

    __slots__ = ("_args", "_cell", "_fn", "_outcome", "_then", "_unwanted", "scope")

    def __init__(
        self,
        cell: Cell,
        fn: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        then: Callable[[Outcome[Any]], Message],
    ) -> None:
        self._cell, self._fn, self._args, self._then = cell, fn, args, then
        self._outcome: Outcome[Any] | None = None
        self._unwanted = False
        self.scope: Lifeline | None = None
        cell.works += 1
        cell.hold(self)

    async def run(self) -> None:
        """Run the function to its end; the actor hears of it unless it has gone."""
        if self._unwanted:
            return
        CURRENT.set(None)  # it does not hold the actor up
        try:
            result: Outcome[Any] = Value(await self._fn(*self._args))
        except Exception as error:
            result = Error(error)
        if not self._unwanted:
            self._outcome = result
            self._cell.arrive(self)

    def take(self) -> Message:
        """Give the message that tells of the end."""
        assert self._outcome is not None
        self._cell.works -= 1
        self._cell.release(self)
        return self._then(self._outcome)

    def abandon(self, fault: RuntimeFault) -> None:
        """Cancel the function; nobody hears of it."""
        self._unwanted = True
        if self.scope is not None:
            self.scope.cancel()


class Timer:
    """A message to come later, from `context.after`."""

    __slots__ = ("_cell", "_message", "_pending", "_seconds")

    def __init__(self, cell: Cell, seconds: float, message: Message) -> None:
        self._cell, self._seconds, self._message = cell, seconds, message
        self._pending = True
        cell.timers += 1
        cell.hold(self)
        cell.runtime.deadlines.add(self, seconds)

    @property
    def pending(self) -> bool:
        """Whether the message is still to be handled."""
        return self._pending

    def cancel(self) -> None:
        """Forget the message; no difference when it was handled or cancelled before."""
        if self._pending:
            self._pending = False
            self._cell.runtime.deadlines.withdraw(self, self._seconds)
            self._cell.timers -= 1
            self._cell.release(self)

    def expire(self) -> None:
        """Send the message on its way."""
        self._cell.arrive(self)

    def take(self) -> Message | None:
        """Give the message, unless it was cancelled on the way."""
        if not self._pending:
            return None
        self._pending = False
        self._cell.timers -= 1
        self._cell.release(self)
        return self._message

    def abandon(self, fault: RuntimeFault) -> None:
        """Forget the message, since the instance has gone."""
        self._pending = False
        self._cell.runtime.deadlines.withdraw(self, self._seconds)


class Watch:
    """Waits for the end of another actor's instance, from `context.watch`."""

    __slots__ = ("_cell", "_down", "_pending", "_then", "_watched")

    def __init__(self, cell: Cell, watched: Cell, then: Callable[[Down], Message]) -> None:
        self._cell, self._watched, self._then = cell, watched, then
        self._down: Down | None = None
        self._pending = True
        cell.timers += 1
        cell.hold(self)
        if watched.actor is None:
            self.fire(Down(watched.name, watched.last_error))
        else:
            watched.watch(self)

    def fire(self, down: Down) -> None:
        """Send word on its way: the instance has gone."""
        self._down = down
        self._cell.arrive(self)

    def cancel(self) -> None:
        """Watch no longer; no difference when word was taken or it was cancelled before."""
        if self._pending:
            self._pending = False
            self._watched.unwatch(self)
            self._cell.timers -= 1
            self._cell.release(self)

    def take(self) -> Message | None:
        """Give the message that tells of the end."""
        if not self._pending or self._down is None:
            return None
        self._pending = False
        self._cell.timers -= 1
        self._cell.release(self)
        return self._then(self._down)

    def abandon(self, fault: RuntimeFault) -> None:
        """Watch no longer, since the watcher's instance has gone."""
        self._pending = False
        self._watched.unwatch(self)


def cancel_timers(cell: Cell) -> None:
    """Forget what is to come to a cell later, since there is no later."""
    for hold in list(cell.holds or ()):
        if isinstance(hold, Timer | Watch):
            hold.cancel()
