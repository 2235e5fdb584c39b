"""One actor of a keyed pool: a plain object while idle, run by a worker while it has messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

from fw_actors.runtime.actor import Actor, Context
from fw_actors.runtime.cell import Cell, Tamper
from fw_actors.runtime.faults import ActorFailed, ActorGone
from fw_actors.runtime.life import CrashedError, Instance, State
from fw_actors.runtime.mailbox import Mailbox
from fw_actors.runtime.reference import KeyedRef, Keyring
from fw_actors.runtime.reply import Reply
from fw_actors.runtime.rings import CURRENT
from fw_actors.runtime.turn import run_turn
from fw_actors.runtime.workers import Lifeline


class Home(Keyring, Protocol):
    """The pool, as far as its cells have to know it; see `KeyedPool`."""

    make: Callable[[str], Actor]
    no_mailbox: Mailbox
    tamper: Tamper | None

    def awoken(self, cell: KeyedCell) -> None: ...

    def slept(self, cell: KeyedCell) -> None: ...

    def rested(self, cell: KeyedCell) -> None: ...


class KeyedContext(Context):
    """What an actor of a pool has in its hands."""

    __slots__ = ("_keyed",)

    def __init__(self, cell: KeyedCell) -> None:
        super().__init__(cell, cell.key)
        self._keyed = cell

    @property
    def ref(self) -> KeyedRef:
        """This actor's own address."""
        return KeyedRef(self._keyed.pool, self._keyed.key)


class KeyedCell(Cell):
    """A job for a worker. The pool gives it a mailbox while it is awake, and takes it back."""

    __slots__ = ("dismissed", "fresh", "idle_since", "key", "leaving", "pool", "scope")

    def __init__(self, pool: Home, key: str) -> None:
        super().__init__(pool.runtime, f"{pool.name}/{key}", pool.no_mailbox)
        self.pool = pool
        self.key = key
        self.awake = False
        self.leaving = False
        """Whether the instance is to go away before anything else is handled."""
        self.dismissed = False
        """Whether it is to go away when it is idle next."""
        self.fresh = False
        """Whether the instance's `started` is still to be run."""
        self.idle_since = 0.0
        self.scope: Lifeline | None = None
        if pool.tamper is not None:
            self.set_tamper(pool.tamper)

    @property
    def state(self) -> State:
        """Where the actor is in its life."""
        if self.leaving:
            return State.STOPPING
        return State.RUNNING if self.actor is not None else State.ABSENT

    def wake(self) -> None:
        """Have a worker run it."""
        self.awake = True
        self.pool.awoken(self)
        self.runtime.workers.submit(self)

    def freed(self) -> None:
        """Become idle, if it only waited for this hold to end."""
        if not self.awake and self.actor is not None:
            self.pool.rested(self)

    def stop(self, deadline: float) -> None:
        """Go away when it is idle next; the deadline is kept by the pool."""
        self.dismissed = True

    @property
    def leaves_at_once(self) -> bool:
        """Whether the instance has nothing to run at its end."""
        actor = self.actor
        return actor is None or self.fresh or type(actor).stopping is Actor.stopping

    def construct(self) -> None:
        """Make the instance; `started` is called when it runs. Raises CrashedError."""
        try:
            self.actor = actor = self.pool.make(self.key)
            actor.context = KeyedContext(self)
            self.overflow = actor.mailbox.overflow
        except Exception as error:
            raise self.note_failure("construct", error) from error
        self.fresh = type(actor).started is not Actor.started

    async def run(self) -> None:
        """Handle messages until there are none; a failure ends the instance, not the run."""
        CURRENT.set(self)
        try:
            await self._run()
        except BaseException:  # cancelled: the pool has come to its end
            self.settle_instance(None)
            self.settle_mailbox()
            raise
        finally:
            self.awake = False
            self.pool.slept(self)

    async def _run(self) -> None:
        while True:
            try:
                if self.leaving:
                    await self._leave()
                if self.actor is None or self.fresh:
                    if not self.mailbox.depth:
                        return self._rest_unmade()
                    await self._begin()
                if self.actor is not None and not await run_turn(self, self.actor):
                    return None
            except CrashedError as crash:
                self.settle_instance(self.runtime.one_line(crash.error))
                self.restarts += 1
            await trio.lowlevel.checkpoint()

    async def _begin(self) -> None:
        """Make the instance ready; when that fails, the first message fails with it."""
        try:
            if self.actor is None:
                self.construct()
            if self.fresh and self.actor is not None:
                await self._start(self.actor)
        except CrashedError as crash:
            first = self.mailbox.take()
            if isinstance(first, Reply):
                first.abandon(ActorFailed(self.name, self.runtime.one_line(crash.error)))
            raise

    async def _start(self, actor: Instance) -> None:
        self.fresh = False
        try:
            await actor.started()
        except Exception as error:
            raise self.note_failure("start", error) from error

    async def _leave(self) -> None:
        actor = self.actor
        try:
            if actor is not None and not self.fresh:
                await actor.stopping()
        except Exception as error:
            self.note_failure("stop", error)
        self.leaving = self.dismissed = False
        self.settle_instance(None)

    def _rest_unmade(self) -> None:
        """Rest without an instance; the pool forgets this cell."""
        self.settle_instance(None)
        for slot in self.inspections or ():
            slot.abandon(ActorGone(self.name))
        self.inspections = None
