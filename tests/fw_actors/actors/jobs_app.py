"""An app of the tests, with functions that may be enqueued."""

from __future__ import annotations

import sys
from typing import Any


def note(fw: Any, text: str) -> None:
    """Make a Role as a mark that it ran, and as whom."""
    fw.as_user("Administrator").new_doc("Role", name=f"{text} by {fw.user}").insert()


def fail_after_writing(fw: Any, text: str) -> None:
    """Write, then fail: nothing of it stays."""
    note(fw, text)
    raise RuntimeError("the other system is down")


def emit(fw: Any) -> None:
    """Emit an event, and enqueue another job, whose number is the event's."""
    number = fw.enqueue(note, text="later")
    fw.as_user("Administrator").webhooks.emit("job.ran", {"next": number})


async def _later() -> None:
    """A coroutine that is never awaited."""


def leave_undone(fw: Any) -> Any:
    """Write, and give back what nobody runs, as an async function behind a decorator does."""
    note(fw, "half")
    return _later()


def leave(fw: Any) -> None:
    """Try to end more than itself."""
    sys.exit(3)
