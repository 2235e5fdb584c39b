"""The state of one request in progress, the address of its client, and the counts of all."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final, cast
from urllib.parse import unquote, unquote_plus

from quart.wrappers import Request

from fw_actors.access.sessions import Caller
from fw_actors.actors.metrics import Histogram, MetricSample
from fw_actors.config import ProxyTrustPolicy
from fw_actors.runtime.clock import Entropy
from fw_actors.tracing import TraceContext, read_context
from web.operations import Route
from web.request import LimitedBody
from web.settings import Settings

REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
ID_BYTES: Final = 8
USER_AGENT_LENGTH: Final = 512
FORWARDED: Final = "forwarded"
X_FORWARDED: Final = "x-forwarded-"
UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e\xa0-\xff]")
_JSON_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_JSON_LETTERS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class Exchange:
    """A request and its parsed parts; the guard fills them in, handlers read them."""

    __slots__ = (
        "_address",
        "_settings",
        "body",
        "caller",
        "clears_cookies",
        "query",
        "request",
        "request_id",
        "route",
        "sid",
    )

    def __init__(
        self, request: Request, settings: Settings, entropy: Entropy, route: Route | None = None
    ) -> None:
        """`route` is that of the request's path; None is 404."""
        self.request = request
        self.route = route
        self._address: str | None = None
        self.request_id = request_id_of(request, settings, entropy)
        self._settings = settings
        self.sid: str | None = None
        self.clears_cookies = False
        """Whether the response clears the request's cookies `sid`."""
        self.caller: Caller | None = None
        self.body: Any = None
        self.query: Mapping[str, str] = {}

    @property
    def known_caller(self) -> Caller:
        """The caller, in an operation that requires one."""
        if self.caller is None:
            raise LookupError("The operation does not require a session.")
        return self.caller

    def argument(self, name: str) -> str:
        """Return an argument of the path."""
        return str((self.request.view_args or {})[name])

    def sent_texts(self) -> str:
        """Return all texts that the client has sent, as sent and decoded, to search in them."""
        request = self.request
        target = request.scope.get("raw_path", b"") + b"?" + request.query_string
        sent = target.decode("latin-1")
        body = cast("LimitedBody", request.body).content.decode("utf-8", "replace")
        unescaped = _JSON_ESCAPE.sub(_unescaped, body)
        headers = (f"{name}: {value}" for name, value in request.headers.items())
        return "\n".join((sent, unquote(sent), unquote_plus(sent), *headers, body, unescaped))

    @property
    def peer(self) -> str:
        """The address at the other end of the connection."""
        return peer_of(self.request)

    @property
    def address(self) -> str:
        """The client's address in canonical form, from X-Forwarded-For if FW_TRUST_PROXY trusts the
        peer; empty if the connection has none."""
        if self._address is None:
            lines = self.request.headers.getlist("X-Forwarded-For")
            self._address = client_address(self.peer, lines, self._settings.trust)
        return self._address

    @property
    def cookie_is_secure(self) -> bool:
        """Whether a cookie set in this request gets the attribute Secure."""
        settings, lines = self._settings, self.request.headers.getlist("X-Forwarded-Proto")
        over_tls = self.request.scheme == "https"
        if lines and not over_tls:
            over_tls = came_over_tls(self.peer, lines, settings.trust)
        return is_secure(settings.secure_cookie, settings.is_https, over_tls)

    @property
    def user_agent(self) -> str:
        """The User-Agent, cut to the length that a list of sessions shows."""
        text = self.request.headers.get("User-Agent", "")[:USER_AGENT_LENGTH]
        return UNPRINTABLE.sub("?", text)


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else _JSON_LETTERS.get(escape[2], escape[2])


def peer_of(request: Request) -> str:
    """Return the address at the other end of the request's connection."""
    client = request.scope.get("client")
    return client[0] if client else ""


MAX_ADDRESS_CHARACTERS: Final = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")
ADDRESS_CACHE_SIZE: Final = 1024
IPAddress = IPv4Address | IPv6Address


def client_address(peer: str, forwarded_for: Sequence[str], trust: ProxyTrustPolicy) -> str:
    """Return the client's address in its canonical form, IPv4-mapped IPv6 as IPv4.

    `forwarded_for`: the lines of X-Forwarded-For. Together they are one list, which is read from
    the right, since the first untrusted address may have forged everything to its left.
    """
    peer_address = _address(peer)
    peer = peer if peer_address is None else str(peer_address)
    if not forwarded_for or not _is_trusted_peer(peer_address, trust):
        return peer
    address: IPAddress | None = peer_address
    for entry in reversed(",".join(forwarded_for).split(",")):
        address = _address(entry.strip(" \t"))
        if address is None:
            return peer
        if trust.every_peer or not _is_listed(trust, address):
            break
    return peer if address is None else str(address)


