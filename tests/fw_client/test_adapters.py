"""Receivers in Flask, Quart, Quart-Trio and FastAPI (H-234)."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import fastapi as fastapi_library
import flask as flask_library
import pytest
import quart as quart_library
import trio
from quart_trio import QuartTrio
from werkzeug.serving import make_server

import fw_client.receiver.fastapi as fastapi
import fw_client.receiver.flask as flask
import fw_client.receiver.quart as quart
from fw_client import FwClient
from fw_client.receiver import ReceivedEvent, SeenInSqlite, WebhookReceiver
from tests.fw_client.receiver_kit import (
    BODY,
    SECRET,
    ManualUnixClock,
    RecordingAsyncHandler,
    RecordingHandler,
    post_asgi,
    post_flask,
    post_quart,
    signed,
)
from tests.live_site import PASSWORD, LiveSite, eventually

JSON = {"content-type": "application/json"}
Post = Callable[[WebhookReceiver, bytes, dict[str, str]], int]


def by_flask(receiver: WebhookReceiver, body: bytes, headers: dict[str, str]) -> int:
    app = flask_library.Flask("tests")
    app.add_url_rule("/webhooks", view_func=flask.webhook_view(receiver), methods=["POST"])
    return post_flask(app, body, headers)


def by_quart(receiver: WebhookReceiver, body: bytes, headers: dict[str, str]) -> int:
    app = quart_library.Quart("tests")
    app.add_url_rule("/webhooks", view_func=quart.webhook_view(receiver), methods=["POST"])
    return asyncio.run(post_quart(app, body, headers))


def by_quart_trio(receiver: WebhookReceiver, body: bytes, headers: dict[str, str]) -> int:
    app = QuartTrio("tests")
    app.add_url_rule("/webhooks", view_func=quart.webhook_view(receiver), methods=["POST"])
    return trio.run(post_quart, app, body, headers)


def by_fastapi(receiver: WebhookReceiver, body: bytes, headers: dict[str, str]) -> int:
    app = fastapi_library.FastAPI()
    app.post("/webhooks")(fastapi.webhook_endpoint(receiver))
    return asyncio.run(post_asgi(app, body, headers))


ASYNC: list[Post] = [by_quart, by_quart_trio, by_fastapi]


def receiver(handle: Any, **more: Any) -> WebhookReceiver:
    return WebhookReceiver([SECRET], handle, clock=ManualUnixClock(), **more)


@pytest.mark.parametrize("post", [by_flask, *ASYNC])
def test_adapter_repeats_failed_event_and_drops_duplicate(post: Post, tmp_path: Path) -> None:
    handle, threads = RecordingHandler(OSError("busy")), set()

    def noting(event: ReceivedEvent) -> None:
        threads.add(threading.current_thread() is threading.main_thread())
        handle(event)

    with closing(SeenInSqlite(tmp_path / "seen.db")) as seen:
        made = receiver(noting, seen=seen)
        assert [post(made, BODY, signed() | JSON) for _ in range(3)] == [500, 204, 204]
    assert len(handle.events) == 2
    assert threads == {post is by_flask}


def test_flask_adapter_receives_body_that_the_app_has_read() -> None:
    """Such as by a hook that logs each request; the signature did not match an empty body."""
    app = flask_library.Flask("tests")
    app.before_request(lambda: flask_library.request.get_json() and None)
    view = flask.webhook_view(receiver(RecordingHandler()))
    app.add_url_rule("/webhooks", view_func=view, methods=["POST"])
    assert post_flask(app, BODY, {**JSON, **signed()}) == 204


def test_flask_adapter_stops_reading_chunked_body_at_limit() -> None:
    """H-230."""
    app = flask_library.Flask("tests")
    view = flask.webhook_view(receiver(RecordingHandler(), max_body=1000))
    app.add_url_rule("/webhooks", view_func=view, methods=["POST"])
    response = app.test_client().post(
        "/webhooks",
        input_stream=EndlessBody(),
        headers={**signed(), "transfer-encoding": "chunked"},
        environ_overrides={"wsgi.input_terminated": True},
    )
    assert response.status_code == 413


class EndlessBody(io.RawIOBase):
    """A body without an end."""

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return 0

    def readinto(self, buffer: Any) -> int:
        buffer[:] = b"x" * len(buffer)
        return len(buffer)


@pytest.mark.parametrize("post", ASYNC)
def test_adapter_awaits_async_handler(post: Post) -> None:
    handle = RecordingAsyncHandler()
    made = receiver(handle)
    assert [post(made, BODY, signed() | JSON) for _ in range(2)] == [204, 204]
    assert len(handle.events) == 1


def test_flask_adapter_refuses_async_handler() -> None:
    with pytest.raises(TypeError, match="plain function"):
        flask.webhook_view(receiver(RecordingAsyncHandler()))


@pytest.mark.parametrize("post", [by_flask, *ASYNC])
def test_adapter_refuses_forged_or_large_request(post: Post) -> None:
    handle = RecordingHandler()
    assert post(receiver(handle), BODY + b" ", signed() | JSON) == 401
    assert post(receiver(handle, max_body=10), BODY, signed() | JSON) == 413
    assert handle.events == []


@pytest.mark.parametrize("chunk", [b"x" * 6, b"x" * 100])
def test_read_bounded_stops_chunked_body_at_limit(chunk: bytes) -> None:
    from fw_client.receiver.bounded_body import read_bounded

    read = []

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(10):
            read.append(chunk)
            yield chunk

    done: Awaitable[bytes | None] = read_bounded(chunks(), None, 10)

    async def ask() -> bytes | None:
        return await done

    assert asyncio.run(ask()) is None
    assert len(read) <= 2


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, list[ReceivedEvent]]]:
    """The URL of a receiver in Flask on a socket, and what it has handled."""
    got: list[ReceivedEvent] = []
    seen = SeenInSqlite(tmp_path / "seen.db")
    made = WebhookReceiver([SECRET], got.append, seen=seen)
    app = flask_library.Flask("tests")
    app.add_url_rule("/hook", view_func=flask.webhook_view(made), methods=["POST"])
    server = make_server("127.0.0.1", 0, app)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", got
    server.shutdown()
    thread.join()
    server.server_close()
    seen.close()


def test_receiver_handles_delivery_once_despite_replay(
    site: LiveSite, served: tuple[str, list[ReceivedEvent]]
) -> None:
    """A replay has the same id, and is not handled again (H-231)."""
    url, got = served
    webhook = {
        "url": url, "event_type": "Custom", "custom_event": "order.shipped", "secret": SECRET,
    }  # fmt: skip
    with FwClient(site.url, user="admin", password=PASSWORD) as admin:
        name = admin.documents.insert("Webhook", webhook)["name"]
        assert admin.webhooks.test(name).status == 204
        (delivery,) = admin.webhooks.emit("order.shipped", {"order": "SO-1"}).deliveries
        eventually(lambda: admin.webhooks.explain(delivery)["status"] == "Sent")
        admin.webhooks.replay(delivery)
        eventually(lambda: len(admin.webhooks.explain(delivery)["recorded"]) == 2)
        assert admin.webhooks.explain(delivery)["recorded"][0]["responseStatus"] == 204
    assert [(each.id, each.type, each.data) for each in got] == [
        (delivery, "order.shipped", {"order": "SO-1"})
    ]
