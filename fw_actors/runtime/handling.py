"""How a cell takes its messages in turns and runs the handlers of its instance."""

from __future__ import annotations

from abc import ABC
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from fw_actors.runtime.cell import RECENT_TYPES, ActorCell
from fw_actors.runtime.errors import ActorFailed, NotHandled, passed_on
from fw_actors.runtime.events import EventKind
from fw_actors.runtime.mailbox import DeadLetterReason, Item
from fw_actors.runtime.messages import PLAIN_RESULTS, Message, check_result
from fw_actors.runtime.reply import PendingReply
from fw_actors.runtime.snapshot import inspection_of
from fw_actors.runtime.variables import carrying_handler

if TYPE_CHECKING:
    from fw_actors.runtime.actor import Actor
    from fw_actors.runtime.operations import Completion

RECENT_TYPES_KEPT: Final = 64  # after a batch: to cut the list after each would cost more
SECONDS_PER_BATCH: Final = 0.002
CHECKPOINTS_AFTER_LONG_BATCH: Final = 3
"""trio runs all that is ready in random order, and a question takes two such rounds: to the actor,
and back to its asker. With three rounds for others a busy actor delays it by one batch at most."""
COARSE: Final = (range(8), range(24), range(32), range(32), range(32))
"""A batch of 128 messages: the clock is read after each of these stretches."""
FINE: Final = (range(1),) * 128
"""The same for an actor whose last handlers were slow."""


