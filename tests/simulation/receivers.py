"""Simulated receivers: healthy ones, and those that hang, reset, redirect, or send garbage.

They record and check every request that reached them, as a receiver may:
parsed by h11, the signature one that the standard's own formula gives.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import h11
import trio

from fw_actors.http import ConnectError
from tests.simulation.network import SimulatedWire

# mode: behaviours, of which each request gets one
MODES: Final[Mapping[str, tuple[str, ...]]] = {
    "healthy": ("200", "204", "202", "200 kept", "200 slow", "early hints"),
    "flaky": ("200 kept", "200", "500", "503", "429", "408", "reset", "dribble", "stale"),
    "down": ("reset", "500", "502", "mute"),
    "refusing": ("reset",),  # on a connection from before; new ones are refused
    "mute": ("mute", "mute", "half head", "late accept"),
    "malformed": ("garbage", "short body", "301", "302", "404", "410", "done then reset", "huge"),
}
_LATE_SECONDS: Final = 2.5


@dataclass(frozen=True)
class ReceivedRequest:
    """One request that reached a receiver whole."""

    at: float
    delivery: str
    body: bytes
    headers: Mapping[str, str]


@dataclass
class SimulatedReceiver:
    """One origin. `posted` is called with each request before its response."""

    name: str
    rng: random.Random
    nursery: trio.Nursery
    posted: Callable[[SimulatedReceiver, ReceivedRequest], None]
    answered: Callable[[SimulatedReceiver, ReceivedRequest, str], None]
    mode: str = "healthy"
    wires: int = 0
    posts: list[ReceivedRequest] = field(default_factory=list)

    async def accept(self, wire: SimulatedWire) -> None:
        """See `Listener`."""
        if self.mode == "refusing":
            raise ConnectError(f"{self.name} refused the connection.")
        if self.mode == "mute" and self.rng.random() < 0.3:
            await trio.sleep(_LATE_SECONDS)
        else:
            await trio.sleep(self.rng.choice((0.0, 0.001, 0.02)))
        self.nursery.start_soon(self._serve, wire)

    async def _serve(self, wire: SimulatedWire) -> None:
        self.wires += 1
        try:
            while (post := await self._request(wire)) is not None:
                self.posts.append(post)
                self.posted(self, post)
                if not await self._answer(wire, post):
                    break
        finally:
            wire.end()
            self.wires -= 1

    async def _request(self, wire: SimulatedWire) -> ReceivedRequest | None:
        server = h11.Connection(h11.SERVER)
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = server.next_event()
            if event is h11.NEED_DATA:
                data = await wire.read()
                server.receive_data(data)
                if not data and head is None:
                    return None
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                headers = {key.decode(): value.decode() for key, value in head.headers}
                return ReceivedRequest(
                    trio.current_time(), headers["webhook-id"], bytes(body), headers
                )
            else:
                return None  # the sender has gone

    async def _answer(self, wire: SimulatedWire, post: ReceivedRequest) -> bool:
        """Behave; return whether the connection is kept."""
        behaviour = self.rng.choice(MODES[self.mode])
        self.answered(self, post, behaviour)
        first = behaviour.split()[0]
        if first.isdigit():
            return await self._status(wire, int(first), behaviour)
        await getattr(self, "_" + behaviour.replace(" ", "_"))(wire)
        return False

    async def _status(self, wire: SimulatedWire, status: int, behaviour: str) -> bool:
        await trio.sleep(1.5 if behaviour.endswith("slow") else self.rng.choice((0.0, 0.005, 0.1)))
        body = b"" if status == 204 else f"what {self.name} says".encode()
        more = (
            b"location: https://elsewhere.example/hook?token=1\r\n" if status // 100 == 3 else b""
        )
        head = b"HTTP/1.1 %d x\r\n%bcontent-length: %d\r\n" % (status, more, len(body))
        if status == 204:
            head = b"HTTP/1.1 204 x\r\n"
        kept = behaviour.endswith("kept")
        wire.write(head + (b"" if kept else b"connection: close\r\n") + b"\r\n" + body)
        return kept

    async def _early_hints(self, wire: SimulatedWire) -> None:
        wire.write(b"HTTP/1.1 103 x\r\n\r\n")
        await trio.sleep(0.01)
        wire.write(b"HTTP/1.1 200 x\r\ncontent-length: 2\r\n\r\nok")

    async def _dribble(self, wire: SimulatedWire) -> None:
        """A head byte by byte; then a body that never ends."""
        for byte in b"HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\n":
            wire.write(bytes([byte]))
            await trio.sleep(0.01)
        while not wire.deserted:
            wire.write(b"1\r\n.\r\n")
            await trio.sleep(0.5)

    async def _stale(self, wire: SimulatedWire) -> None:
        """Promise to keep the connection, and end it."""
        wire.write(b"HTTP/1.1 200 x\r\ncontent-length: 0\r\n\r\n")
        await trio.sleep(self.rng.choice((0.0, 0.01, 1.0)))

    async def _reset(self, wire: SimulatedWire) -> None:
        await trio.sleep(self.rng.choice((0.0, 0.05)))
        wire.end(reset=True)

    async def _mute(self, wire: SimulatedWire) -> None:
        await wire.deserted_at_last()

    async def _half_head(self, wire: SimulatedWire) -> None:
        wire.write(b"HTTP/1.1 200 x\r\ncontent-le")
        await self._mute(wire)

    async def _late_accept(self, wire: SimulatedWire) -> None:
        await trio.sleep(_LATE_SECONDS)
        wire.write(b"HTTP/1.1 200 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

    async def _garbage(self, wire: SimulatedWire) -> None:
        wire.write(self.rng.choice((b"\x16\x03\x01\x00", b"SSH-2.0-x\r\n", b"\x00" * 70_000)))

    async def _short_body(self, wire: SimulatedWire) -> None:
        wire.write(b"HTTP/1.1 200 x\r\ncontent-length: 100\r\n\r\nshort")

    async def _done_then_reset(self, wire: SimulatedWire) -> None:
        wire.write(b"HTTP/1.1 200 x\r\ncontent-length: 5\r\n\r\n")
        wire.end(reset=True)

    async def _huge(self, wire: SimulatedWire) -> None:
        wire.write(b"HTTP/1.1 200 x\r\ncontent-length: 900000\r\n\r\n" + "ü".encode() * 40_000)
        await trio.sleep(0.01)


def signature(secret: str, delivery: str, timestamp: str, body: bytes) -> str:
    """Return the signature as the standard gives it, written out once more for the receivers."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{delivery}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def fault_of(
    post: ReceivedRequest, secrets: Sequence[str], signers: Sequence[Sequence[str]]
) -> str | None:
    """Return the fault of a request, or None.

    `secrets` are all that its Webhook ever had, `signers` those that have to sign it together,
    one choice of several.
    """
    headers = post.headers
    fixed = {
        "host", "content-type", "content-length", "user-agent", "accept", "webhook-id",
        "webhook-timestamp", "webhook-signature",
    }  # fmt: skip
    if set(headers) - {"connection"} != fixed or headers["content-type"] != "application/json":
        return f"has the headers {sorted(headers)}"
    timestamp = headers["webhook-timestamp"]
    signatures = headers["webhook-signature"].split(" ")
    by = {secret: signature(secret, post.delivery, timestamp, post.body) for secret in secrets}
    if not set(signatures) <= set(by.values()):
        return "has a signature that is not right"
    if signatures not in [[by.get(one) for one in each] for each in signers]:
        return f"has {len(signatures)} signatures, and not those of the secrets that sign now"
    body: dict[str, Any] = json.loads(post.body)
    if set(body) != {"type", "timestamp", "data"}:
        return f"has a body of {sorted(body)}"
    return None
