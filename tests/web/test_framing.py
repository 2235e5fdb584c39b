"""Requests of ambiguous framing get an error status, and end the connection."""

from __future__ import annotations

import os
import re
from random import Random
from typing import Any

import pytest
import trio
import trio.testing

from tests.web.client import connected
from tests.web.fakes import FakeGateway, app_of
from tests.web.framing_cases import CHUNKED, GET, POST, REFUSED, TAKEN, mutated
from tests.web.serving import answer, rest, served
from web.app import FrontEnd
from web.request import front_request

SMUGGLED = b"GET /api/boot HTTP/1.1\r\nHost: x\r\nX-Request-Id: smuggled\r\n\r\n"


@pytest.mark.parametrize(("data", "status"), REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("step", [None, 1])
async def test_framing_that_is_ambiguous_ends_the_connection(
    gateway: FakeGateway, data: bytes, status: int, step: int | None
) -> None:
    """Invalid HTTP gets a bare status (H-130, H-129), sent at once and byte by byte."""
    async with served(app_of(gateway)) as site, await site.connect() as stream:
        sent = data + SMUGGLED
        if step is None:
            await stream.send_all(sent)
        else:
            await send_in_steps(stream, sent)
        got = await rest(stream)
    assert got.startswith(b"HTTP/1.1 %d " % status), got
    assert got.count(b"HTTP/1.1 ") == 1
    assert b"content-length: 0\r\n" in got
    assert b"connection: close\r\n" in got.lower()
    assert got.endswith(b"\r\n\r\n")
    assert b"smuggled" not in got
    assert not gateway.attempts


async def send_in_steps(stream: trio.SocketStream, data: bytes) -> None:
    """Send the first bytes one by one, as far as the server takes them, and then the rest."""
    for start in range(min(len(data), 400)):
        await stream.send_all(data[start : start + 1])
        await trio.lowlevel.checkpoint()
    await stream.send_all(data[400:])


@pytest.mark.parametrize("method", [b"get", b"Get", b"gET", b"oPTIONS"])
async def test_method_is_case_sensitive(gateway: FakeGateway, method: bytes) -> None:
    """RFC 9110 9.1: a proxy's rule for GET does not see it. It is 405 (H-131)."""
    async with served(app_of(gateway)) as site:
        got = await site.exchange(GET.replace(b"GET", method) + b"\r\n" + SMUGGLED)
    assert got.startswith(b"HTTP/1.1 405 ")
    assert b'"MethodNotAllowedError"' in got
    assert got.count(b"HTTP/1.1 ") == 1
    assert b"smuggled" not in got


async def test_method_in_other_letters_runs_no_operation(gateway: FakeGateway) -> None:
    """Such a method still needs X-FW-CSRF."""
    body = b'{"usr": "ann", "pwd": "correct horse"}'
    async with served(app_of(gateway)) as site:
        head = POST.replace(b"POST", b"pOsT") + b"Content-Length: %d\r\n\r\n" % len(body)
        assert (await site.exchange(head + body)).startswith(b"HTTP/1.1 405 ")
    assert not gateway.attempts


async def test_method_head_in_other_letters_has_a_body(gateway: FakeGateway) -> None:
    """Its error has a body, and the connection stays in step."""
    async with served(app_of(gateway)) as site:
        got = await site.exchange(GET.replace(b"GET", b"head") + b"\r\n")
    assert got.startswith(b"HTTP/1.1 405 ")
    assert got.endswith(b"}")


@pytest.mark.parametrize(("data", "status"), TAKEN.values(), ids=TAKEN.keys())
async def test_framing_that_is_plain_keeps_the_connection_in_step(
    gateway: FakeGateway, data: bytes, status: int
) -> None:
    """400 here is the envelope's: `{}` lacks a key."""
    async with served(app_of(gateway)) as site, await site.connect() as stream:
        await stream.send_all(data)
        got = await answer(stream)
        assert got.startswith(b"HTTP/1.1 %d " % status), got
        assert b"\r\nx-request-id: " in got
        await stream.send_all(GET + b"X-Request-Id: next\r\n\r\n")
        got = await answer(stream)
        assert got.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nx-request-id: next\r\n" in got


async def test_http_1_0_is_served_and_its_connection_ends(gateway: FakeGateway) -> None:
    async with served(app_of(gateway)) as site:
        got = await site.exchange(b"GET /api/health HTTP/1.0\r\n\r\n" + SMUGGLED)
    assert got.startswith(b"HTTP/1.1 200 ")
    assert got.count(b"HTTP/1.1 ") == 1
    assert got.endswith(b'{"ok":true}')


@pytest.mark.parametrize("status", [b"400", b"413"])
async def test_chunked_body_leaves_the_next_request_unchanged(
    gateway: FakeGateway, status: bytes
) -> None:
    """This holds even if the next one came in the same segment with invalid framing."""
    body = b"{}" if status == b"400" else b" " * 70_000
    chunks = b"\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    async with served(app_of(gateway)) as site:
        got = await site.exchange(CHUNKED + chunks + GET + b"\r\n" + GET + b"A: b\nC: d\r\n\r\n")
    found = [part[:3] for part in got.split(b"HTTP/1.1 ")[1:]]
    assert found == [status, b"200", b"400"]


async def statuses(app: FrontEnd, segments: list[bytes]) -> list[bytes]:
    """Return the statuses of the responses to a client that sends `segments` one by one."""
    got = b""
    async with connected(app) as stream:
        for segment in segments:
            if stream.socket.fileno() >= 0:
                try:
                    await stream.send_all(segment)
                except trio.BrokenResourceError:  # the connection has ended
                    break
            await trio.testing.wait_all_tasks_blocked()
        try:
            while part := os.read(stream.socket.fileno(), 1 << 20):
                got += part
        except BlockingIOError:  # the server waits for more
            pass
    return re.findall(rb"HTTP/1\.1 (\d+) ", got)


@pytest.mark.parametrize("seed", range(8))
async def test_framing_does_not_depend_on_segments(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Random requests are the same however their bytes arrive, and none is a defect (H-130)."""
    random, app, targets = Random(seed), app_of(gateway), list[bytes]()

    def noted(method: str, target: bytes, *others: Any) -> Any:
        targets.append(method.encode() + b" " + target)
        return front_request(method, target, *others)

    monkeypatch.setattr("web.http11.front_request", noted)
    tables = [[data for data, _ in each.values() if len(data) < 1000] for each in (REFUSED, TAKEN)]
    for _ in range(15):
        sent = (
            mutated(random, random.choice(random.choice(tables))) + SMUGGLED * 50
        )  # more than one part
        cuts = sorted(random.sample(range(1, len(sent)), random.choice([1, 3, 20])))
        at_once = await statuses(app, [sent])
        whole = targets[:]
        targets.clear()
        ends = [*cuts, len(sent)]
        in_parts = await statuses(app, [sent[a:b] for a, b in zip([0, *cuts], ends, strict=True)])
        assert targets == whole, sent
        assert len(in_parts) == len(at_once), sent
        assert not {b"500", b"503"} & {*at_once, *in_parts}, sent
        targets.clear()
