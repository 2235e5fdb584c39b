"""The order in which a receiver verifies, claims, handles and responds (H-229 to H-234)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fw_client.receiver import (
    ReceivedEvent,
    ReceiverReply,
    RejectEvent,
    SeenInMemory,
    WebhookReceiver,
)
from tests.fw_client.receiver_kit import (
    BODY,
    NOW,
    OTHER,
    SECRET,
    ManualUnixClock,
    RecordingAsyncHandler,
    RecordingHandler,
    signed,
)

Ask = Callable[..., ReceiverReply]


def receiver(handle: Any, **more: Any) -> WebhookReceiver:
    return WebhookReceiver([SECRET], handle, clock=more.pop("clock", ManualUnixClock()), **more)


def by_call(made: WebhookReceiver, body: bytes | None = BODY, **headers: str) -> ReceiverReply:
    return made.receive({**signed(body=body or b""), **headers}, body)


def by_await(made: WebhookReceiver, body: bytes | None = BODY, **headers: str) -> ReceiverReply:
    whole = {**signed(body=body or b""), **headers}
    return asyncio.run(made.receive_async(whole, body, asyncio.to_thread))


@pytest.fixture(params=["sync", "thread", "async"])
def way(request: pytest.FixtureRequest) -> tuple[type[RecordingHandler], Ask]:
    """A kind of handler, and how a request is handed over."""
    ways: dict[str, tuple[type[RecordingHandler], Ask]] = {
        "sync": (RecordingHandler, by_call),
        "thread": (RecordingHandler, by_await),
        "async": (RecordingAsyncHandler, by_await),
    }
    return ways[request.param]


def test_receiver_handles_event_once(way: tuple[type[RecordingHandler], Ask]) -> None:
    kind, ask = way
    handle = kind()
    made = receiver(handle)
    assert [ask(made).status, ask(made).status] == [204, 204]
    assert [event.type for event in handle.events] == ["order.paid"]


def test_receiver_answers_500_and_repeats_failed_handler(
    way: tuple[type[RecordingHandler], Ask],
) -> None:
    kind, ask = way
    handle = kind(OSError("disk full"))
    made = receiver(handle)
    assert [ask(made).status for _ in range(3)] == [500, 204, 204]
    assert len(handle.events) == 2


def test_rejected_event_answers_422_and_accepts_replay(
    way: tuple[type[RecordingHandler], Ask],
) -> None:
    kind, ask = way
    handle = kind(RejectEvent("no such order"))
    made = receiver(handle)
    assert [ask(made).status, ask(made).status] == [422, 204]


def test_receiver_refuses_forged_malformed_or_large_request(
    way: tuple[type[RecordingHandler], Ask],
) -> None:
    kind, ask = way
    handle = kind()
    made = receiver(handle)
    assert ask(made, **{"webhook-id": "msg_2"}).status == 401
    assert ask(made, b"{}").status == 400
    assert ask(made, None).status == 413
    assert ask(receiver(handle, max_body=len(BODY) - 1)).status == 413
    assert ask(receiver(kind(), max_body=len(BODY))).status == 204
    assert handle.events == []


def test_event_in_progress_answers_503_with_retry_after() -> None:
    made: WebhookReceiver
    replies = []

    def handle(event: ReceivedEvent) -> None:
        replies.append(by_call(made))

    made = receiver(handle)
    replies.append(by_call(made))
    busy, done = replies
    assert (busy.status, busy.headers["Retry-After"]) == (503, "30")
    assert done.status == 204


def test_abandoned_claim_is_granted_again_after_lease() -> None:
    """A killed process leaves an incomplete claim."""
    clock, seen, handle = ManualUnixClock(), SeenInMemory(), RecordingHandler()
    seen.claim("msg_1", clock.now, 60)
    made = receiver(handle, seen=seen, clock=clock)
    assert by_call(made).status == 503
    clock.now += 60
    assert by_call(made).status == 204
    assert len(handle.events) == 1


def test_cancelled_handler_releases_its_claim() -> None:
    """A framework cancels a request whose sender has gone; the next attempt is handled (H-232)."""
    handled: list[str] = []
    begun = asyncio.Event()

    async def handle(event: ReceivedEvent) -> None:
        handled.append(event.id)
        begun.set()
        if len(handled) == 1:
            await asyncio.sleep(3600)

    made = receiver(handle)

    async def cancelled() -> None:
        request = asyncio.create_task(made.receive_async(signed(), BODY, asyncio.to_thread))
        await begun.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request

    asyncio.run(asyncio.wait_for(cancelled(), 60))
    assert by_await(made).status == 204
    assert len(handled) == 2


def test_cancelled_request_keeps_claim_while_its_thread_handles() -> None:
    """A thread cannot be cancelled: another attempt would run beside it."""
    begun, may_end = threading.Event(), threading.Event()

    def handle(event: ReceivedEvent) -> None:
        begun.set()
        may_end.wait(60)

    made = receiver(handle)

    async def cancelled() -> ReceiverReply:
        request = asyncio.create_task(made.receive_async(signed(), BODY, asyncio.to_thread))
        await asyncio.to_thread(begun.wait, 60)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        try:
            return await made.receive_async(signed(), BODY, asyncio.to_thread)
        finally:
            may_end.set()

    assert asyncio.run(cancelled()).status == 503


def test_event_whose_thread_ends_after_its_request_was_cancelled_is_handled_once() -> None:
    """H-231, H-232: a framework cancels a request whose sender has timed out."""
    clock, begun, may_end = ManualUnixClock(), threading.Event(), threading.Event()
    handled: list[str] = []

    def handle(event: ReceivedEvent) -> None:
        handled.append(event.id)
        begun.set()
        may_end.wait(60)

    made = receiver(handle, clock=clock)

    async def cancelled() -> None:
        request = asyncio.create_task(made.receive_async(signed(), BODY, asyncio.to_thread))
        await asyncio.to_thread(begun.wait, 60)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        may_end.set()

    asyncio.run(cancelled())  # waits for the thread
    clock.now += 61
    assert made.receive(signed(now=int(clock.now)), BODY).status == 204
    assert handled == ["msg_1"]


@pytest.mark.parametrize("claims_later", [False, True])
def test_request_cancelled_while_its_thread_claims_releases_the_claim(claims_later: bool) -> None:
    """H-232: without its handler, the claim would refuse the next attempts for a minute."""
    handle = RecordingAsyncHandler()
    made = receiver(handle)
    claims: list[Callable[[], Any]] = []

    async def in_thread(work: Callable[[], Any]) -> Any:
        claims.append(work)
        if not claims_later:
            work()
        raise asyncio.CancelledError

    async def cancelled() -> None:
        with pytest.raises(asyncio.CancelledError):
            await made.receive_async(signed(), BODY, in_thread)
        if claims_later:
            claims[0]()

    asyncio.run(cancelled())
    assert by_await(made).status == 204
    assert len(handle.events) == 1


def test_handler_that_ends_before_its_cancellation_completes_its_claim() -> None:
    """H-231: the cancellation comes before the thread that records the event has begun."""
    handle = RecordingAsyncHandler()
    made = receiver(handle)
    threads: list[Callable[[], Any]] = []

    async def in_thread(work: Callable[[], Any]) -> Any:
        threads.append(work)
        if len(threads) == 2:
            raise asyncio.CancelledError
        return work()

    async def cancelled() -> None:
        with pytest.raises(asyncio.CancelledError):
            await made.receive_async(signed(), BODY, in_thread)

    asyncio.run(cancelled())
    assert by_await(made).status == 204
    assert len(handle.events) == 1


def test_interrupted_plain_handler_releases_its_claim() -> None:
    """Such as by the timeout of a server's worker, which is no Exception."""
    interruptions: list[BaseException] = [KeyboardInterrupt()]

    def handle(event: ReceivedEvent) -> None:
        if interruptions:
            raise interruptions.pop()

    made = receiver(handle)
    with pytest.raises(KeyboardInterrupt):
        by_call(made)
    assert by_call(made).status == 204


