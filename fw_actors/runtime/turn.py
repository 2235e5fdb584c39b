"""One turn of an actor: at most 128 messages, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import trio

from fw_actors.runtime.cell import RECENT, Cell
from fw_actors.runtime.dead_letters import Reason
from fw_actors.runtime.faults import ActorFailed, NotHandled
from fw_actors.runtime.life import Instance
from fw_actors.runtime.mailbox import Item
from fw_actors.runtime.messages import Message
from fw_actors.runtime.portrait import inspection_of
from fw_actors.runtime.reply import Reply

MESSAGES_A_TURN: Final = 128


async def run_turn(cell: Cell, actor: Instance) -> bool:  # noqa: C901 - the hottest loop of all
    """Handle what is there, up to a turn's worth; return whether more may be there.

    After True the caller has to make a checkpoint, so that nobody starves.
    Raises CrashedError when a handler failed: the message is gone, its asker has ActorFailed.
    """
    # A message that was told costs no call but its handler's own, and nothing that may be left out.
    handlers, take, now = actor.handlers, cell.mailbox.take, cell.runtime.deadlines.now
    note = cell.recent.append
    slot: Reply[Any] | None = None
    before, untimed = now(), False
    try:
        for _ in range(MESSAGES_A_TURN):
            item: Any = _attend(cell, actor) if cell.alert else take()
            kind = type(item)
            if kind is Reply:
                slot, item = item, item.message
                if not slot.wanted:
                    cell.skipped += 1
                    slot = None
                    continue
                cell.current = slot
                kind = type(item)
            try:
                function, is_async = handlers[kind]
            except KeyError:
                _refuse(cell, item)
                slot = None
                continue
            note(kind)
            untimed = True
            try:
                result = function(actor, item)
                if is_async:
                    result = await result
                    after = now()
                    cell.handler_seconds += after - before
                    before, untimed = after, False
            except Exception as error:
                raise cell.note_failure("handler", error) from error
            if slot is not None:
                if cell.current is slot:  # else its reply was kept
                    cell.current = None
                    slot.answer(result)
                slot = None
            cell.handled += 1
    except (trio.WouldBlock, trio.EndOfChannel):
        return False
    finally:
        if untimed:  # plain handlers are timed together
            cell.handler_seconds += now() - before
        if len(cell.recent) > RECENT:
            del cell.recent[:-RECENT]
    return True


def _attend(cell: Cell, actor: Instance) -> Item | None:
    """Look beyond the mailbox; return the next message of all, None when it needs no handling.

    Raises what the mailbox's `take` raises when there is nothing to be handled now.
    """
    if cell.inspections:
        _answer_inspections(cell, actor)
    if cell.suspended:
        raise trio.WouldBlock
    cell.alert = bool(cell.side) or cell.trace is not None or cell.tamper is not None
    item = _take_turns(cell) if cell.side else _take(cell)
    if cell.trace is not None:
        _show(cell, cell.trace, item)
    return item


def _take(cell: Cell) -> Item | None:
    item = cell.mailbox.take()
    return item if cell.tamper is None else cell.tamper(cell, item)


def _take_turns(cell: Cell) -> Item | None:
    """Return the next from side lane or mailbox; None when there is nothing to handle in it."""
    assert cell.side
    if cell.side_was_last:
        cell.side_was_last = False
        with suppress(trio.WouldBlock, trio.EndOfChannel):
            return _take(cell)
    cell.side_was_last = True
    try:
        return cell.side.popleft().take()
    except Exception as error:
        raise cell.note_failure("handler", error) from error


def _show(cell: Cell, onlooker: Callable[[Message], object], item: Item | None) -> None:
    if isinstance(item, Reply):
        item = item.message if item.wanted else None
    if item is None:
        return
    try:
        onlooker(item)
    except Exception as error:
        cell.trace = None  # an onlooker never harms the actor
        cell.runtime.log.warning(
            "trace_failed", actor=cell.name, error=cell.runtime.one_line(error)
        )


def _refuse(cell: Cell, message: Message | None) -> None:
    """Settle a message without a handler; None is a message that was called off on its way."""
    if message is None:
        return
    slot, cell.current = cell.current, None
    if slot is not None:
        slot.abandon(NotHandled(cell.name, type(message).__name__))
    cell.runtime.dead_letters.add(cell.name, message, Reason.NOT_HANDLED)


def _answer_inspections(cell: Cell, actor: Instance) -> None:
    slots, cell.inspections = cell.inspections, None
    for slot in slots or ():
        result: Any
        try:
            result = inspection_of(cell, actor.describe())
        except Exception as error:
            slot.abandon(ActorFailed(cell.name, cell.runtime.one_line(error)))
        else:
            slot.answer(result)
