"""Validates and parses the URL of a receiver (B-12, B-13).

A parsed URL is in canonical form, so that two spellings of one receiver are one `Origin`, and no
byte of a URL can end a header line. No name is resolved here.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import quote

import idna

from fw_actors.errors import ValidationError

MAX_URL_CHARACTERS: Final = 2048  # characters; the `length` of a Webhook's url (B-13)
DEFAULT_PORTS: Final = {"http": 80, "https": 443}

# RFC 3986, appendix B, for a URL with an authority and without a fragment.
_URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?]*)(?P<rest>.*)")
# RFC 3986 3.2.2 and 3.2.3: an IPv6 literal is in brackets, and a port may be empty.
_AUTHORITY: Final = re.compile(
    r"(?:\[(?P<ipv6>[^\]]*)\]|(?P<host>[^:\[\]]*))(?::(?P<port>[0-9]*))?"
)
# RFC 1123 2.1, and the underscore, which names in clusters have.
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# getaddrinfo accepts these as addresses too: 127.1, 0x7f000001, 2130706433
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
# White space and control characters (C0, C1), line and paragraph separator, surrogates.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x20\x7f-\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ud800-\udfff]"
)
# RFC 3986 allows none of `"<>^`{|}` in a URL, and servers such as Tomcat refuse a request line with
# one. It allows brackets only around an IPv6 address, but queries have them (`ids[]=1`) and servers
# accept them; a % that is already there is kept.
_SENDABLE: Final = "".join(sorted(set(map(chr, range(0x21, 0x7F))) - set('"<>^`{|}')))
_ALL_SENDABLE: Final = re.compile(f"[{re.escape(_SENDABLE)}]*")


class Origin(NamedTuple):
    """A receiver: scheme, host and port (B-230). Several Webhooks may have the same one.

    `host` is lower-case ASCII: a name, or an address without brackets. `certificate` names the
    client certificate of a connection; the key of a receiver's slots has none.
    """

    scheme: str
    host: str
    port: int
    certificate: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}://{_bracketed(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The destination of a POST, made by `parse_endpoint`, so that its parts are safe to send.

    Args:
        origin: scheme, host and port.
        authority: the value of the header `host`; without the port if that is the default.
        path: path and query as in the request line. Secret, because it may contain a token.
        certificate: the name of the client certificate; empty for none.
    """

    origin: Origin
    authority: str
    path: str
    certificate: str = ""
    route: Origin = field(init=False, compare=False)
    """The key of the connection pool: the receiver and the client certificate."""

    def __post_init__(self) -> None:
        route = self.origin
        if self.certificate:
            route = route._replace(certificate=self.certificate)
        object.__setattr__(self, "route", route)

    @property
    def display(self) -> str:
        """The URL without its query, for logs and messages."""
        return f"{self.origin.scheme}://{self.authority}{self.path.partition('?')[0]}"

    def __repr__(self) -> str:
        return f"Endpoint({self.display!r})"


def parse_endpoint(url: str | bytes, *, development: bool = False) -> Endpoint:
    """Validate and parse a receiver's URL.

    Args:
        url: as an administrator wrote it. A host name that is not ASCII is converted by IDNA 2008
            (UTS 46). In path and query, what a URL must not contain is percent-encoded (B-131);
            everything else is sent as written. Bytes, which raw SQL can store on SQLite, are
            refused.
        development: whether http is allowed for hosts other than literal loopback ones.

    Raises:
        ValidationError: with field `url` and a sentence that states the necessary change (B-13).
    """
    if not isinstance(url, str):
        raise _invalid("The URL must be text.")
    if len(url) > MAX_URL_CHARACTERS:
        raise _invalid(f"The URL must have at most {MAX_URL_CHARACTERS:,} characters.")
    if _UNPRINTABLE.search(url):
        raise _invalid("The URL must not have a space or a control character; percent-encode it.")
    if "#" in url:
        raise _invalid(
            "The URL must not have a fragment, which is never sent; leave out the # and the rest."
        )
    if "\\" in url:
        raise _invalid("The URL must not have a backslash; write / or percent-encode it.")
    match = _URL.fullmatch(url)
    if match is None:
        raise _invalid("The URL must be absolute, like https://example.com/hook.")
    scheme = match["scheme"].lower()
    if scheme not in DEFAULT_PORTS:
        raise _invalid("The URL must begin with https://.")
    host, port = _host_and_port(match["authority"], DEFAULT_PORTS[scheme])
    if scheme == "http" and not (development or is_loopback(host)):
        raise _invalid(
            "The URL must begin with https://; http is allowed only for loopback addresses."
        )
    authority = _bracketed(host) + ("" if port == DEFAULT_PORTS[scheme] else f":{port}")
    return Endpoint(Origin(scheme, host, port), authority, _path(match["rest"]))


def is_loopback(host: str) -> bool:
    """Return whether a host, as in `Origin`, is a literal loopback host (B-12).

    These are `localhost`, 127.0.0.0/8 in dotted form, and `::1`, but no name that resolves to one.
    """
    address = _address(host)
    if address is None:
        return host == "localhost"
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_loopback
    return address == ipaddress.IPv6Address(1)


def is_address(host: str) -> bool:
    """Return whether a host, as in `Origin`, is an IP address, which needs no look-up."""
    return _address(host) is not None


def _invalid(sentence: str) -> ValidationError:
    return ValidationError(sentence, field="url")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _host_and_port(authority: str, default_port: int) -> tuple[str, int]:
    if "@" in authority:
        raise _invalid("The URL must not have a user name or password, which is never sent.")
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise _invalid("The URL's host and port cannot be read; write https://host:port/path.")
    host = _ipv6(match["ipv6"]) if match["ipv6"] is not None else _name(match["host"])
    digits = (match["port"] or str(default_port)).lstrip("0")
    if not 0 < len(digits) <= 5 or int(digits) > 65535:
        raise _invalid("The URL's port must be a number between 1 and 65535.")
    return host, int(digits)


def _ipv6(literal: str) -> str:
    try:
        address = ipaddress.IPv6Address(literal)
    except ValueError:
        raise _invalid("The URL's host in brackets must be an IPv6 address.") from None
    if address.scope_id is not None:
        raise _invalid(
            "The URL's IPv6 address must not have a zone, which means nothing to a receiver."
        )
    return address.compressed


def _name(host: str) -> str:
    try:
        name = host.lower() if host.isascii() else idna.encode(host, uts46=True).decode("ascii")
    except UnicodeError:  # IDNAError is one
        raise _invalid("The URL's host must be a valid international domain name.") from None
    name = name.removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return str(ipaddress.IPv4Address(name))
        except ValueError:
            raise _invalid(
                "The URL's host is a number; write an IPv4 address as a.b.c.d."
            ) from None
    if len(name) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise _invalid("The URL's host must be a valid host name.")
    return name


def _path(rest: str) -> str:
    path = rest if rest.startswith("/") else f"/{rest}"
    return path if _ALL_SENDABLE.fullmatch(path) else quote(path, safe=_SENDABLE)
