"""No request of a user takes long in the event loop, where all other requests would wait for it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
import trio
import trio.testing

from fw_actors.errors import BadRequestError, OverloadedError
from tests.accounts_kit import PASSWORD
from tests.http_site import HttpSite
from tests.security.threaded_site import a_site
from web.guard import MAX_WAITING_BODIES, BodyDecoder
from web.json_input import MANY_VALUES, read_object, to_struct
from web.operations import BodyRule
from web.pages.rendering import Rendering
from web.request import MIB, LimitedBody

EMIT_MANY: Final = "/api/method/core.services.webhooks.emitMany"
LONG: Final = {"list": [1] * MANY_VALUES}


def recorded(threads: set[bool], function: Callable[..., Any]) -> Callable[..., Any]:
    """Record at each call whether it is in trio's thread."""

    def call(*given: Any, **named: Any) -> Any:
        threads.add(threading.current_thread() is threading.main_thread())
        return function(*given, **named)

    return call


@asynccontextmanager
async def signed_in(folder: Path) -> AsyncIterator[tuple[HttpSite, str]]:
    async with a_site(folder) as site:
        await site.add_account("pia", "Event Publisher", "Note Writer")
        reply = await site.login("pia", PASSWORD)
        assert reply.status == 200
        yield site, await site.sid("pia")


@pytest.mark.parametrize("path", ["/app/Minutes/MIN-0001", "/app/Minutes", "/account"])
async def test_page_is_rendered_beside_other_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """A document with 5,000 rows takes a second (H-141)."""
    threads: set[bool] = set()
    async with signed_in(tmp_path) as (site, sid):
        minutes = {"meeting": "of Monday", "decisions": [{"text": "to meet less"}]}
        await site.ask("POST", "/api/resource/Minutes", minutes, sid=sid)
        monkeypatch.setattr(Rendering, "page", recorded(threads, Rendering.page))
        assert (await site.ask("GET", path, sid=sid)).status == 200
    assert threads == {False}


def received(value: object) -> LimitedBody:
    """Return a body that has arrived."""
    body = LimitedBody()
    body.append(json.dumps(value).encode())
    body.set_complete()
    return body


@pytest.mark.parametrize(("body", "is_beside"), [(LONG, True), ({"list": [1]}, False)])
async def test_body_of_many_values_is_decoded_beside_other_requests(
    body: object, is_beside: bool
) -> None:
    """One of 200,000 values takes some 0.3 s (H-141)."""
    threads: set[bool] = set()
    rule = BodyRule(recorded(threads, read_object))
    assert await BodyDecoder().read(received(body), rule) == body
    assert threads == {not is_beside}


def seconds_to_read(body: bytes) -> float:
    """The shortest of several times: a busy machine only lengthens them."""
    times = []
    for _ in range(7):
        began = time.thread_time()
        with suppress(BadRequestError):
            read_object(body)
        times.append(time.thread_time() - began)
    return min(times)


@pytest.mark.parametrize("part", [b' "":', b'"[" ', b'",":'])
def test_body_of_many_strings_takes_no_longer_than_one_long_text(part: bytes) -> None:
    """It took ten times as long, and all other requests waited (H-141)."""
    one_text = seconds_to_read(b'{"a": ["' + b"x" * MIB + b'"]}')
    assert seconds_to_read(b'{"a": [1' + part * (MIB // len(part)) + b"]}") < 4 * one_text


@pytest.mark.parametrize("part", [b"1e", b"1E+"])
def test_text_that_resembles_numbers_takes_no_longer_than_another(part: bytes) -> None:
    """It took seven times as long, and all other requests waited (H-141)."""
    one_text = seconds_to_read(b'{"a": ["' + b"x" * MIB + b'"]}')
    assert seconds_to_read(b'{"a": ["' + part * (MIB // len(part)) + b'"]}') < 4 * one_text


async def test_bodies_beyond_those_that_may_wait_are_refused() -> None:
    """They are in memory, and each of them takes a slot of the service (H-141)."""
    go_on, decoder = threading.Event(), BodyDecoder()
    decoded: list[object] = []

    def read(body: bytes) -> object:
        assert go_on.wait(20)
        return read_object(body)

    async def decode() -> None:
        decoded.append(await decoder.read(received(LONG), BodyRule(read)))

    async with trio.open_nursery() as nursery:
        for _ in range(1 + MAX_WAITING_BODIES):
            nursery.start_soon(decode)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(OverloadedError):
            await decode()
        go_on.set()
    assert len(decoded) == 1 + MAX_WAITING_BODIES


async def test_event_of_many_values_is_decoded_beside_other_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One event of a batch may have all the values of its body (B-87, H-141)."""
    threads: set[bool] = set()
    monkeypatch.setattr("web.routes.webhooks.to_struct", recorded(threads, to_struct))
    async with signed_in(tmp_path) as (site, sid):
        body = {"events": [{"name": "a.b", "data": LONG}]}
        assert (await site.ask("POST", EMIT_MANY, body, sid=sid)).status == 200
    assert threads == {False}
