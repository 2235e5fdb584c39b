"""Opens a database in a thread that is left behind when its opening is not waited for any more.

Another process may hold the lock of a migration for half a minute, and a server may not answer: a
start that is cancelled meanwhile ends at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

T = TypeVar("T")


async def open_in_thread(opening: Callable[[], T], close: Callable[[T], None]) -> T:
    """Run `opening` in a thread and return what it opened; raises what it raises.

    Cancelled, what it opens yet is closed again by `close`, by whoever comes last.
    """
    opened: list[T] = []
    ticket = [None]

    def is_first() -> bool:
        try:
            ticket.pop()  # atomic
        except IndexError:
            return False
        return True

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
