"""A body has a limit while it arrives, and a least rate (H-11, H-125)."""

from __future__ import annotations

import pytest

from fw_actors.errors import PayloadTooLargeError, RequestTimeoutError
from web.request import LimitedBody, body_deadline


def arrived(*parts: bytes, ended: bool = True) -> LimitedBody:
    body = LimitedBody()
    for part in parts:
        body.append(part)
    if ended:
        body.set_complete()
    return body


def test_limited_body_returns_a_complete_body() -> None:
    assert arrived(b"a", b"bc").read(3) == b"abc"
    assert arrived().read(0) == b""


@pytest.mark.parametrize("ended", [True, False])
def test_limited_body_rejects_too_many_bytes_before_the_end(ended: bool) -> None:
    body = arrived(b"abc", b"d", ended=ended)
    with pytest.raises(PayloadTooLargeError):
        body.read(3)


def test_limited_body_keeps_nothing_beyond_the_limit() -> None:
    body = arrived(b"x" * 1024 * 1024, ended=False)
    assert body.kept == 1024 * 1024
    body.append(b"y")
    assert body.kept == 0
    body.set_complete()
    with pytest.raises(PayloadTooLargeError):
        body.read(1024 * 1024)


def test_limited_body_raises_a_timeout_when_given_up() -> None:
    body = arrived(b"a", ended=False)
    body.set_timed_out()
    with pytest.raises(RequestTimeoutError):
        body.read(10)


@pytest.mark.parametrize(
    ("received", "seconds"), [(0, 10), (500, 11), (5_000, 20), (10_000, 30), (1_000_000, 30)]
)
def test_body_deadline_grows_by_500_bytes_a_second(received: int, seconds: float) -> None:
    assert body_deadline(100.0, received) == 100.0 + seconds


def test_limited_body_drops_bytes_that_came_and_that_come() -> None:
    body = arrived(b"a", ended=False)
    body.drop()
    assert body.kept == 0
    body.append(b"b")
    body.set_complete()
    assert body.received == 2
    assert body.read(10) == b""


def test_limited_body_rejects_what_it_has_not_kept() -> None:
    """A later limit that is larger cannot bring back discarded bytes."""
    body = LimitedBody()
    body.keep_at_most(3)
    body.append(b"four")
    body.set_complete()
    with pytest.raises(PayloadTooLargeError):
        body.read(10)
