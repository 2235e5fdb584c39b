"""A payload reaches its own receiver, in any order of the store's rows (B-217), and claims hold
limited bytes (B-218)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from fw_actors.errors import OverloadedError
from fw_actors.http import Endpoint, ReceiverResponse, ResponseTimeout
from fw_actors.http.exchange import MakeHeaders
from fw_actors.store import Tx
from fw_actors.webhooks import claims
from fw_actors.webhooks.claims import DeliveryClaims, Lease, Leased
from fw_actors.webhooks.deliveries import Deliveries
from tests.fw_actors.actors.delivery_kit import DeliverySite, ScriptedReceiver, delivering
from tests.mail_kit import RecordingLog

pytestmark = pytest.mark.usefixtures("on_both_stores")

HOSTS = ("a", "b", "c")
LINES_OF_A_FRAME = 3


def url(host: str) -> str:
    return f"https://{host}.example/hook"


async def emit_to_all(post: DeliverySite, **fields: str) -> list[str]:
    """Make a Webhook for each host, and one event for each of them in one transaction."""
    for host in HOSTS:
        await post.webhook(url(host), event=f"to.{host}", **fields)

    def work(tx: Tx) -> list[str]:
        webhooks = post.site.handle(tx, "Administrator").webhooks
        about = {"doctype": "Note", "name": "N-1"}
        made = [webhooks.emit(f"to.{host}", {"for": host}, about)["deliveries"] for host in HOSTS]
        return [delivery for [delivery] in made]

    return await post.site.store.write(work)


def change_frames(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    """Change the frames that a claim reads from the store."""
    read = DeliveryClaims.leased

    def leased(
        self: DeliveryClaims, tx: Tx, leases: Sequence[Lease], token: str, limits: Any = None
    ) -> Leased:
        found = read(self, tx, leases, token, limits)
        lines = found.frames.splitlines(keepends=True)
        groups = range(0, len(lines), LINES_OF_A_FRAME)
        frames = [b"".join(lines[at : at + LINES_OF_A_FRAME]) for at in groups]
        return found._replace(frames=b"".join(change(frames)))

    monkeypatch.setattr(DeliveryClaims, "leased", leased)


def sent(receiver: ScriptedReceiver) -> list[tuple[str, str]]:
    """Return the URL of each POST and the name in its document."""
    return [(post.url, json.loads(post.body)["data"]["for"]) for post in receiver.posts]


OWN = [(url(host), host) for host in HOSTS]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
async def test_claimed_payloads_reach_own_receivers_in_any_row_order(
    tmp_path: Path,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    order: tuple[int, ...],
) -> None:
    change_frames(monkeypatch, lambda frames: [frames[at] for at in order if at < len(frames)])
    receiver = ScriptedReceiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        for delivery in await emit_to_all(post):
            await post.settled(delivery)
    assert sorted(sent(receiver)) == OWN


def extend_first_frame_over_second(frames: list[bytes]) -> list[bytes]:
    """Enlarge the size of the first frame up to the end of the second one's text."""
    if len(frames) < 2:
        return frames
    row, text, key = frames[0].splitlines(keepends=True)
    next_row, next_text, _ = frames[1].splitlines(keepends=True)
    numbers = json.loads(row)
    assert numbers[1] == len(text) - 1
    numbers[1] += len(b"\n" + key + next_row + next_text) - 1
    damaged = json.dumps(numbers, separators=(",", ":")).encode() + b"\n" + text + key
    return [damaged, *frames[1:]]


@pytest.mark.parametrize("ordering", ["none", "document"])
async def test_claim_with_damaged_frames_is_given_back_and_read_row_by_row(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, ordering: str
) -> None:
    """Nothing is sent by it, and no expired lease is counted. The next claim does not need the
    frames, so that a lasting defect delays nothing either (B-217)."""
    receiver, log = ScriptedReceiver(["200"]), RecordingLog()
    change_frames(monkeypatch, extend_first_frame_over_second)
    async with delivering(tmp_path, receiver, log=log) as post:
        deliveries = await emit_to_all(post, ordering=ordering)
        for delivery in deliveries:
            assert (await post.settled(delivery))["attempts"] == 1
        assert await post.jobs() == []
    assert len(log.of("delivery.claim_unusable")) == 1
    assert sorted(sent(receiver)) == OWN
    assert {round(post.at) for post in receiver.posts} == {0}


