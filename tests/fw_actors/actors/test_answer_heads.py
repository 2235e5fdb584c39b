"""The effect of the head of a receiver's answer on a delivery, over a real socket (B-141)."""

from __future__ import annotations

from pathlib import Path

import pytest

from fw_actors.http import open_sender
from tests.fw_actors.actors.delivery_kit import RealSender, delivering
from tests.fw_actors.http.receiver import always, receiving

pytestmark = pytest.mark.usefixtures("on_both_stores")

MISDESCRIBED = [
    b"transfer-encoding: identity\r\ncontent-length: 2",
    b"transfer-encoding: gzip, chunked",
    b"content-length: 2\r\ncontent-length: 4",
    b"content-length : 2",
    b"x y: z\r\ncontent-length: 2",
]
ENDLESS = [b"content-length: abc"]


@pytest.mark.parametrize("lines", [*MISDESCRIBED, *ENDLESS], ids=lambda lines: repr(lines[:40]))
@pytest.mark.parametrize(
    ("status", "ends_as", "attempts", "error"),
    [
        (200, "Sent", 1, None),
        (302, "Failed", 1, "status: the receiver answered 302."),
        (400, "Failed", 1, "status: the receiver answered 400."),
        (503, "Failed", 2, "status: the receiver answered 503."),
    ],
)
async def test_delivery_follows_status_despite_misdescribed_body(
    lines: bytes, status: int, ends_as: str, attempts: int, error: str | None, tmp_path: Path
) -> None:
    """A final answer causes one POST, a transient one as many as are allowed."""
    head = b"HTTP/1.1 %d Some reason\r\n%b\r\n\r\n" % (status, lines)
    timeout = 1 if lines in ENDLESS else 30  # what follows an endless head lasts to the deadline
    async with (
        receiving(
            always(head + b"2\r\nok\r\n0\r\n\r\n" if b"chunked" in lines else head + b"ok")
        ) as receiver,
        open_sender() as sender,
        delivering(tmp_path, RealSender(sender), backoff_seconds=0.1) as post,
    ):
        url = f"http://127.0.0.1:{receiver.port}/hook"
        await post.webhook(url, max_attempts=2, timeout=timeout)
        [delivery] = await post.emit()
        found = await post.settled(delivery)
    assert (found["status"], found["attempts"], found["error"]) == (ends_as, attempts, error)
    assert (found["response_status"], found["response_body"]) == (status, "ok")
    assert len(receiver.requests) == attempts


async def test_response_head_without_end_is_no_answer(tmp_path: Path) -> None:
    """A status line alone is not a head either: more may follow."""
    async with (
        receiving(always(b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n")) as receiver,
        open_sender() as sender,
        delivering(tmp_path, RealSender(sender)) as post,
    ):
        url = f"http://127.0.0.1:{receiver.port}/hook"
        await post.webhook(url, max_attempts=1, timeout=1)
        [delivery] = await post.emit()
        found = await post.settled(delivery)
    assert (found["status"], found["response_status"]) == ("Failed", None)
    assert found["error"].startswith("timeout: ")