def came_over_tls(peer: str, forwarded_proto: Sequence[str], trust: ProxyTrustPolicy) -> bool:
    """Return whether a trusted proxy received the request over TLS; the last entry counts."""
    if not forwarded_proto or not _is_trusted_peer(_address(peer), trust):
        return False
    return ",".join(forwarded_proto).rpartition(",")[2].strip(" \t").lower() == "https"


def is_loopback(peer: str) -> bool:
    """Return whether `peer` is this machine."""
    address = _address(peer)
    return address is not None and address.is_loopback


def names_this_machine(host: str) -> bool:
    """Return whether a Host header can name this machine only: by an address, by a name without a
    dot, or by a name under `localhost`.

    The name of a web page has a dot. Its owner can have it resolve to a loopback address (DNS
    rebinding), so that a browser on this machine lets the page read what is answered there.
    """
    name = re.sub(r":[0-9]*\Z", "", host).removesuffix(".").lower()
    return "." not in name or name.endswith(".localhost") or _address(name.strip("[]")) is not None


def is_trusted(peer: str, trust: ProxyTrustPolicy) -> bool:
    """Return whether `peer` is a trusted proxy, which serves many clients."""
    return _is_trusted_peer(_address(peer), trust)


def _is_trusted_peer(peer: IPAddress | None, trust: ProxyTrustPolicy) -> bool:
    """Return whether a peer's headers are trusted; a peer without an address only under `on`."""
    return trust.every_peer or (peer is not None and _is_listed(trust, peer))


def _is_listed(trust: ProxyTrustPolicy, address: IPAddress) -> bool:
    return any(address in network for network in trust.networks)


def _address(text: str) -> IPAddress | None:
    """Return an address without zone, port or brackets; None for anything else."""
    return _parsed(text) if len(text) <= MAX_ADDRESS_CHARACTERS else None


@lru_cache(ADDRESS_CACHE_SIZE)
def _parsed(text: str) -> IPAddress | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return None
        return address.ipv4_mapped or address
    return address


def is_secure(policy: bool | None, site_is_https: bool, over_tls: bool) -> bool:
    """Return the attribute Secure. `policy` is `auth.secureCookie`; None decides per request."""
    return site_is_https or over_tls if policy is None else policy


def has_forwarding_header(request: Request) -> bool:
    """Return whether a proxy has added one of the headers (RFC 7239, X-Forwarded-*)."""
    names = map(str.lower, request.headers.keys())
    return any(name == FORWARDED or name.startswith(X_FORWARDED) for name in names)


def request_id_of(request: Request, settings: Settings, entropy: Entropy) -> str:
    """Return the request's own id if it is fit to be logged (H-30), else a new one.

    The id is stored in audit records. With trusted proxies, only an id from one of them is kept.
    """
    sent_ids = request.headers.getlist("X-Request-Id")
    if len(sent_ids) == 1 and REQUEST_ID.fullmatch(sent_ids[0]):
        trust = settings.trust
        if trust.is_off or is_trusted(peer_of(request), trust):
            return sent_ids[0]
    return entropy.bytes(ID_BYTES).hex()


def trace_of(request: Request, settings: Settings) -> TraceContext | None:
    """Return the trace context of the request, if known (B-422).

    With trusted proxies, only the context from one of them is used.
    """
    parents = request.headers.getlist("traceparent")
    if not parents:
        return None
    trust = settings.trust
    if not trust.is_off and not is_trusted(peer_of(request), trust):
        return None
    return read_context(parents, request.headers.getlist("tracestate"))


UNROUTED: Final = "none"
"""The label of requests without a route: a path chosen by a client must not become a label."""


SERVER_ERROR: Final = 500


class RequestMetrics:
    """Counts requests by route and status, and their durations."""

    def __init__(self) -> None:
        self._requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._seconds = Histogram()
        self._errors = 0
        self._forwarded_ignored = 0

    def record(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests[route, status] += 1
        self._seconds.observe(seconds)
        if status == SERVER_ERROR:
            self._errors += 1

    def record_ignored_forwarding(self) -> None:
        """Count a request whose X-Forwarded-* are ignored because FW_TRUST_PROXY does not trust its
        peer."""
        self._forwarded_ignored += 1

    def samples(self) -> Iterator[MetricSample]:
        """Yield the current values."""
        for (route, status), count in self._requests.items():
            labels = {"route": route, "status": str(status)}
            yield MetricSample("fw_requests", "counter", "Requests answered.", count, labels)
        # Present from the start, because Prometheus sees no increase in a counter that appears.
        text = "Requests that failed because of a defect (500)."
        yield MetricSample("fw_server_errors", "counter", text, self._errors)
        yield MetricSample(
            "fw_request_seconds",
            "histogram",
            "Duration of requests in seconds.",
            self._seconds.sum,
            buckets=self._seconds.buckets(),
        )
        yield MetricSample(
            "fw_forwarded_ignored",
            "counter",
            "Requests whose X-Forwarded-* headers were ignored, because their peer is not trusted.",
            self._forwarded_ignored,
        )