async def test_claim_with_damaged_frames_expires_if_store_cannot_release_it(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its deliveries are claimed after their leases, row by row: a lasting defect does not keep
    them for another lease (B-217)."""

    def overloaded(*_: object) -> None:
        raise OverloadedError

    receiver, log = ScriptedReceiver(["200"]), RecordingLog()
    change_frames(monkeypatch, extend_first_frame_over_second)
    monkeypatch.setattr(Deliveries, "release_claim", overloaded)
    async with delivering(tmp_path, receiver, log=log) as post:
        for delivery in await emit_to_all(post):
            with trio.fail_after(60):
                assert (await post.settled(delivery))["status"] == "Sent"
    assert len(log.of("delivery.claim_unusable")) == 1
    assert {round(got.at) for got in receiver.posts} == {40}


KIB = 1024
BODY = 40 * KIB
LONG = "long." * (BODY // 5)
DOCUMENTS = 20


@dataclass
class PayloadBytesReceiver(ScriptedReceiver):
    """Notes the largest number of bytes in flight at a time."""

    held: int = 0
    most_held: int = 0

    async def post(
        self, target: Endpoint, body: bytes, make_headers: MakeHeaders, *, timeout: float
    ) -> ReceiverResponse:
        self.held += len(body)
        self.most_held = max(self.most_held, self.held)
        try:
            return await super().post(target, body, make_headers, timeout=timeout)
        finally:
            self.held -= len(body)


async def emit_long(post: DeliverySite, count: int, data: object = None) -> list[str]:
    """Emit events in one transaction, so that one claim finds them all."""

    def work(tx: Tx) -> list[str]:
        webhooks = post.site.handle(tx, "Administrator").webhooks
        found = webhooks.emit_many(
            [
                {"name": "invoice.paid", "data": data or {"text": LONG},
                 "reference": {"doctype": "Note", "name": f"N-{number % DOCUMENTS}"}}
                for number in range(count)
            ]
        )  # fmt: skip
        return [name for each in found for name in each["deliveries"]]

    return await post.site.store.write(work)


@pytest.mark.parametrize("ordering", ["none", "document"])
async def test_claim_reads_limited_bytes_of_long_payloads(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, ordering: str
) -> None:
    """Further ones wait in the store; no attempt and no expired lease is counted (B-218)."""
    monkeypatch.setattr(claims, "MAX_READ_BYTES", 2 * BODY)
    monkeypatch.setattr(claims, "MAX_BYTES_IN_FLIGHT", 5 * BODY)
    receiver = PayloadBytesReceiver(["200"], busy=0.5)
    async with delivering(tmp_path, receiver) as post:
        await post.webhook(ordering=ordering)
        await emit_long(post, 1, {"n": 1})
        for delivery in await emit_long(post, 40):
            assert (await post.settled(delivery))["attempts"] == 1
        assert await post.jobs() == []
    assert 4 * BODY < receiver.most_held <= 7 * BODY
    assert len(receiver.posts) == 41


async def test_claim_reads_payload_above_all_limits(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "MAX_READ_BYTES", BODY // 4)
    monkeypatch.setattr(claims, "MAX_BYTES_IN_FLIGHT", BODY // 2)
    receiver = PayloadBytesReceiver(["200"], busy=0.5)
    async with delivering(tmp_path, receiver) as post:
        await post.webhook()
        for delivery in await emit_long(post, 5):
            assert (await post.settled(delivery))["attempts"] == 1
    assert receiver.most_held < 2 * BODY


async def test_long_payloads_of_hanging_receiver_leave_bytes_for_others(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of the bytes is kept from slow receivers, and short payloads need none (B-218)."""
    monkeypatch.setattr(claims, "MAX_BYTES_IN_FLIGHT", 8 * BODY)
    receiver = AnsweringHost("b.example", busy=0.1)
    async with delivering(tmp_path, receiver, backoff_seconds=0.1, backoff_cap_seconds=1) as post:
        for number in range(8):
            await post.webhook(url(f"hangs{number}"), max_attempts=10, timeout=10)
        await emit_long(post, 4)
        await trio.sleep(25)  # they are slow by now, and hold what they may
        await post.webhook(url("b"), event="to.b")
        began = trio.current_time()
        long = await post.emit("to.b", {"text": LONG})
        short = await post.emit("to.b", {"text": "short"})
        for delivery in long + short:
            assert (await post.settled(delivery))["status"] == "Sent"
        assert trio.current_time() - began < 2


async def test_claim_reads_no_long_payload_that_is_not_sent(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deliveries of a deleted Webhook have no receiver whose window limits their number."""
    monkeypatch.setattr(claims, "MAX_BYTES_IN_FLIGHT", 0)
    receiver = ScriptedReceiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        webhook = await post.webhook()

        def work(tx: Tx) -> list[str]:
            fw = post.site.handle(tx, "Administrator")
            made: list[str] = fw.webhooks.emit("invoice.paid", {"text": LONG})["deliveries"]
            fw.get_doc("Webhook", webhook).delete()
            return made

        [delivery] = await post.site.store.write(work)
        assert (await post.settled(delivery))["error"].startswith("deleted:")


@dataclass
class AnsweringHost(ScriptedReceiver):
    """Only one host answers; the others hang until their timeout."""

    def __init__(self, host: str, busy: float) -> None:
        super().__init__(["200"], busy=busy)
        self._host = host

    async def post(
        self, target: Endpoint, body: bytes, make_headers: MakeHeaders, *, timeout: float
    ) -> ReceiverResponse:
        if target.origin.host == self._host:
            return await super().post(target, body, make_headers, timeout=timeout)
        await trio.sleep(timeout)
        raise ResponseTimeout("no answer")
