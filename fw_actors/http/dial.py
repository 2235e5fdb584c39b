"""Opens connections: DNS in bounded threads, all allowed addresses, the egress proxy, TLS.

`getaddrinfo` cannot be interrupted: an abandoned look-up keeps its thread until the resolver gives
up. Therefore there are at most 32 such threads, at most two for one name, and they do not count
against trio's own limit, which the rest of the service shares (B-149). A quarter of the threads is
reserved for names that recently resolved quickly, so that unresponsive names do not delay healthy
receivers.

Each address is checked when it is dialled, so that DNS rebinding (other addresses at the next
look-up) cannot circumvent the policy. The module has more than 500 lines because a reader who
follows a connection needs all its steps: the look-up, the policy, the tunnel and the dial.

The egress proxy opens a tunnel to a receiver by HTTP CONNECT (B-156, RFC 9110 9.3.6). TLS runs
inside the tunnel, end to end, so that the proxy sees only a host and a port. The proxy resolves the
names of receivers and checks their addresses; addresses in URLs are checked here as well.
"""

from __future__ import annotations

import base64
import errno
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Final

import h11
import trio

from fw_actors.config import ClientCertificate
from fw_actors.http.exchange import (
    BrokenConnection,
    Connection,
    ExchangeStep,
    PlainConnection,
    Progress,
)
from fw_actors.http.response import ConnectError, DnsError, ForbiddenAddress, TlsError
from fw_actors.http.tls import ClientContexts, SessionCache, start_tls
from fw_actors.http.url import Origin, is_address
from fw_actors.rules.outgoing import ALLOW_ALL, EgressProxy, OutgoingPolicy, leads_to_loopback
from fw_actors.runtime.clock import MS_PER_SECOND

SocketAddress = tuple[str, int] | tuple[str, int, int, int]
Address = tuple[socket.AddressFamily, SocketAddress]
Lookup = Callable[[str, int], Sequence[Address]]

MAX_THREADS: Final = 32
MAX_PER_HOST: Final = 2
PROMPT_SECONDS: Final = 1.0  # an older look-up may hang: the next caller begins another one
MAX_PROMPT_NAMES: Final = 4096  # remembered names; beyond it, the least recently used is dropped


def system_lookup(host: str, port: int) -> Sequence[Address]:
    """Return all addresses of a name in the system's order of preference. Blocks.

    Raises: OSError (socket.gaierror); UnicodeError for text that cannot be a name.
    """
    addresses: dict[Address, None] = {}
    for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        if isinstance(address[0], str):  # else Python has no IPv6, and the address is raw bytes
            addresses[family, address] = None
    return list(addresses)


@dataclass(frozen=True, slots=True)
class ResolverStatistics:
    """The resolver's current numbers.

    Args:
        threads: threads in use, including those of abandoned look-ups.
        waiting: callers that wait for a result.
        hosts: names that are being looked up.
    """

    threads: int
    waiting: int
    hosts: int


@dataclass(eq=False, slots=True)
class _RunningLookup:
    """A running look-up and its waiters, which may need other ports than the first one."""

    port: int
    began: float
    done: trio.Event = field(default_factory=trio.Event)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    waiting: int = 0
    threaded: bool = False
    addresses: Sequence[Address] | None = None


