"""One turn of an actor: at most 128 messages, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import trio

from fw_actors.runtime.cell import RECENT, Cell
from fw_actors.runtime.dead_letters import Reason
from fw_actors.runtime.faults import ActorFailed, NotHandled, one_line
from fw_actors.runtime.inspection import inspection_of
from fw_actors.runtime.life import Arrival
from fw_actors.runtime.reply import Reply

if TYPE_CHECKING:
    from fw_actors.runtime.actor import Actor
    from fw_actors.runtime.mailbox import Item
    from fw_actors.runtime.messages import Message

MESSAGES_A_TURN: Final = 128


async def run_turn(cell: Cell, actor: Actor) -> bool:
    """Handle what is there, up to a turn's worth; return whether more may be there.

    After True the caller has to make a checkpoint, so that nobody starves.
    Raises CrashedError when a handler failed: the message is gone, its asker has ActorFailed.
    """
    handlers = actor.handlers
    take = cell.mailbox.take
    before = trio.current_time()
    for _ in range(MESSAGES_A_TURN):
        if cell.inspections:
            _answer_inspections(cell, actor)
        if cell.suspended:
            return False
        try:
            message = _next_message(cell, take)
        except (trio.WouldBlock, trio.EndOfChannel):
            return False
        if message is None:
            continue
        handler = handlers.get(type(message))
        if handler is None:
            _refuse(cell, message)
            continue
        _note(cell, message)
        try:
            result = handler.function(actor, message)
            if handler.is_async:
                result = await result
        except Exception as error:
            raise cell.note_failure("handler", error) from error
        slot = cell.current
        if slot is not None:  # a kept reply has left this place
            cell.current = None
            slot.answer(result)
        cell.handled += 1
        after = trio.current_time()
        cell.handler_seconds += after - before
        before = after
    return True


def _next_message(cell: Cell, take: Callable[[], Item]) -> Message | None:
    """Return the next message, side lane and mailbox in turns; None when it needs no handling.

    A question becomes `cell.current`. Raises what `take` raises when both lanes are empty.
    """
    if cell.side and not cell.side_was_last:
        cell.side_was_last = True
        return _take_aside(cell.side.popleft(), cell)
    cell.side_was_last = False
    try:
        item = take()
    except (trio.WouldBlock, trio.EndOfChannel):
        if cell.side:
            return None
        raise
    if isinstance(item, Reply):
        if item.wanted:
            cell.current = item
            return item.message
        cell.skipped += 1
        return None
    return item


def _note(cell: Cell, message: Message) -> None:
    recent = cell.recent
    recent.append(type(message).__name__)
    if len(recent) > RECENT:
        del recent[0]
    if cell.trace is not None:
        try:
            cell.trace(message)
        except Exception as error:
            cell.trace = None  # an onlooker never harms the actor
            cell.runtime.log.warning("trace_failed", actor=cell.name, error=one_line(error))


def _take_aside(arrival: Arrival, cell: Cell) -> Message | None:
    try:
        return arrival.take()
    except Exception as error:
        raise cell.note_failure("handler", error) from error


def _refuse(cell: Cell, message: Message) -> None:
    slot, cell.current = cell.current, None
    if slot is not None:
        slot.abandon(NotHandled(cell.name, type(message).__name__))
    cell.runtime.dead_letters.add(cell.name, message, Reason.NOT_HANDLED)


def _answer_inspections(cell: Cell, actor: Actor) -> None:
    slots, cell.inspections = cell.inspections, None
    for slot in slots or ():
        result: Any
        try:
            result = inspection_of(cell, actor.describe())
        except Exception as error:
            slot.abandon(ActorFailed(cell.name, one_line(error)))
        else:
            slot.answer(result)
