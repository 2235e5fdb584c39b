"""Reads for those who must not wait as long as a store may take: probes and scrapes.

A read that has begun is waited for, and a server that is frozen, or behind a network that swallows
all, lets it wait without end. Here the actor waits; whoever asked it leaves at the deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fw_actors.errors import OverloadedError
from fw_actors.runtime import Actor, ActorError, MailboxPolicy, Overflow, Ref, Request, handles
from fw_actors.store import Store, StoreError, Tx


class Look(Request[Any | None], frozen=True):
    """Run `fn` against a snapshot; answered with what it returns, None when that can't be had."""

    fn: Callable[[Tx], Any]


class Onlooker(Actor):
    """See the module. One look at a time; those whose askers have left are skipped."""

    mailbox = MailboxPolicy(capacity=64, overflow=Overflow.REFUSE)

    def __init__(self, store: Store, *, reserved: bool = False) -> None:
        """`reserved`: see `Store.read`."""
        self._store, self._reserved = store, reserved

    @handles(Look)
    async def look(self, message: Look) -> Any | None:
        """Wait for the store, however long it takes."""
        try:
            return await self._store.read(message.fn, reserved=self._reserved)
        except (OverloadedError, StoreError):
            return None
        except Exception as defect:  # asked again and again, it must not end who looks
            self.context.log.error("look.failed", error=self.context.one_line(defect))
            return None


async def look(onlooker: Ref, fn: Callable[[Tx], Any], seconds: float) -> Any | None:
    """Return what `fn`, which never returns None, finds in a snapshot; None when the store does
    not answer within `seconds`."""
    try:
        return await onlooker.ask(Look(fn), deadline=seconds)
    except ActorError:
        return None
