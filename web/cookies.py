"""The cookie `sid`: found in a request, set at sign-in, cleared at sign-out (spec, Sign-in).

A sibling host (evil.example.org beside fw.example.org) can give a browser a further cookie `sid`
for the common parent domain, or for a path. The browser sends both and does not say which is
which, so all of them are cleared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from itertools import islice
from typing import Final
from urllib.parse import quote, urlsplit

COOKIE: Final = "sid"
MOST_DOMAINS: Final = 5
MOST_CLEARING_BYTES: Final = 2_400  # proxies take 4 KiB of header lines, nginx for one
PATH_SAFE: Final = "/:@!$&'()*+,=~"


def sids(cookie_lines: Iterable[str]) -> list[str]:
    """Return the value of every cookie named `sid`, empty ones too; more than one is a refusal."""
    found = []
    for line in cookie_lines:
        for part in line.split(";"):
            name, equals, value = part.partition("=")
            if equals and name.strip(" \t") == COOKIE:
                found.append(value.strip(" \t"))
    return found


def is_secure(policy: bool | None, site_is_https: bool, over_tls: bool) -> bool:
    """Decide the attribute Secure. `policy` is `auth.secureCookie`; None decides per request."""
    return site_is_https or over_tls if policy is None else policy


def set_cookie(sid: str, max_age: int, *, secure: bool) -> str:
    """Return the value of Set-Cookie for a session that lives `max_age` seconds."""
    return _line(sid, max_age, secure)


def clear_cookie(*, secure: bool) -> str:
    """Return the value of Set-Cookie that takes the cookie away."""
    return _line("", 0, secure)


def clear_every_cookie(site_url: str, path: str) -> list[str]:
    """Return the values of Set-Cookie that take away every cookie `sid` a request could bring.

    Args:
        site_url: where browsers reach the site; a cookie may be for its host or a parent domain.
        path: of the request, unquoted; a cookie may be for it or a folder above it.

    The shortest paths come first, and what is beyond 2,400 bytes is left out.
    """
    domains = ["", *(f"; Domain={domain}" for domain in _domains(site_url))]
    found: list[str] = []
    room = MOST_CLEARING_BYTES
    for folder in _folders(quote(path, safe=PATH_SAFE)):
        for domain in domains:
            line = f"{COOKIE}=; Max-Age=0; Path={folder}{domain}"
            room -= len("set-cookie: \r\n") + len(line)
            if room < 0:
                return found
            found.append(line)
    return found


def _domains(site_url: str) -> Iterator[str]:
    """Yield the host of a URL and its parent domains; none for an address or a single name.

    A browser ignores a public suffix, so that nobody needs to know those.
    """
    host = (urlsplit(site_url).hostname or "").rstrip(".")
    try:
        ip_address(host)
    except ValueError:
        names = host.split(".")
        yield from islice((".".join(names[at:]) for at in range(len(names) - 1)), MOST_DOMAINS)


def _folders(path: str) -> Iterator[str]:
    """Yield every cookie path that matches `path`, the shortest first (RFC 6265 5.1.4)."""
    yield "/"
    for at, letter in enumerate(path):
        if letter == "/" and at > 0:
            yield path[:at]
            yield path[: at + 1]
    if len(path) > 1 and path[-1] != "/":
        yield path


def _line(value: str, max_age: int, secure: bool) -> str:
    end = "; Secure" if secure else ""
    return f"{COOKIE}={value}; Max-Age={max_age}; Path=/; HttpOnly; SameSite=Lax{end}"
