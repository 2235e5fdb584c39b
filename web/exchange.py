"""The state of one request in progress, and the count of those answered."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from quart.wrappers import Request

from fw_actors.access.types import Caller, Reading
from fw_actors.actors.counters import Histogram
from fw_actors.runtime.clock import Entropy
from web.operations import Path
from web.request import LimitedBody, came_over_tls, client_address, is_secure, is_trusted
from web.settings import Settings

REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
ID_BYTES: Final = 8
USER_AGENT_LENGTH: Final = 512
UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e\xa0-\xff]")


class Exchange:
    """A request and what is known of it. Filled in by the guard, read by the handlers."""

    __slots__ = (
        "_address",
        "_settings",
        "body",
        "caller",
        "clears_cookies",
        "path",
        "query",
        "request",
        "request_id",
        "sid",
    )

    def __init__(
        self, request: Request, settings: Settings, entropy: Entropy, path: Path | None = None
    ) -> None:
        """`path` is what is served under the request's path, None for nothing."""
        self.request = request
        self.path = path
        self._address: str | None = None
        self.request_id = request_id_of(request, settings, entropy)
        self._settings = settings
        self.sid: str | None = None
        self.clears_cookies = False
        """Whether the request's cookies `sid` are to be taken away by the answer."""
        self.caller: Caller | None = None
        self.body: Any = None
        self.query: Mapping[str, str] = {}

    @property
    def known_caller(self) -> Caller:
        """Who calls, in an operation that requires it."""
        if self.caller is None:
            raise LookupError("The operation does not require a session.")
        return self.caller

    @property
    def arriving(self) -> LimitedBody:
        """The body as it arrives."""
        return cast("LimitedBody", self.request.body)

    @property
    def has_body(self) -> bool:
        """Whether the request says that a body comes with it."""
        request = self.request
        return bool(request.content_length) or "Transfer-Encoding" in request.headers

    def argument(self, name: str) -> str:
        """Return an argument of the path."""
        return str((self.request.view_args or {})[name])

    @property
    def peer(self) -> str:
        """The address at the other end of the connection."""
        return peer_of(self.request)

    @property
    def address(self) -> str:
        """The client's address under FW_TRUST_PROXY."""
        if self._address is None:
            lines = self.request.headers.getlist("X-Forwarded-For")
            self._address = client_address(self.peer, lines, self._settings.trust)
        return self._address

    @property
    def cookie_is_secure(self) -> bool:
        """Whether a cookie set in this request gets the attribute Secure."""
        lines = self.request.headers.getlist("X-Forwarded-Proto")
        over_tls = self.request.scheme == "https" or came_over_tls(
            self.peer, lines, self._settings.trust
        )
        return is_secure(self._settings.secure_cookie, self._settings.is_https, over_tls)

    @property
    def user_agent(self) -> str:
        """What the client calls itself, cut to what a list of sessions shows."""
        text = self.request.headers.get("User-Agent", "")[:USER_AGENT_LENGTH]
        return UNPRINTABLE.sub("?", text)


def peer_of(request: Request) -> str:
    """Return the address at the other end of the request's connection."""
    client = request.scope.get("client")
    return client[0] if client else ""


def request_id_of(request: Request, settings: Settings, entropy: Entropy) -> str:
    """Keep an incoming id when it is fit to be logged (H-30), else make one.

    It stands in records of what was done. Where proxies are trusted, theirs is the word that
    counts: one that a client sends past them is its own invention.
    """
    given = request.headers.getlist("X-Request-Id")
    if len(given) == 1 and REQUEST_ID.fullmatch(given[0]):
        trust = settings.trust
        if trust.is_off or is_trusted(peer_of(request), trust):
            return given[0]
    return entropy.bytes(ID_BYTES).hex()


UNROUTED: Final = "none"
"""The route of a request whose path is not served: paths from outside are no labels."""


class Traffic:
    """Requests by route and status, and how long they took."""

    def __init__(self) -> None:
        self._requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._seconds = Histogram()
        self._forwarded_ignored = 0

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests[route, status] += 1
        self._seconds.observe(seconds)

    def forwarded_ignored(self) -> None:
        """Count a request with X-Forwarded-* that FW_TRUST_PROXY=off ignores."""
        self._forwarded_ignored += 1

    def readings(self) -> Iterator[Reading]:
        """Yield the numbers of this moment."""
        for (route, status), count in self._requests.items():
            labels = {"route": route, "status": str(status)}
            yield Reading("fw_requests", "counter", "Requests answered.", count, labels)
        yield Reading(
            "fw_request_seconds",
            "histogram",
            "How long requests took.",
            self._seconds.sum,
            buckets=self._seconds.buckets(),
        )
        yield Reading(
            "fw_forwarded_ignored",
            "counter",
            "Requests whose X-Forwarded-* headers were not believed: FW_TRUST_PROXY is off.",
            self._forwarded_ignored,
        )
