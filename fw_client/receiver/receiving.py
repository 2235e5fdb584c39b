"""A receiver: verifies a request, claims its delivery, calls the handler, and returns the response.

One generator defines the order of these steps. It yields each step, and the adapter of a web
framework runs it in the framework's way: directly, in a thread, or by awaiting.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from fw_client.errors import FwClientError
from fw_client.receiver.seen import ClaimResult, SeenClaim, SeenEvents, SeenInMemory
from fw_client.receiver.signatures import (
    TOLERANCE_SECONDS,
    NotAnEvent,
    NotGenuine,
    ReceivedEvent,
    read_event,
    signing_key,
    verify,
)

MAX_BODY: Final = 5 * 1024 * 1024
LEASE_SECONDS: Final = 60.0
TEST_EVENT: Final = "fw.test"
_log: Final = logging.getLogger("fw_client.receiver")

EventHandler = Callable[[ReceivedEvent], object]
"""A function, or a coroutine function if the framework is async."""
BlockingCall = Callable[[], Any]
InThread = Callable[[BlockingCall], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the generator: call `work`, which may block, or await its result."""

    work: BlockingCall
    awaited: bool = False


Steps = Generator[Step, Any, "ReceiverReply"]


class RejectEvent(FwClientError):
    """Raise it in a handler for an event that can never be handled: it is not sent again.

    The delivery then counts as failed at the service, and can be replayed once the handler supports
    it.
    """


