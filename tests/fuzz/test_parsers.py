"""Parsers of outside input raise only the errors that they declare, for any input."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fw_actors.errors import BadRequestError, ValidationError
from fw_actors.http import ProtocolError, Times, parse_endpoint
from fw_actors.http.response import ResponseReader
from fw_actors.rules.identifiers import UnusableIdentifierError, canonical
from fw_actors.rules.safe_output import FieldRedaction, redaction_of
from fw_actors.webhooks.deliveries import body_as_text
from web.json_input import read_object

ANY_TEXT = st.text(st.characters())
HEADS = st.sampled_from(
    (b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 204\r\n", b"HTTP/1.0 500 x\r\n", b"HTTP/1.1 99999 x\r\n",
     b"HTTP/1.1 103 x\r\n\r\n", b"content-length: 5\r\n", b"content-length: -1\r\n",
     b"transfer-encoding: chunked\r\n", b"location: \xff\r\n", b"\r\n", b"\r\n\r\n",
     b"5\r\nhello\r\n", b"ffffffffffffffff\r\n", b"connection: close\r\n", b"retry-after: \x00\r\n")
)  # fmt: skip


@given(st.lists(HEADS | st.binary(max_size=30), max_size=12))
def test_response_reader_raises_only_protocol_error(parts: list[bytes]) -> None:
    """Once a whole head is in, its status decides (B-141); at most 512 bytes are kept (B-170)."""
    reader, satisfied = ResponseReader(), False
    with suppress(ProtocolError):
        for part in parts:
            satisfied = satisfied or reader.feed(part)
        if not satisfied:
            reader.break_off()
        answer = reader.response(Times())
        assert 200 <= answer.status <= 999
        assert len(answer.body) <= 512
        assert len(body_as_text(answer.body)) <= 512


@given(st.binary() | ANY_TEXT.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_read_object_raises_only_bad_request_error(body: bytes) -> None:
    """Invalid JSON, duplicate keys, NaN, nesting, surrogates and controls are 400 (H-12)."""
    with suppress(BadRequestError):
        value = read_object(body)
        assert json.loads(json.dumps(value, allow_nan=False)) == value


@given(st.recursive(st.floats() | st.integers() | ANY_TEXT, lambda x: st.lists(x, max_size=2)))
def test_read_object_keeps_or_refuses_edge_values(value: Any) -> None:
    """Integers beyond 2^53, infinities, lone surrogates: refused, never changed."""
    body = json.dumps({"value": value}).encode()
    with suppress(BadRequestError):
        assert read_object(body) == {"value": value}


@given(ANY_TEXT | st.from_regex(r"https?://[a-z0-9.\-\[\]:@%]*(:[0-9]*)?(/.*)?", fullmatch=True))
def test_parse_endpoint_returns_printable_parts_or_refuses(text: str) -> None:
    """No byte of a URL can end a header line."""
    with suppress(ValidationError):
        target = parse_endpoint(text, development=True)
        for part in (target.authority, target.path):
            assert part.isascii()
            assert part.isprintable()
            assert " " not in part


@given(ANY_TEXT)
def test_canonical_is_idempotent_and_case_insensitive(text: str) -> None:
    """The form of a form is itself (A-31); no way around a counter by letter case."""
    with suppress(UnusableIdentifierError):
        form = canonical(text)
        assert canonical(form) == form
        assert canonical(f"  {text}\t") == form


@given(ANY_TEXT, st.sampled_from(("Data", "Text", "Password", "Vault", "JSON")), st.integers(0, 9))
def test_redaction_hides_fields_named_like_secrets(name: str, kind: str, permlevel: int) -> None:
    """No field named like a secret is shown; the rules B-90 to B-93, written out
    again."""
    secret = name in {"password", "password_hash", "new_password", "api_secret", "secret"}
    secret = secret or name.endswith(("_password", "_secret")) or kind == "Password"
    how = redaction_of(name, kind, permlevel)
    if permlevel > 0:
        assert how is FieldRedaction.REMOVED
    elif kind != "Vault" and secret:
        assert how is FieldRedaction.BLANKED
