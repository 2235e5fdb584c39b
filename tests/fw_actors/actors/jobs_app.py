"""An app of the tests, with functions that may be enqueued."""

from __future__ import annotations

from typing import Any

from fw_actors.errors import OverloadedError, query_timeout, store_refusal


def note(fw: Any, text: str) -> None:
    """Make a Role whose name records the call and its user."""
    fw.as_user("Administrator").new_doc("Role", name=f"{text} by {fw.user}").insert()


def fail_after_writing(fw: Any, text: str) -> None:
    """Write, then fail, so that the write is rolled back."""
    note(fw, text)
    raise RuntimeError("the other system is down")


def fail_with(fw: Any, codes: list[int]) -> None:
    """Fail with a text of these characters, which no argument may contain."""
    raise RuntimeError("".join(map(chr, codes)))


def emit(fw: Any) -> None:
    """Enqueue another job, and emit an event with its number."""
    number = fw.enqueue(note, text="later")
    fw.as_user("Administrator").webhooks.emit("job.ran", {"next": number})


async def _later() -> None:
    """A coroutine that is never awaited."""


def leave_undone(fw: Any) -> Any:
    """Write, and return a coroutine, as an async function behind a decorator does."""
    note(fw, "half")
    return _later()


def save_nothing(fw: Any) -> None:
    """Save a document that is refused."""
    fw.new_doc("Role", name="a/b").insert()


class EndOfAppError(BaseException):
    """An end of an app's own, which `except Exception` does not catch."""


_ENDS = (SystemExit, KeyboardInterrupt, GeneratorExit, EndOfAppError)
ENDS = {each.__name__: each for each in _ENDS}


def leave(fw: Any, end: str) -> None:
    """Raise this error, as if to end the process."""
    raise ENDS[end]


def search_too_long(fw: Any) -> None:
    """Search for longer than a search inside a write may take."""
    raise query_timeout(5.0)


def find_other_system_busy(fw: Any) -> None:
    """Write, then fail because another system, not the store, is busy."""
    note(fw, "half")
    raise OverloadedError("The other system is busy.")


_conflicts: list[str] = []


def note_after_conflict(fw: Any, text: str) -> None:
    """Be ended by the database the first time, as one of two transactions in a deadlock."""
    if text not in _conflicts:
        _conflicts.append(text)
        raise store_refusal("A deadlock; nothing was changed. Try again.")
    note(fw, text)