@dataclass(frozen=True, slots=True)
class ReceiverReply:
    """The response to the sender; its body is empty."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)


class WebhookReceiver:
    """Receives the events of one or more Webhooks.

    Args:
        secrets: the Webhook's; during a rotation, the old and the new one.
        handle: called once for each event. If it raises, it is called again with the service's next
            attempt. It should end well within the Webhook's `timeout`; otherwise the event is sent
            again meanwhile, and that request is answered 503.
        seen: the record of handled deliveries; SeenInMemory() by default.
        tolerance: seconds that a request may be older or newer.
        max_body: bytes; a larger request is answered 413 and not read.
        lease: seconds that a handler may take; after that, another attempt may run it concurrently.
        clock: returns Unix seconds.

    Raises: ValueError for an unusable secret or number.
    """

    def __init__(
        self,
        secrets: Sequence[str],
        handle: EventHandler,
        *,
        seen: SeenEvents | None = None,
        tolerance: float = TOLERANCE_SECONDS,
        max_body: int = MAX_BODY,
        lease: float = LEASE_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if isinstance(secrets, str) or not secrets:
            raise ValueError("secrets must be a list with at least one secret.")
        if max_body < 1 or not lease > 0 or not tolerance >= 0:
            raise ValueError("max_body and lease must be more than 0, tolerance at least 0.")
        self._keys = tuple(signing_key(each) for each in secrets)
        self._handle, self._clock = handle, clock
        self._seen = SeenInMemory() if seen is None else seen
        self._tolerance, self._lease = tolerance, lease
        self.max_body = max_body

    @property
    def is_async(self) -> bool:
        """Whether the handler is a coroutine function, or an object that is called like one."""
        called = getattr(self._handle, "__call__", None)  # noqa: B004 (its kind is inspected)
        return any(inspect.iscoroutinefunction(each) for each in (self._handle, called))

    def receive(self, headers: Mapping[str, str], body: bytes | None) -> ReceiverReply:
        """Handle a request in this thread.

        Args:
            headers: by name, in any case.
            body: as received; None for one that is larger than `max_body`.

        Raises: TypeError for a handler that is a coroutine function; the errors of `seen`, which
            should be answered 500.
        """
        if self.is_async:
            raise TypeError("This handler is a coroutine function: use await receive_async.")
        steps = self._steps(headers, body)
        try:
            step = next(steps)
            while True:
                try:
                    done = step.work()
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(done)
        except StopIteration as end:
            reply: ReceiverReply = end.value
            return reply

    async def receive_async(
        self, headers: Mapping[str, str], body: bytes | None, in_thread: InThread
    ) -> ReceiverReply:
        """Handle a request in a task; `in_thread` runs a function that may block. See receive.

        If the task is cancelled while it awaits an asynchronous handler, the claim is released, so
        that the next attempt calls the handler again.
        """
        steps = self._steps(headers, body)
        try:
            step = next(steps)
            while True:
                try:
                    done = await (step.work() if step.awaited else in_thread(step.work))
                except Exception as error:
                    step = steps.throw(error)
                except BaseException as cancellation:
                    steps.throw(cancellation)
                    raise
                else:
                    step = steps.send(done)
        except StopIteration as end:
            reply: ReceiverReply = end.value
            return reply

    def _steps(self, headers: Mapping[str, str], body: bytes | None) -> Steps:
        """Process a request step by step; errors of the steps propagate."""
        event = self._genuine(headers, body)
        if isinstance(event, ReceiverReply):
            return event
        if event.type == TEST_EVENT:
            return ReceiverReply(204)
        if not self.is_async:
            # One step: a thread goes on after its request was cancelled, and settles its own claim.
            return (yield Step(partial(self._handled_here, event)))  # type: ignore[no-any-return]
        claim = yield from self._claimed(event)
        if claim.result is not ClaimResult.CLAIMED:
            return _UNCLAIMED[claim.result]
        status = 204
        try:
            yield Step(partial(self._handle, event), awaited=True)
        except Exception as error:
            status = self._status_after(event, error)
        except BaseException:  # the request was cancelled, and the handler with it
            self._seen.release(event.id, claim.token)
            raise
        try:
            yield Step(partial(self._settle, event, claim, status))
        except Exception:
            raise
        except BaseException:  # the thread may not have begun
            self._settle(event, claim, status)
            raise
        return ReceiverReply(status)

    def _claimed(self, event: ReceivedEvent) -> Generator[Step, Any, SeenClaim]:
        claiming = _Claiming(self._seen, event.id, partial(self._claim, event))
        try:
            return (yield Step(claiming.run))  # type: ignore[no-any-return]
        except Exception:
            raise
        except BaseException:  # the thread has claimed the event, or will do so
            claiming.abandon()
            raise

    def _handled_here(self, event: ReceivedEvent) -> ReceiverReply:
        """Claim an event, call the plain handler, and settle the claim."""
        claim = self._claim(event)
        if claim.result is not ClaimResult.CLAIMED:
            return _UNCLAIMED[claim.result]
        status = 204
        try:
            self._handle_plainly(event)
        except Exception as error:
            status = self._status_after(event, error)
        except BaseException:  # such as KeyboardInterrupt, or the timeout of a server's worker
            self._seen.release(event.id, claim.token)
            raise
        self._settle(event, claim, status)
        return ReceiverReply(status)

    def _claim(self, event: ReceivedEvent) -> SeenClaim:
        return self._seen.claim(event.id, self._clock(), self._lease)

    def _settle(self, event: ReceivedEvent, claim: SeenClaim, status: int) -> None:
        if status == 204:
            self._seen.complete(event.id, claim.token, self._clock())
        else:
            self._seen.release(event.id, claim.token)

    def _status_after(self, event: ReceivedEvent, error: Exception) -> int:
        """Log the error of a handler; return the status of the response."""
        if isinstance(error, RejectEvent):
            _log.warning("%s (%s) was rejected: %s", event.id, event.type, error)
            return 422
        _log.error("the handler failed with %s (%s)", event.id, event.type, exc_info=error)
        return 500

    def _genuine(
        self, headers: Mapping[str, str], body: bytes | None
    ) -> ReceivedEvent | ReceiverReply:
        if body is None or len(body) > self.max_body:
            return ReceiverReply(413)
        try:
            name = verify(self._keys, headers, body, self._clock(), self._tolerance)
            return read_event(name, body)
        except (NotGenuine, NotAnEvent) as error:
            _log.warning("a request was refused: %s", error)
            return ReceiverReply(401 if isinstance(error, NotGenuine) else 400)

    def _handle_plainly(self, event: ReceivedEvent) -> None:
        """Call a handler that must not be a coroutine function."""
        result = self._handle(event)
        if inspect.isawaitable(result):
            raise TypeError("The handler returned an awaitable but was not declared with async.")


class _Claiming:
    """A claim in a thread, which goes on when its request is cancelled."""

    def __init__(self, seen: SeenEvents, id: str, claim: Callable[[], SeenClaim]) -> None:
        self._seen, self._id, self._claim = seen, id, claim
        self._lock = threading.Lock()
        self._made: SeenClaim | None = None
        self._is_abandoned = False

    def run(self) -> SeenClaim:
        """Claim the event; release it at once if its request was cancelled meanwhile."""
        made = self._claim()
        with self._lock:
            self._made = made
            if self._is_abandoned:
                self._release(made)
        return made

    def abandon(self) -> None:
        """Release the claim, now or as soon as it is made."""
        with self._lock:
            self._is_abandoned = True
            if self._made is not None:
                self._release(self._made)

    def _release(self, made: SeenClaim) -> None:
        if made.result is ClaimResult.CLAIMED:
            self._seen.release(self._id, made.token)


_LATER: Final = ReceiverReply(503, MappingProxyType({"Retry-After": "30"}))
_UNCLAIMED: Final = MappingProxyType(
    {
        ClaimResult.DONE: ReceiverReply(204),
        ClaimResult.BUSY: _LATER,
        ClaimResult.FULL: _LATER,
    }
)