class Resolver:
    """Resolves names; simultaneous callers for one name share a look-up.

    Args:
        nursery: runs the look-ups, which may outlive their callers.
        lookup: the blocking function that is run in a thread.
        threads: the maximum number of look-ups at once.
    """

    def __init__(
        self, nursery: trio.Nursery, lookup: Lookup = system_lookup, threads: int = MAX_THREADS
    ) -> None:
        self._nursery = nursery
        self._lookup = lookup
        self._limiter = trio.CapacityLimiter(threads)
        self._doubtful = trio.CapacityLimiter(max(1, threads - threads // 4))
        self._prompt: dict[str, None] = {}  # in the order in which they were last looked up
        self._running: dict[str, list[_RunningLookup]] = {}  # by name, whatever the port

    async def resolve(self, host: str, port: int) -> Sequence[Address]:
        """Return all addresses of a name, the preferred ones first; at least one.

        After a cancellation the look-up continues for its other waiters. A look-up that no thread
        has started is dropped when its last waiter is cancelled.

        Raises: DnsError.
        """
        running = self._join_or_begin(host, port)
        running.waiting += 1
        try:
            await running.done.wait()
        finally:
            running.waiting -= 1
            if not running.waiting and not running.threaded:
                running.scope.cancel()
        if not running.addresses:
            raise DnsError(f"The name {host} could not be resolved to an address.")
        if port == running.port:
            return running.addresses
        return [_with_port(address, port) for address in running.addresses]

    def statistics(self) -> ResolverStatistics:
        """Return the current numbers."""
        return ResolverStatistics(
            threads=self._limiter.borrowed_tokens,
            waiting=sum(r.waiting for each in self._running.values() for r in each),
            hosts=len(self._running),
        )

    def _join_or_begin(self, host: str, port: int) -> _RunningLookup:
        own = self._running.get(host, [])
        now = trio.current_time()
        joinable = [r for r in own if not r.scope.cancel_called]
        if joinable and (len(own) >= MAX_PER_HOST or now - joinable[-1].began < PROMPT_SECONDS):
            return joinable[-1]
        running = _RunningLookup(port, now)
        self._running.setdefault(host, []).append(running)
        self._nursery.start_soon(self._run, host, running)
        return running

    async def _run(self, host: str, running: _RunningLookup) -> None:
        prompt = host in self._prompt
        self._prompt.pop(host, None)
        try:
            async with AsyncExitStack() as slots:
                with running.scope:
                    if not prompt:
                        await slots.enter_async_context(self._doubtful)
                    await slots.enter_async_context(self._limiter)
                    running.threaded = True
                if running.threaded:
                    await self._look_up(host, running)
        finally:
            running.done.set()
            own = self._running[host]
            own.remove(running)
            if not own:
                del self._running[host]

    async def _look_up(self, host: str, running: _RunningLookup) -> None:
        began = trio.current_time()
        try:
            running.addresses = await trio.to_thread.run_sync(
                self._lookup,
                host,
                running.port,
                abandon_on_cancel=True,  # only the end of the sender cancels it
                limiter=trio.CapacityLimiter(1),  # `_limiter` was acquired already
            )
        except (OSError, UnicodeError):
            running.addresses = None
        if trio.current_time() - began < PROMPT_SECONDS:
            self._prompt[host] = None
            if len(self._prompt) > MAX_PROMPT_NAMES:
                del self._prompt[next(iter(self._prompt))]


def _with_port(address: Address, port: int) -> Address:
    """Return an address with another port than that of the look-up."""
    family, (host, _, *rest) = address
    return family, (host, port, *rest)  # type: ignore[return-value]


STAGGER_SECONDS: Final = 0.25  # RFC 8305 5: the recommended Connection Attempt Delay
MAX_ADDRESSES: Final = 64  # of a name: each silent one keeps a descriptor until the deadline

_REASONS: Final = {
    errno.ECONNREFUSED: "refused the connection",
    errno.ECONNRESET: "reset the connection",
    errno.EHOSTUNREACH: "cannot be reached",
    errno.ENETUNREACH: "is on a network that cannot be reached",
    errno.ETIMEDOUT: "did not take the connection in time",
    errno.EMFILE: "was not contacted, because this process has too many open files",
    errno.ENFILE: "was not contacted, because this machine has too many open files",
}


def system_trust() -> ssl.SSLContext:
    """Return a TLS context that verifies certificate and host name by the system's trust store.

    It takes tens of milliseconds, so a process creates one. `SSL_CERT_FILE` adds to the trust store
    (B-129): Python would read it instead of the system's file, which is therefore loaded as well.
    """
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    own_file = Path(paths.openssl_cafile)
    if own_file.is_file() and not (paths.cafile and own_file.samefile(paths.cafile)):
        context.load_verify_locations(own_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


class Dialler:
    """Opens connections; the caller limits how many.

    Args:
        resolver: resolves names; an address in a URL needs no look-up.
        context: the TLS context that verifies receivers; None: `system_trust()`, created for the
            first receiver that needs it, so that a service without one starts sooner.
        policy: the addresses that may be connected to.
        proxy: the proxy for connections to receivers; None: connect directly.
        certificates: client certificates by name.
        fast_path: as in `start_tls`.
    """

    def __init__(
        self,
        resolver: Resolver,
        context: ssl.SSLContext | None = None,
        policy: OutgoingPolicy = ALLOW_ALL,
        proxy: EgressProxy | None = None,
        certificates: Mapping[str, ClientCertificate] | None = None,
        *,
        fast_path: bool = True,
    ) -> None:
        self._policy, self._fast_path = policy, fast_path
        self._client_contexts = ClientContexts(certificates or {}, system_trust)
        self._proxy = proxy
        self.sessions = SessionCache()
        self._resolver = resolver
        self._context = context
        self._handshaking = trio.Lock()

    async def dial(self, origin: Origin, progress: Progress, *, fresh: bool = False) -> Connection:
        """Return a new connection to `origin`, after the TLS handshake; `progress` is updated.

        Addresses that the policy refuses are not dialled. A cancellation leaves no socket open.

        Args:
            origin: the receiver.
            progress: gets the steps, their durations, and the address.
            fresh: do a full TLS handshake, without resuming a session.

        Raises: DnsError, ForbiddenAddress, ConnectError, TlsError.
        """
        times = progress.times
        times.dns = times.connect = times.tls = 0.0
        began = progress.enter(ExchangeStep.LOOK_UP)
        if self._proxy is not None and self._proxy.carries(origin.host):
            sock = await self._connect_through(self._proxy, origin, progress)
        else:
            sock = await self._connect_directly(origin, progress)
        connected = progress.enter(ExchangeStep.HANDSHAKE)
        times.connect = (connected - began) * MS_PER_SECOND - times.dns
        if origin.scheme == "http":
            return PlainConnection(origin, sock, progress.address)
        try:
            context = self._context_of(origin)
        except TlsError:
            sock.close()
            raise
        connection = await start_tls(
            origin, sock, context, self.sessions, self._handshaking,
            address=progress.address, fresh=fresh, fast_path=self._fast_path,
        )  # fmt: skip
        times.tls = (progress.now() - connected) * MS_PER_SECOND
        return connection

    def _context_of(self, origin: Origin) -> ssl.SSLContext:
        if origin.certificate:
            return self._client_contexts.of(origin.certificate)
        if self._context is None:
            self._context = system_trust()
        return self._context

    async def _connect_directly(self, origin: Origin, progress: Progress) -> socket.socket:
        """Return a connection to one of the receiver's own addresses."""
        began = progress.now()
        addresses = await self._addresses(origin)
        progress.times.dns = (progress.enter(ExchangeStep.CONNECT) - began) * MS_PER_SECOND
        allowed = self._allowed(origin, addresses)
        progress.address = shown_address(allowed[0][1])  # unless another one takes the connection
        sock = await _connect(origin, allowed)
        with suppress(OSError):  # it broke at once; the exchange fails then
            progress.address = shown_address(sock.getpeername())
            self._refuse_own_machine(origin, sock)
        return sock

    async def _connect_through(
        self, proxy: EgressProxy, origin: Origin, progress: Progress
    ) -> socket.socket:
        """Return a connection to the receiver through the proxy."""
        proxy_origin = Origin("http", proxy.host, proxy.port)
        if is_address(origin.host):
            self._allowed(origin, await self._addresses(origin))
        try:
            began = progress.now()
            addresses = await self._addresses(proxy_origin)
            progress.times.dns = (progress.enter(ExchangeStep.CONNECT) - began) * MS_PER_SECOND
            progress.address = shown_address(addresses[0][1])
            sock = await _connect(proxy_origin, addresses)
        except (DnsError, ConnectError) as error:
            raise type(error)(f"The proxy: {error.sentence}") from None
        progress.enter(ExchangeStep.TUNNEL)
        try:
            await open_tunnel(PlainConnection(origin, sock, progress.address), origin, proxy)
        except BaseException:
            sock.close()
            raise
        return sock

    def _allowed(self, origin: Origin, addresses: Sequence[Address]) -> Sequence[Address]:
        """Return the addresses that may be dialled, at least one.

        Raises: ForbiddenAddress; ConnectError if the site allows private addresses.
        """
        refusals = [(address, self._policy.refusal(address[1][0])) for address in addresses]
        allowed = [address for address, refusal in refusals if refusal is None]
        if not allowed:
            kind = ForbiddenAddress if self._policy.denies_private else ConnectError
            raise kind(f"{origin.host} {refusals[0][1]}.")
        return allowed

    def _refuse_own_machine(self, origin: Origin, sock: socket.socket) -> None:
        """Close a connection to this machine, unless the policy allows it.

        The machine's public addresses reach its own listeners without passing any firewall.

        Raises: ForbiddenAddress.
        """
        own, (peer, port, *_) = sock.getsockname()[0], sock.getpeername()
        is_own = own == peer or leads_to_loopback(peer)
        if is_own and self._policy.refuses_own_machine(peer, port):
            sock.close()
            raise ForbiddenAddress(
                f"{origin.host} is this machine, and ops.outgoing.private is deny."
            )

    async def _addresses(self, origin: Origin) -> Sequence[Address]:
        if not is_address(origin.host):
            return _interleaved(await self._resolver.resolve(origin.host, origin.port))
        if ":" in origin.host:
            return [(socket.AF_INET6, (origin.host, origin.port, 0, 0))]
        return [(socket.AF_INET, (origin.host, origin.port))]


def shown_address(name: tuple[Any, ...]) -> str:
    """Return an address and its port as in a URL."""
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _interleaved(addresses: Sequence[Address]) -> list[Address]:
    """Alternate between the address families, the resolver's first choice first (RFC 8305 4)."""
    first = [address for address in addresses if address[0] == addresses[0][0]]
    others = [address for address in addresses if address[0] != addresses[0][0]]
    pairs = chain.from_iterable(zip_longest(first, others))
    return [address for address in pairs if address is not None]


async def _connect(origin: Origin, addresses: Sequence[Address]) -> socket.socket:
    """Return the first connection that one of the first `MAX_ADDRESSES` addresses accepts.

    Raises: ConnectError.
    """
    addresses = addresses[:MAX_ADDRESSES]
    if len(addresses) == 1:
        connected: list[socket.socket] = []
        failures = [await _connect_to(addresses[0], connected)]
    else:
        connected, failures = await _race(addresses)
    if connected:
        return connected[0]
    # The first failure, which is mostly that of the resolver's first choice.
    reason = _REASONS.get(failures[0] or 0, "cannot be connected to")
    where = f"{origin.host} port {origin.port}"
    tried = f" (and {len(addresses) - 1} more)" if len(addresses) > 1 else ""
    raise ConnectError(f"{where}{tried} {reason}.")


async def _race(addresses: Sequence[Address]) -> tuple[list[socket.socket], list[int | None]]:
    """Try each address when the previous one has failed or is silent; the first connection wins.

    Returns: the connection alone, or no connection and the failures in the order of time.
    """
    connected: list[socket.socket] = []
    failures: list[int | None] = []
    stagger = _stagger(len(addresses))

    async def attempt(address: Address, failed: trio.Event) -> None:
        failure = await _connect_to(address, connected)
        if connected:
            nursery.cancel_scope.cancel()
            return
        failures.append(failure)
        failed.set()

    try:
        async with trio.open_nursery() as nursery:
            for address in addresses:
                failed = trio.Event()
                nursery.start_soon(attempt, address, failed)
                with trio.move_on_after(stagger):
                    await failed.wait()
    except BaseException:
        for sock in connected:
            sock.close()
        raise
    return connected, failures


def _stagger(count: int) -> float:
    """Return the seconds after which a silent address is not waited for alone.

    The last of `count` addresses is dialled in the first half of the time that remains, so that it
    can still accept and respond.
    """
    remaining = trio.current_effective_deadline() - trio.current_time()
    return max(0.0, min(STAGGER_SECONDS, remaining / 2 / count))


async def _connect_to(address: Address, connected: list[socket.socket]) -> int | None:
    """Connect to an address: append the socket to `connected`, or close it and return the errno."""
    family, name = address
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        return error.errno
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a request is one write
        failure = sock.connect_ex(name)
        if failure == errno.EINPROGRESS:
            await trio.lowlevel.wait_writable(sock)
            failure = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    except OSError as error:
        sock.close()
        return error.errno
    except BaseException:
        sock.close()
        raise
    if failure or connected:
        sock.close()
        return failure
    connected.append(sock)
    return None


MAX_HEAD_BYTES: Final = 16 * 1024  # bytes of the head of the proxy's response
_READ: Final = 4096  # bytes
_UNAUTHORIZED: Final = (401, 407)  # 407 by RFC 9110 15.5.8; tinyproxy sends 401


async def open_tunnel(connection: Connection, to: Origin, proxy: EgressProxy) -> None:
    """Have the proxy connect to `to`; `connection` is then a tunnel to it.

    Raises: ConnectError if the proxy refuses, or does not respond as an HTTP proxy.
    """
    client = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
    request = client.send(_request(to, proxy))
    assert request is not None
    sent = await connection.start(request)
    await connection.send(memoryview(request)[sent:])
    status = await _status(client, connection, proxy)
    if status in _UNAUTHORIZED:
        raise ConnectError(
            f"The proxy {proxy.host} does not accept the credentials of FW_OUTGOING_PROXY_AUTH."
        )
    if not 200 <= status < 300:
        raise ConnectError(
            f"The proxy {proxy.host} refused to connect to {to.host} port {to.port} ({status})."
        )


def _request(to: Origin, proxy: EgressProxy) -> h11.Request:
    host = f"[{to.host}]" if ":" in to.host else to.host
    authority = f"{host}:{to.port}".encode("ascii")
    headers: list[tuple[bytes, bytes]] = [(b"host", authority)]
    if proxy.credentials is not None:
        token = base64.b64encode(proxy.credentials.encode())  # RFC 7617 2.1
        headers.append((b"proxy-authorization", b"Basic " + token))
    return h11.Request(method="CONNECT", target=authority, headers=headers)


async def _status(client: h11.Connection, connection: Connection, proxy: EgressProxy) -> int:
    """Return the status of the proxy's final response. Raises: ConnectError."""
    fault = ConnectError(f"The proxy {proxy.host} did not answer as an HTTP proxy.")
    try:
        while True:
            event = client.next_event()
            if isinstance(event, h11.Response):
                if event.status_code < 300 and _trailing(client):
                    raise fault  # a receiver sends nothing before it gets a request
                return event.status_code
            if event is h11.NEED_DATA:
                data = await connection.receive(_READ)
                if not data:
                    raise fault
                client.receive_data(data)
            elif not isinstance(event, h11.InformationalResponse):
                raise fault
    except (h11.RemoteProtocolError, BrokenConnection):
        raise fault from None


def _trailing(client: h11.Connection) -> Sequence[int]:
    return client.trailing_data[0]
