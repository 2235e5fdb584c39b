"""The errors of the runtime: why a message, or the answer to it, did not arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum

import trio


class ActorError(Exception):
    """Base class of the errors below. Catch it; raise one of its subclasses."""

    def __init__(self, message: str) -> None:
        if type(self) is ActorError:
            raise TypeError("ActorError is a base class: raise one of its subclasses")
        super().__init__(message)


class AskTimeout(ActorError):
    """Raised by `ask` if no answer came before the deadline; the request is withdrawn."""

    def __init__(self, actor: str, seconds: float) -> None:
        self.actor, self.seconds = actor, seconds
        super().__init__(f"{actor!r} did not answer within {seconds:g} s.")


class ActorGone(ActorError):
    """Raised if the actor is not running, or stopped before it could answer."""

    def __init__(self, actor: str) -> None:
        self.actor = actor
        super().__init__(f"{actor!r} is not running.")


class ActorFailed(ActorError):
    """Raised by `ask` if the actor failed before it answered; a new error for each asker.

    `error` is the failure as one line. The failure itself, with its traceback, is in the log, and
    is the cause of this error if it is known.
    """

    def __init__(self, actor: str, error: str, cause: BaseException | None = None) -> None:
        self.actor, self.error = actor, error
        super().__init__(f"{actor!r} failed: {error}")
        self.__cause__ = cause


class FailedTooOften(ActorFailed):
    """Raised if the actor of a key has failed so often that its pool refuses the key for a time.

    `failures` is their number, `seconds` the time until the key is accepted again.
    """

    def __init__(self, actor: str, error: str, failures: int, seconds: float) -> None:
        super().__init__(actor, error)
        self.failures, self.seconds = failures, seconds
        self.args = (
            f"{actor!r} has failed {failures} times, the last time with {error}; "
            f"it is refused for {seconds:.3g} s.",
        )


class MailboxFull(ActorError):
    """Raised if a limit is reached: of a mailbox, a pool, or an actor's work or timers."""

    def __init__(self, actor: str, capacity: int, what: str = "messages") -> None:
        self.actor, self.capacity = actor, capacity
        super().__init__(f"{actor!r} is full: the limit is {capacity} {what}.")


class AskCycle(ActorError):
    """Raised if waiting would be a deadlock: each actor of `cycle` would wait for the next."""

    def __init__(self, cycle: Sequence[str]) -> None:
        self.cycle = tuple(cycle)
        super().__init__(f"Waiting would be a deadlock: {' -> '.join(self.cycle)}.")


class NotHandled(ActorError):
    """Raised by `ask` if the actor has no handler for messages of this type."""

    def __init__(self, actor: str, kind: str) -> None:
        self.actor, self.kind = actor, kind
        super().__init__(f"{actor!r} has no handler for {kind}.")


class StartOverdueError(Exception):
    """The failure of an actor or a child that has not started in time; `place` is `file:line`."""

    def __init__(self, name: str, seconds: float, place: str) -> None:
        super().__init__(f"{name!r} has not started within {seconds:g} s; it waits at {place}")


class AlreadyAnswered(ActorError):
    """Raised by the second `answer` or `fail` of one kept reply: a defect of the actor."""

    def __init__(self, actor: str, kind: str) -> None:
        super().__init__(f"{actor!r} has already answered this {kind}.")


class Refused(Exception):
    """Raise it, or a subclass, in a handler to refuse: the asker gets it, and the actor
    continues."""


class Faults(Enum):
    """The treatments of runtime errors that a handler does not catch."""

    PASS_ON = "the asker gets the error, and the actor goes on"
    CRASH = "the instance fails, as for any other error"


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of a group, and of the groups inside; or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def passed_on(
    error: Exception, faults: Faults, refusals: tuple[type[Exception], ...]
) -> Exception | None:
    """Return the error that the asker gets instead of an answer; None if `error` fails the
    instance.

    For a group of only such errors, the first one. `AlreadyAnswered` always fails the instance,
    because it is a defect of the actor.
    """
    kinds: tuple[type[Exception], ...]
    kinds = (*refusals, Refused) if faults is Faults.CRASH else (*refusals, Refused, ActorError)
    first: Exception | None = None
    for leaf in leaves(error):
        if not isinstance(leaf, kinds) or isinstance(leaf, AlreadyAnswered):
            return None
        if first is None:
            first = leaf
    return first


def main_error(
    group: BaseExceptionGroup[BaseException],
    actor: str | None = None,
    causes: tuple[type[Exception], ...] = (),
) -> BaseException:
    """Return the error of a group from which all others follow, or the group if there is none.

    When an actor fails or ends, each task that waits for its answer also gets an error. These
    errors follow from any error if `actor` is the actor's name, and otherwise from an error of the
    types `causes`, an exit or an interrupt. A cancellation of the block at the same time is no
    error.
    """
    errors = [leaf for leaf in leaves(group) if not isinstance(leaf, trio.Cancelled)]
    if len(errors) == 1:
        return errors[0]
    others = [
        leaf
        for leaf in errors
        if not (isinstance(leaf, ActorFailed | ActorGone) and actor in (None, leaf.actor))
    ]
    if actor is None:
        exits = (*causes, SystemExit, KeyboardInterrupt)
        return others[0] if len(others) == 1 and isinstance(others[0], exits) else group
    if len(others) == 1:
        return others[0]
    failures = [leaf for leaf in errors if isinstance(leaf, ActorFailed)]
    return failures[0] if not others and failures else group


def one_line(error: BaseException, scrub: Callable[[str], str] = str) -> str:
    """Return an error as one short line: its type, and its text without line breaks.

    For a group its errors are shown. `scrub` removes secrets from the text before it is cut.
    """
    return "; ".join(_line_of(leaf, scrub) for leaf in leaves(error))[:400]


def _line_of(error: BaseException, scrub: Callable[[str], str]) -> str:
    text = " ".join(scrub(str(error)).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
