"""The headers that every response has (H-30, H-32, H-33, H-34)."""

from __future__ import annotations

import pytest

from web.response import Response, ResponseEncoder, common_headers
from web.settings import Settings

SETTINGS = Settings(name="tests", url="https://fw.test")
REPLIES = ResponseEncoder(common_headers(SETTINGS))


def headers(answer: Response) -> dict[bytes, bytes]:
    found = REPLIES.encode(answer, "r-1").headers
    assert len(dict(found)) == len(found), "no header stands twice"
    return dict(found)


def test_encoder_adds_the_common_headers() -> None:
    found = headers(Response(b"{}"))
    assert found[b"x-request-id"] == b"r-1"
    assert found[b"cache-control"] == b"no-store"
    assert found[b"content-type"] == b"application/json; charset=utf-8"
    assert found[b"content-length"] == b"2"
    assert found[b"x-content-type-options"] == b"nosniff"
    assert found[b"referrer-policy"] == b"no-referrer"
    assert b"frame-ancestors 'none'" in found[b"content-security-policy"]
    assert b"strict-transport-security" in found


def test_encoder_keeps_a_cache_header_of_the_response() -> None:
    assert headers(Response(b"", cache="max-age=60"))[b"cache-control"] == b"max-age=60"


def test_encoder_adds_no_length_without_a_body() -> None:
    """RFC 9110 §8.6: no Content-Length in a 204."""
    assert b"content-length" not in headers(Response(b"", 204))


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r", "\0"])
def test_encoder_rejects_a_line_end_in_a_header(end: str) -> None:
    with pytest.raises(ValueError, match="Content-Disposition"):
        REPLIES.encode(
            Response(b"", headers=(("Content-Disposition", f"a{end}Set-Cookie: b"),)), "r-1"
        )
