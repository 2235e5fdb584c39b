"""The cookie `sid`: found in a request, set at sign-in, cleared at sign-out (spec, Sign-in)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

COOKIE: Final = "sid"


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


def _line(value: str, max_age: int, secure: bool) -> str:
    end = "; Secure" if secure else ""
    return f"{COOKIE}={value}; Max-Age={max_age}; Path=/; HttpOnly; SameSite=Lax{end}"