class HandlingCell(ActorCell, ABC):
    """A cell that has instances. Its fields are those of `ActorCell`."""

    __slots__ = ()

    async def _run_batch(self, actor: Actor) -> int:
        """Handle messages, limited by number and time.

        Returns the number of checkpoints that the caller must pass before the next batch, so that
        other tasks can run; 0 if nothing is waiting.
        Raises CrashedError if a handler failed: its message is lost, its asker has ActorFailed.
        """
        now = self.runtime.deadlines.now
        began = before = now()
        for stretch in FINE if self._slow else COARSE:
            if not await self._run_handlers(actor, stretch, before):
                return 0
            after = now()
            self._slow = after - before > SECONDS_PER_BATCH / 8
            if after - began > SECONDS_PER_BATCH:
                return CHECKPOINTS_AFTER_LONG_BATCH
            before = after
        return 1

    async def _run_handlers(  # noqa: C901, PLR0912, PLR0915
        self, actor: Actor, stretch: range, before: float
    ) -> bool:
        """Handle one message for each number of `stretch`; return False if there are no more.

        `before` is the present time. The hottest lines of all, which is why they are not in further
        functions: a message that was told costs one call, its handler's, beside the channel's own.
        """
        handlers, take, now = actor.handlers, self.mailbox.take, self.runtime.deadlines.now
        remember = self._recent.append
        reply: PendingReply[Any] | None = None
        untimed = False
        try:
            for _ in stretch:
                item: Any = self._next_item(actor) if self._control_due else take()
                kind = type(item)
                if kind is PendingReply:
                    if not item.wanted or (item.parent is not None and item.abandon_orphan()):
                        self.cancelled += 1
                        continue
                    self._current = self._serves = reply = item
                    item = reply.message
                    kind = type(item)
                try:
                    function, is_async = handlers[kind]
                except KeyError:
                    self._reject(item)
                    reply = self._serves = None
                    continue
                remember(kind)
                untimed = True
                if reply is not None and reply.carried:
                    function = carrying_handler(reply.carried, function, is_async=is_async)
                    is_async = True
                try:
                    result = function(actor, item)
                    if is_async:
                        result = await result
                        after = now()
                        self._add_time(actor, 1, after - before)
                        before, untimed = after, False
                    elif result is not None and type(result) not in PLAIN_RESULTS:
                        check_result(function, result)
                except Exception as error:
                    self._pass_on(actor, kind, error)
                    reply = None
                    continue
                self.handled += 1
                if reply is not None:
                    if self._current is reply:  # else the handler kept it
                        self._current = None
                        reply.answer(result)
                    reply = self._serves = None
        except (trio.WouldBlock, trio.EndOfChannel):
            return take is not self.mailbox.take  # then it has become a member of a topic
        finally:
            if untimed:  # one clock read for some plain handlers, not for each
                self._add_time(actor, len(stretch), now() - before)
            if len(self._recent) > RECENT_TYPES_KEPT:
                del self._recent[:-RECENT_TYPES]
        return True

    def _add_time(self, actor: Actor, handlers: int, seconds: float) -> None:
        """Add the time of up to so many handlers; log it if they were slow."""
        self.handler_seconds += seconds
        if seconds >= actor.slow_seconds:
            kinds = {kind.__name__: None for kind in self._recent[-handlers:]}
            self.runtime.note_slow(self.name, type(actor), tuple(kinds), seconds)

    def _pass_on(self, actor: Actor, kind: type[Message], error: Exception) -> None:
        """Settle the present message by an error of its handler, or fail the instance.

        Raises CrashedError.
        """
        fault = passed_on(error, actor.faults, actor.refusals)
        if fault is None:
            raise self.record_failure("handler", error) from error
        self.handled += 1
        self._current = None
        served, self._serves = self._serves, None
        if served is not None and served.settle(fault):
            return
        self.passed_on += 1
        self.runtime.events.emit(
            EventKind.PASSED_ON,
            self.name,
            reason=self.runtime.one_line(fault),
            message_type=kind.__name__,
        )
        if self.passed_on & (self.passed_on - 1) == 0:  # the 1st, 2nd, 4th, 8th...
            self.runtime.log.warning(
                "passed_on",
                actor=self.name,
                message_type=kind.__name__,
                error=self.runtime.one_line(fault),
                count=self.passed_on,
            )

    def _next_item(self, actor: Actor) -> Item | None:
        """Look at control and completions first; return the next item, None for a cancelled one.

        Raises what the mailbox's `take` raises if there is nothing to handle.
        """
        self._serves = None
        if self._inspections:
            self._answer_inspections(actor)
        if self._suspended:
            raise trio.WouldBlock
        operations = self._operations
        completions = operations.completions if operations is not None else None
        self._control_due = (
            bool(completions)
            or self._mailbox_held
            or self.full_of_work
            or self.mailbox.returned > 0
            or self._tracer is not None
            or self._fault_injector is not None
        )
        item = self._alternate(completions) if completions else self._from_mailbox()
        if self._tracer is not None:
            self._show(self._tracer, item)
        return item

    def _from_mailbox(self) -> Item | None:
        if self._mailbox_held or self.full_of_work:
            raise trio.WouldBlock
        item = self.mailbox.take()
        return item if self._fault_injector is None else self._fault_injector(self, item)

    def _alternate(self, completions: deque[Completion]) -> Item | None:
        """Return the next item from mailbox or completions, in turns while both have one."""
        if self._completion_was_last:
            self._completion_was_last = False
            with suppress(trio.WouldBlock, trio.EndOfChannel):
                return self._from_mailbox()
        self._completion_was_last = True
        try:
            completion = completions.popleft()
            self._serves = completion.serves
            return completion.take()
        except Exception as error:  # `then` of work or watch could not make the message
            raise self.record_failure("handler", error) from error

    def _show(self, tracer: Callable[[Message], object], item: Item | None) -> None:
        if isinstance(item, PendingReply):
            item = item.message if item.wanted else None
        if item is None:
            return
        try:
            tracer(item)
        except Exception as error:
            self._tracer = None  # a tracer that fails must not fail the actor
            self.runtime.log.warning(
                "trace_failed", actor=self.name, error=self.runtime.one_line(error)
            )

    def _reject(self, message: Message | None) -> None:
        """Settle a message without a handler; None is a completion that was cancelled."""
        if message is None:
            return
        reply, self._current = self._current, None
        if reply is not None:
            reply.abandon(NotHandled(self.name, type(message).__name__))
        self.runtime.dead_letters.add(self.name, message, DeadLetterReason.NOT_HANDLED)

    def _answer_inspections(self, actor: Actor) -> None:
        replies, self._inspections = self._inspections, None
        for reply in replies or ():
            result: Any
            try:
                result = inspection_of(self, actor.describe())
            except Exception as error:
                reply.abandon(ActorFailed(self.name, self.runtime.one_line(error)))
            else:
                reply.answer(result)
