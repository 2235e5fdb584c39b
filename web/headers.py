"""The headers that every answer has, besides `X-Request-Id` (interface §1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from web.settings import Settings

Headers = tuple[tuple[str, str], ...]

FORWARDED: Final = "forwarded"
X_FORWARDED: Final = "x-forwarded-"
REQUEST_ID: Final = "X-Request-Id"
CSRF_HEADER: Final = "X-FW-CSRF"
CACHE_CONTROL: Final = "Cache-Control"
ALWAYS: Final[Headers] = (
    # No answer is the same for the next one who asks, errors included.
    (CACHE_CONTROL, "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    # Strict for pages; for JSON it forbids whatever a browser might make of it.
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
)
HSTS: Final = "Strict-Transport-Security"
HSTS_AGE: Final = "max-age=31536000"


def common_headers(settings: Settings) -> Headers:
    """Return what every answer of the site has."""
    if not settings.is_https:
        return ALWAYS
    subdomains = "; includeSubDomains" if settings.hsts_include_sub_domains else ""
    return (*ALWAYS, (HSTS, HSTS_AGE + subdomains))


def says_forwarded(names: Iterable[str]) -> bool:
    """Say whether one of a request's headers is what a proxy adds (RFC 7239, X-Forwarded-*)."""
    return any(n == FORWARDED or n.startswith(X_FORWARDED) for n in map(str.lower, names))
