"""What a parked task is woken with: one object for all of them.

`reschedule` makes an `outcome.Value(None)` for each call, which may be unwrapped only once. To make
and unwrap them took a ninth of an ask, for a value that nobody looks at.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import Final, TypeVar, cast

from outcome import Outcome

ResultT = TypeVar("ResultT")


class NothingToTell(Outcome[None]):
    """The outcome None, any number of times."""

    __slots__ = ()

    # In C, since each ask and each delivery calls it: the type of None, called, returns None.
    unwrap = staticmethod(cast("Callable[[], None]", type(None)))

    def send(self, gen: Generator[ResultT, None, object]) -> ResultT:
        """Send None into a generator."""
        return gen.send(None)

    async def asend(self, agen: AsyncGenerator[ResultT, None]) -> ResultT:
        """Send None into an async generator."""
        return await agen.asend(None)


WOKEN: Final = NothingToTell()
"""The second argument of `reschedule` for a task that is only to go on."""
