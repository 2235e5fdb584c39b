"""The URLs that a Webhook may have (B-12, B-13), and when two of them are one receiver (B-230)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.errors import ValidationError
from fw_actors.http import Origin, is_loopback, parse_endpoint

GOOD = [  # url, origin, host header, what stands in the request line
    ("https://example.com", Origin("https", "example.com", 443), "example.com", "/"),
    ("HTTPS://Example.COM:443/A", Origin("https", "example.com", 443), "example.com", "/A"),
    ("https://example.com.:8443?x=1", Origin("https", "example.com", 8443), "example.com:8443",
     "/?x=1"),
    ("https://bücher.example/ü?ö", Origin("https", "xn--bcher-kva.example", 443),
     "xn--bcher-kva.example", "/%C3%BC?%C3%B6"),
    ("https://h/a%20b;c=d/../e//f", Origin("https", "h", 443), "h", "/a%20b;c=d/../e//f"),
    ("https://my_service:80/", Origin("https", "my_service", 80), "my_service:80", "/"),
    ("http://localhost:8000/x", Origin("http", "localhost", 8000), "localhost:8000", "/x"),
    ("http://127.9.9.9", Origin("http", "127.9.9.9", 80), "127.9.9.9", "/"),
    ("http://[::1]:8000", Origin("http", "::1", 8000), "[::1]:8000", "/"),
    ("https://[2001:DB8:0:0::1]/", Origin("https", "2001:db8::1", 443), "[2001:db8::1]", "/"),
    ("https://10.0.0.1/", Origin("https", "10.0.0.1", 443), "10.0.0.1", "/"),
]  # fmt: skip


@pytest.mark.parametrize(("url", "origin", "authority", "path"), GOOD)
def test_parse_endpoint_returns_canonical_form(
    url: str, origin: Origin, authority: str, path: str
) -> None:
    target = parse_endpoint(url)
    assert (target.origin, target.authority, target.path) == (origin, authority, path)


def test_characters_that_no_url_may_have_are_sent_encoded() -> None:
    """B-131: servers refuse a request line with one of them; the others stay as written."""
    path = parse_endpoint('https://h/{id}|"<a>`^?q={x}&ids[]=1&%7b%zz=~').path
    assert path == "/%7Bid%7D%7C%22%3Ca%3E%60%5E?q=%7Bx%7D&ids[]=1&%7b%zz=~"


BAD = [
    ("", "absolute"),
    ("example.com/hook", "absolute"),
    ("/hook", "absolute"),
    ("https:/example.com", "absolute"),
    ("https:example.com", "absolute"),
    ("ftp://example.com", "https://"),
    ("http://example.com", "loopback"),
    ("http://10.0.0.1", "loopback"),
    ("http://localhost.example.com", "loopback"),
    ("http://sub.localhost", "loopback"),
    ("http://[::ffff:127.0.0.1]", "loopback"),
    ("http://[::2]", "loopback"),
    ("http://127.1", "number"),
    ("https://0x7f000001", "number"),
    ("https://2130706433", "number"),
    ("https://1.2.3.4.5", "number"),
    ("https://1.2.3.256", "number"),
    ("https://010.0.0.1", "number"),
    ("https://user@example.com", "user name"),
    ("https://user:word@example.com", "user name"),
    ("https://@example.com", "user name"),
    ("https://example.com/#f", "fragment"),
    ("https://example.com/#", "fragment"),
    ("https://example.com\\@evil.example/", "backslash"),
    ("https://example.com/a b", "space"),
    (" https://example.com", "space"),
    ("https://example.com/\r\nx: y", "control"),
    ("https://example.com/\x00", "control"),
    ("https://example.com/\x85", "control"),
    ("https://example.com/\u2028", "control"),
    ("https://example.com/\u202e", "control"),
    ("https://example.com/\ud800", "control"),
    ("https://", "host name"),
    ("https://:443", "host name"),
    ("https://a..b", "host name"),
    ("https://-a.example", "host name"),
    ("https://a%2eb", "host name"),
    ("https://" + "a" * 64, "host name"),
    ("https://" + "a." * 127 + "abc", "host name"),
    ("https://\u2488com/", "host name|international"),
    ("https://[::1", "cannot be read"),
    ("https://[zz]", "IPv6"),
    ("https://[1.2.3.4]", "IPv6"),
    ("https://[fe80::1%eth0]", "zone"),
    ("https://h:0", "port"),
    ("https://h:65536", "port"),
    ("https://h:" + "9" * 1000, "port"),
    ("https://h:80:80", "cannot be read"),
    ("https://h:8a", "cannot be read"),
    ("https://h/" + "a" * 2048, "2,048"),
]


@pytest.mark.parametrize(("url", "words"), BAD, ids=lambda value: repr(value)[:40])
def test_parse_endpoint_refuses_bad_url_with_reason(url: str, words: str) -> None:
    with pytest.raises(ValidationError, match=words) as caught:
        parse_endpoint(url)
    assert caught.value.extra == {"field": "url"}


def test_parse_endpoint_accepts_http_in_development() -> None:
    """https is required outside development mode (B-12)."""
    assert parse_endpoint("http://example.com", development=True).origin.port == 80
    with pytest.raises(ValidationError):
        parse_endpoint("ftp://example.com", development=True)


def test_parse_endpoint_accepts_url_of_2048_characters() -> None:
    assert len(parse_endpoint("https://h/" + "a" * 2038).path) == 2039


LOOPBACK = [
    ("localhost", True),
    ("127.0.0.1", True),
    ("127.255.0.1", True),
    ("::1", True),
    ("128.0.0.1", False),
    ("::", False),
    ("0.0.0.0", False),
    ("::ffff:127.0.0.1", False),
    ("localhost.example", False),
]


@pytest.mark.parametrize(("host", "expected"), LOOPBACK)
def test_is_loopback_accepts_only_literal_hosts(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_endpoint_display_omits_query() -> None:
    """Receiver URLs are shown without user info and query (O-101)."""
    target = parse_endpoint("https://h/x?token=1")
    assert target.display == "https://h/x"
    assert "token" not in repr(target)


@given(st.text(), st.sampled_from(["https://", "https://h/", "https://h", "http://[", ""]))
def test_endpoint_is_visible_ascii(text: str, before: str) -> None:
    try:
        target = parse_endpoint(before + text)
    except ValidationError:
        return
    sent = target.authority + target.path
    assert all("!" <= character <= "~" for character in sent)
    again = parse_endpoint(f"{target.origin.scheme}://{target.authority}{target.path}")
    assert again == target