def test_receiver_accepts_header_names_in_any_case() -> None:
    made = receiver(RecordingHandler())
    headers = {name.title(): value for name, value in signed().items()}
    assert made.receive(headers, BODY).status == 204


@pytest.mark.parametrize("name", ["webhook-id", "webhook-signature"])
def test_header_that_is_not_utf8_answers_401(name: str) -> None:
    """H-230: aiohttp decodes such bytes to surrogates."""
    headers = {**signed(), name: "v1,\udcff"}
    assert receiver(RecordingHandler()).receive(headers, BODY).status == 401


def test_full_memory_answers_503() -> None:
    seen = SeenInMemory(1)
    seen.claim("msg_other", NOW, 60)
    assert by_call(receiver(RecordingHandler(), seen=seen)).status == 503


def test_failed_completion_is_not_acknowledged() -> None:
    class FailingSeenEvents(SeenInMemory):
        def complete(self, name: str, token: str, now: float) -> None:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        by_call(receiver(RecordingHandler(), seen=FailingSeenEvents()))


def test_test_event_is_answered_without_handler() -> None:
    body = b'{"type":"fw.test","timestamp":"2026-01-02T03:04:05.678Z","data":{}}'
    handle = RecordingHandler()
    assert by_call(receiver(handle), body).status == 204
    assert handle.events == []


def test_receiver_accepts_each_of_its_secrets() -> None:
    made = WebhookReceiver([OTHER, SECRET], RecordingHandler(), clock=ManualUnixClock())
    assert by_call(made).status == 204


def test_sync_receiver_refuses_coroutine_handler() -> None:
    with pytest.raises(TypeError, match="coroutine"):
        by_call(receiver(RecordingAsyncHandler()))

    async def later() -> None: ...

    tasks = []

    def handle(event: ReceivedEvent) -> Any:
        tasks.append(later())
        return tasks[-1]

    assert by_call(receiver(handle)).status == 500
    tasks[0].close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"secrets": []},
        {"secrets": SECRET},
        {"max_body": 0},
        {"lease": 0},
        {"tolerance": -1},
        {"tolerance": float("nan")},
    ],
)
def test_receiver_refuses_unusable_settings(wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {"secrets": [SECRET], "handle": RecordingHandler(), **wrong}
    with pytest.raises(ValueError, match="must be"):
        WebhookReceiver(**given)


def test_receiver_accepts_smallest_settings() -> None:
    made = WebhookReceiver([SECRET], RecordingHandler(), max_body=1, lease=0.1, tolerance=0)
    assert made.receive({}, b"{").status == 401
    assert made.receive({}, b"{}").status == 413


def test_refusals_and_failures_are_logged_without_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "fw_client")
    made = receiver(RecordingHandler(OSError("disk full")))
    by_call(made)
    by_call(made, BODY, **{"webhook-signature": "v1,AAAA"})
    assert "the handler failed with msg_1 (order.paid)" in caplog.text
    assert "No signature matches" in caplog.text
    assert SECRET not in caplog.text
    assert signed()["webhook-signature"] not in caplog.text
