"""Store reads with a deadline, for readiness probes and scrapes of `/metrics`.

A read cannot be cancelled once it has begun, and a frozen or unreachable database server blocks it
indefinitely. The actor waits; its callers leave at the deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fw_actors.errors import OverloadedError
from fw_actors.runtime import Actor, ActorError, MailboxPolicy, Overflow, Ref, Request, handles
from fw_actors.store import Store, StoreError, Tx


class ReadSnapshot(Request[Any | None], frozen=True):
    """Request to run `fn` against a snapshot; answered with its result, None on failure."""

    fn: Callable[[Tx], Any]


class StoreProbe(Actor):
    """Reads one snapshot at a time; requests whose callers have left are skipped."""

    mailbox = MailboxPolicy(capacity=64, overflow=Overflow.REFUSE)

    def __init__(self, store: Store, *, reserved: bool = False) -> None:
        """`reserved` is passed to `Store.read`."""
        self._store, self._reserved = store, reserved

    @handles(ReadSnapshot)
    async def read(self, message: ReadSnapshot) -> Any | None:
        """Run the read, however long it takes."""
        try:
            return await self._store.read(message.fn, reserved=self._reserved)
        except (OverloadedError, StoreError):
            return None
        except Exception as defect:  # repeated on each probe, it must not stop the actor
            self.context.log.error("look.failed", error=self.context.one_line(defect))
            return None


async def read_with_deadline(probe: Ref, fn: Callable[[Tx], Any], seconds: float) -> Any | None:
    """Return the result of `fn` (never None), or None if the store does not answer within
    `seconds`."""
    try:
        return await probe.ask(ReadSnapshot(fn), deadline=seconds)
    except ActorError:
        return None


async def answers(probe: Ref, seconds: float) -> bool:
    """Return whether the store's threads answer within `seconds`.

    A refusal is an answer: a database that is away is no reason to end the process, since service
    resumes by itself when it is back (O-14).
    """
    try:
        await probe.ask(ReadSnapshot(_nothing), deadline=seconds)
    except ActorError:
        return False
    return True


def _nothing(tx: Tx) -> None:
    """Read nothing: the transaction itself is the question."""
