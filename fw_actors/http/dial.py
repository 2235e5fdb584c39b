"""A new connection: all addresses of a name tried, and TLS where the origin asks for it."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Final

import trio

from fw_actors.http.connection import Connection, PlainConnection
from fw_actors.http.dns import Address, Resolver
from fw_actors.http.errors import ConnectError
from fw_actors.http.link_local import is_link_local
from fw_actors.http.progress import Progress, Step
from fw_actors.http.target import Origin, is_address
from fw_actors.http.tls import secure

STAGGER_SECONDS: Final = 0.25  # RFC 8305 5: the recommended Connection Attempt Delay

_REASONS: Final = {
    errno.ECONNREFUSED: "refused the connection",
    errno.ECONNRESET: "reset the connection",
    errno.EHOSTUNREACH: "can't be reached",
    errno.ENETUNREACH: "is on a network that can't be reached",
    errno.ETIMEDOUT: "did not take the connection in time",
    errno.EMFILE: "was not dialled, because this process has too many open files",
    errno.ENFILE: "was not dialled, because this machine has too many open files",
}


def system_trust() -> ssl.SSLContext:
    """Make the one TLS context of a process, which takes tens of milliseconds.

    It verifies certificate and host name against the system's trust store. Python reads
    `SSL_CERT_FILE` in its place; the interface says that the file adds to it (§7), so that the
    system's own file is loaded as well.
    """
    context = ssl.create_default_context()
    own_file = ssl.get_default_verify_paths().openssl_cafile
    if Path(own_file).is_file():
        context.load_verify_locations(own_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


class Dialler:
    """Makes connections; how many is up to who asks.

    Args:
        resolver: for names; an address is dialled as it stands.
        context: how TLS verifies a receiver.
    """

    def __init__(self, resolver: Resolver, context: ssl.SSLContext) -> None:
        self._resolver = resolver
        self._context = context

    async def dial(self, origin: Origin, progress: Progress) -> Connection:
        """Return a new connection to `origin`, its TLS handshake done; `progress` is kept.

        Link-local addresses are left out, whether they were looked up or are the URL's own.

        Cancelled at any instant, it leaves no socket open.

        Raises: DnsError, ConnectError, TlsError.
        """
        times = progress.times
        times.dns = times.connect = times.tls = 0.0
        began = progress.enter(Step.LOOK_UP)
        addresses = await self._addresses(origin)
        resolved = progress.enter(Step.CONNECT)
        times.dns = (resolved - began) * 1000
        sock = await _connect(origin, _allowed(origin, addresses))
        connected = progress.enter(Step.HANDSHAKE)
        times.connect = (connected - resolved) * 1000
        if origin.scheme == "http":
            return PlainConnection(origin, sock)
        connection = await secure(origin, sock, self._context)
        times.tls = (progress.now() - connected) * 1000
        return connection

    async def _addresses(self, origin: Origin) -> Sequence[Address]:
        if not is_address(origin.host):
            return _interleaved(await self._resolver.resolve(origin.host, origin.port))
        if ":" in origin.host:
            return [(socket.AF_INET6, (origin.host, origin.port, 0, 0))]
        return [(socket.AF_INET, (origin.host, origin.port))]


def _allowed(origin: Origin, addresses: Sequence[Address]) -> Sequence[Address]:
    """The addresses that may be dialled, at least one. Raises: ConnectError."""
    allowed = [address for address in addresses if not is_link_local(address[1][0])]
    if not allowed:
        raise ConnectError(f"{origin.host} is a link-local address, which is never connected to.")
    return allowed


def _interleaved(addresses: Sequence[Address]) -> list[Address]:
    """The families in turn, beginning with the resolver's first choice (RFC 8305 4)."""
    first = [address for address in addresses if address[0] == addresses[0][0]]
    others = [address for address in addresses if address[0] != addresses[0][0]]
    pairs = chain.from_iterable(zip_longest(first, others))
    return [address for address in pairs if address is not None]


async def _connect(origin: Origin, addresses: Sequence[Address]) -> socket.socket:
    """The first connection that one of the addresses takes; a new one is tried each 250 ms."""
    if len(addresses) == 1:
        connected: list[socket.socket] = []
        failures = [await _try(addresses[0], connected)]
    else:
        connected, failures = await _race(addresses)
    if connected:
        return connected[0]
    # The first is the resolver's first choice, and so the one that an administrator knows.
    reason = _REASONS.get(failures[0] or 0, "can't be connected to")
    where = f"{origin.host} port {origin.port}"
    tried = f" (and {len(addresses) - 1} more)" if len(addresses) > 1 else ""
    raise ConnectError(f"{where}{tried} {reason}.")


async def _race(addresses: Sequence[Address]) -> tuple[list[socket.socket], list[int | None]]:
    """Try each address as soon as the one before failed or took 250 ms; the first to connect wins.

    Returns: the winner alone, or nothing with the failures in the order in which they came.
    """
    connected: list[socket.socket] = []
    failures: list[int | None] = []

    async def attempt(address: Address, failed: trio.Event) -> None:
        failure = await _try(address, connected)
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
                with trio.move_on_after(STAGGER_SECONDS):
                    await failed.wait()
    except BaseException:
        for sock in connected:
            sock.close()
        raise
    return connected, failures


async def _try(address: Address, connected: list[socket.socket]) -> int | None:
    """Connect to one address; put the socket into `connected`, or close it and return the errno."""
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
