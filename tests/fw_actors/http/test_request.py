"""Written requests are read by h11's server as intended."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.errors import ValidationError
from fw_actors.http import parse_endpoint
from fw_actors.http.exchange import HEAD_CACHE_SIZE, RequestWriter

VISIBLE = st.characters(min_codepoint=0x21, max_codepoint=0x7E)
VALUES = st.text(VISIBLE, min_size=1).map(str.encode)


@given(
    path=st.text(),
    body=st.binary(max_size=2000),
    values=st.dictionaries(st.from_regex(rb"x-[a-z0-9%-]{1,20}", fullmatch=True), VALUES),
)
def test_request_writer_is_understood_by_h11(
    path: str, body: bytes, values: dict[bytes, bytes]
) -> None:
    """An HTTP/1.1 server reads what we write as it was meant (B-130)."""
    try:
        target = parse_endpoint(f"https://h:8443/{path}")
    except ValidationError:
        return
    data = RequestWriter("1").write(target, body, list(values.items()))
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    server.receive_data(data)
    request, read = server.next_event(), b""
    while isinstance(event := server.next_event(), h11.Data):
        read += event.data
    assert isinstance(request, h11.Request)
    assert isinstance(event, h11.EndOfMessage)
    assert (request.method, request.target) == (b"POST", target.path.encode())
    assert list(request.headers) == [
        (b"host", b"h:8443"),
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"user-agent", b"fw-webhooks/1"),
        (b"accept", b"*/*"),
        *values.items(),
    ]
    assert (read, server.trailing_data) == (body, (b"", False))
    assert server.our_state is h11.SEND_RESPONSE


BAD = [
    [(b"Webhook-Id", b"x")],
    [(b"", b"x")],
    [(b"webhook id", b"x")],
    [(b"x:", b"x")],
    [(b"host", b"x")],
    [(b"content-length", b"1")],
    [(b"transfer-encoding", b"chunked")],
    [(b"connection", b"close")],
    [(b"x", b"")],
    [(b"x", b" a")],
    [(b"x", b"a ")],
    [(b"x", b"a\r\nb: c")],
    [(b"x", b"a\x00")],
    [(b"x", "ü".encode())],
    [(b"x", b"1"), (b"x", b"1")],
]


@pytest.mark.parametrize("headers", BAD)
def test_request_writer_refuses_invalid_headers(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(ValueError, match="header"):
        RequestWriter("1").write(parse_endpoint("https://h"), b"", headers)


def test_request_writer_hides_refused_value() -> None:
    with pytest.raises(ValueError, match="webhook-signature") as caught:
        RequestWriter("1").write(
            parse_endpoint("https://h"), b"", [(b"webhook-signature", b"v1,secret ")]
        )
    assert "secret" not in str(caught.value)


def test_request_writer_keeps_bounded_number_of_heads() -> None:
    writer, target = RequestWriter("1%d"), parse_endpoint("https://h")
    for number in range(3 * HEAD_CACHE_SIZE):
        data = writer.write(target, b"", [(b"x-%d" % number, b"100%b")])
        assert data.endswith(b"fw-webhooks/1%%d\r\naccept: */*\r\nx-%d: 100%%b\r\n\r\n" % number)
    assert writer.kept_heads == HEAD_CACHE_SIZE


def test_request_writer_refuses_invalid_version() -> None:
    with pytest.raises(ValueError, match="version"):
        RequestWriter("1\r\n")
