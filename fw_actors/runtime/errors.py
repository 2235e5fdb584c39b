"""The faults that messages can meet on their way: one small family."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class ActorError(Exception):
    """Something that kept a message or its answer from arriving. Catch it; raise its children."""

    def __init__(self, message: str) -> None:
        if type(self) is ActorError:
            raise TypeError("ActorError is a family; raise one of its children")
        super().__init__(message)


class AskTimeout(ActorError):
    """Raised by `ask` when no answer came within its deadline; the question is withdrawn."""

    def __init__(self, actor: str, seconds: float) -> None:
        self.actor, self.seconds = actor, seconds
        super().__init__(f"{actor!r} did not answer within {seconds:g} s.")


class ActorGone(ActorError):
    """Raised when the actor isn't running, or stopped before it could answer."""

    def __init__(self, actor: str) -> None:
        self.actor = actor
        super().__init__(f"{actor!r} is not running.")


class ActorFailed(ActorError):
    """Raised in `ask` when the actor failed while it had the question; a new one for each caller.

    `error` is the failure as one line. The failure itself, with its traceback, is in the log.
    """

    def __init__(self, actor: str, error: str) -> None:
        self.actor, self.error = actor, error
        super().__init__(f"{actor!r} failed: {error}")


class MailboxFull(ActorError):
    """Raised when a bounded place (mailbox, pool, work or timers of an actor) has no room."""

    def __init__(self, actor: str, capacity: int, what: str = "messages") -> None:
        self.actor, self.capacity = actor, capacity
        super().__init__(f"{actor!r} has no room: it holds at most {capacity} {what}.")


class AskCycle(ActorError):
    """Raised when waiting would close a ring of actors that wait for each other."""

    def __init__(self, ring: Sequence[str]) -> None:
        self.ring = tuple(ring)
        super().__init__(f"These would wait for each other: {' -> '.join(self.ring)}.")


class NotHandled(ActorError):
    """Raised in `ask` when the actor has no handler for this type of message."""

    def __init__(self, actor: str, kind: str) -> None:
        self.actor, self.kind = actor, kind
        super().__init__(f"{actor!r} has no handler for {kind}.")


class AlreadyAnswered(ActorError):
    """Raised by the second `answer` or `fail` on one kept reply: a defect of the actor."""

    def __init__(self, actor: str, kind: str) -> None:
        super().__init__(f"{actor!r} has answered this {kind} already.")


def one_line(error: BaseException, scrub: Callable[[str], str] = str) -> str:
    """Return a failure as one short line: its type, and its text without line breaks.

    `scrub` removes from the text, before it is cut, what must not be told.
    """
    text = " ".join(scrub(str(error)).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
