"""A payload reaches its own receiver, in any order of the store's rows (B-217)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from fw_actors.store import Tx
from fw_actors.webhooks.claims import DeliveryClaims, Lease, Leased
from tests.fw_actors.actors.delivery_kit import DeliverySite, ScriptedReceiver, delivering
from tests.mail_kit import RecordingLog

pytestmark = pytest.mark.usefixtures("on_both_stores")

LEASE_SECONDS = 40  # timeout 10 and 30 more
HOSTS = ("a", "b", "c")
LINES_OF_A_FRAME = 3


def url(host: str) -> str:
    return f"https://{host}.example/hook"


async def emit_to_all(post: DeliverySite) -> list[str]:
    """Make a Webhook for each host, and one event for each of them in one transaction."""
    for host in HOSTS:
        await post.webhook(url(host), event=f"to.{host}")

    def work(tx: Tx) -> list[str]:
        webhooks = post.site.handle(tx, "Administrator").webhooks
        made = [webhooks.emit(f"to.{host}", {"for": host})["deliveries"] for host in HOSTS]
        return [delivery for [delivery] in made]

    return await post.site.store.write(work)


def change_frames(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    """Change the frames that a claim reads from the store."""
    read = DeliveryClaims.leased

    def leased(self: DeliveryClaims, tx: Tx, leases: Sequence[Lease], token: str) -> Leased:
        found = read(self, tx, leases, token)
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


async def test_claim_with_damaged_frames_sends_nothing_and_is_repeated(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This defect is logged once, and the leases expire."""
    receiver, log = ScriptedReceiver(["200"]), RecordingLog()
    async with delivering(tmp_path, receiver, log=log) as post:
        with monkeypatch.context() as patched:
            change_frames(patched, extend_first_frame_over_second)
            deliveries = await emit_to_all(post)
            await trio.sleep(LEASE_SECONDS - 1)
            assert sent(receiver) == []
            assert len(log.of("delivery.claim_unusable")) == 1
        for delivery in deliveries:
            assert (await post.settled(delivery))["status"] == "Sent"
    assert sorted(sent(receiver)) == OWN
    assert {round(post.at) for post in receiver.posts} == {LEASE_SECONDS}
