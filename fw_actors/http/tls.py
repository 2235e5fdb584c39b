"""Connections over TLS, sessions that later handshakes resume, and client certificates.

trio's own TLS stream takes a lock and passes the scheduler at each send and each receive, so that
any number of tasks can share it. `TlsConnection` may be used by two tasks, one that sends and one
that receives, and waits only for the socket. `StreamConnection` is the same over trio's own stream;
tests run with both.

The environment names the files of client certificates. The next new connection uses a renewed file,
without a restart (B-370 to B-373).

The module has more than 500 lines because both kinds of connections share contexts, sessions and
certificates.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import trio

from fw_actors.config import ClientCertificate
from fw_actors.http.exchange import BrokenConnection, PlainConnection
from fw_actors.http.response import TlsError
from fw_actors.http.url import Origin
from fw_actors.runtime.clock import MS_PER_SECOND

Stamp = tuple[int, int, int, int]


class UnusableCertificateError(ValueError):
    """Raised for files that are not a certificate with its key; the message is a sentence."""


class ClientContexts:
    """The TLS contexts of the client certificates, each created for its first connection."""

    def __init__(
        self, certificates: Mapping[str, ClientCertificate], trust: Callable[[], ssl.SSLContext]
    ) -> None:
        """`certificates` are by name; `trust` creates a context that verifies receivers."""
        self._certificates, self._trust = certificates, trust
        self._made: dict[str, tuple[Stamp, ssl.SSLContext]] = {}

    def of(self, name: str) -> ssl.SSLContext:
        """Return the context of a certificate; a new one if its files have changed.

        Raises: TlsError if there is no such certificate, or its files cannot be used.
        """
        certificate = self._certificates.get(name)
        if certificate is None:
            raise TlsError(f"The client certificate {name} is not in this process's environment.")
        try:
            stamp = _stamp(certificate)
            made = self._made.get(name)
            if made is None or made[0] != stamp:
                context = self._trust()
                load_certificate(context, certificate)
                made = self._made[name] = stamp, context
        except OSError as error:
            reason = error.strerror
            raise TlsError(f"The client certificate {name} cannot be read: {reason}.") from None
        except UnusableCertificateError as error:
            raise TlsError(str(error)) from None
        return made[1]


def load_certificate(context: ssl.SSLContext, certificate: ClientCertificate) -> None:
    """Load a certificate and its key into a context. Raises: UnusableCertificateError."""
    name = certificate.name
    try:
        context.load_cert_chain(certificate.chain, certificate.key, password=_no_password)
    except ssl.SSLError:
        reason = "the files must contain a certificate and its key in PEM, without a password"
    except OSError as error:
        reason = f"a file cannot be read ({error.strerror})"
    else:
        return
    sentence = f"The client certificate {name} cannot be used: {reason}."
    raise UnusableCertificateError(sentence)


def check_certificate(certificate: ClientCertificate) -> None:
    """Refuse files that a connection could not use. Raises: UnusableCertificateError."""
    load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate)


def _no_password() -> str:
    return ""  # OpenSSL would ask on the terminal


def _stamp(certificate: ClientCertificate) -> Stamp:
    chain, key = os.stat(certificate.chain), os.stat(certificate.key)
    return chain.st_mtime_ns, chain.st_ino, key.st_mtime_ns, key.st_ino


def end_of(certificate: ClientCertificate) -> int:
    """Return when a usable certificate ends, in ms since the epoch.

    Raises: UnusableCertificateError, OSError.
    """
    check_certificate(certificate)
    from cryptography import x509  # imported only for `fw doctor`

    own = x509.load_pem_x509_certificates(certificate.chain.read_bytes())[0]
    return round(own.not_valid_after_utc.timestamp() * MS_PER_SECOND)


MAX_SESSIONS: Final = 1024
VERIFIED_SECONDS: Final = 3600.0
"""The time for which connections may resume a session after its certificate was verified."""

# The send buffer of a new socket always has room for this much (Linux: 16 KiB).
_SURELY_BUFFERED: Final = 8 * 1024
_RECORD_HEADER: Final = 5  # bytes: type, version, length (RFC 8446 5.1)
_MAX_RECORD_BYTES: Final = _RECORD_HEADER + 16 * 1024 + 2048  # bytes (RFC 5246 6.2.3)
_READS_PER_RECORD: Final = 3  # of what is here, which may end within a record, and two receives
_CHUNK: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class VerifiedSession:
    """A session that a new connection to the same origin may resume with the same context.

    `verified_at` (trio's time) is when the origin's certificate was verified: at the last full
    handshake before this session, over any number of resumptions.
    """

    session: ssl.SSLSession
    context: ssl.SSLContext
    verified_at: float


@dataclass(slots=True)
class TlsStatistics:
    """The number of handshakes since the start, and of those among them that resumed a session."""

    handshakes: int = 0
    resumed: int = 0


class SessionCache:
    """The last session of each origin.

    A resumed handshake verifies no certificate: it was verified for the same host and port, with
    the same context, and at most an hour ago. A renewed client certificate has a new context. After
    any failure the next handshake is a full one. At most 1,024 origins are kept; beyond it, the
    least recently used is dropped.
    """

    def __init__(
        self,
        current_time: Callable[[], float] = trio.current_time,
        *,
        capacity: int = MAX_SESSIONS,
    ) -> None:
        self.statistics = TlsStatistics()
        self._now = current_time
        self._capacity = capacity
        self._sessions: OrderedDict[Origin, VerifiedSession] = OrderedDict()

    def get(self, origin: Origin, context: ssl.SSLContext) -> VerifiedSession | None:
        """Return the session to resume; None for a full handshake."""
        session = self._sessions.get(origin)
        if session is None:
            return None
        expired = self._now() - session.verified_at >= VERIFIED_SECONDS
        # OpenSSL refuses a session of another context.
        if expired or session.context is not context:
            self.drop(origin)
            return None
        self._sessions.move_to_end(origin)
        return session

    def begin(self, resumed: VerifiedSession | None, tls: ssl.SSLObject) -> float:
        """Count a finished handshake; return when its certificate was verified."""
        self.statistics.handshakes += 1
        if resumed is None or not tls.session_reused:
            return self._now()
        self.statistics.resumed += 1
        return resumed.verified_at

    def keep(self, origin: Origin, tls: ssl.SSLObject, verified_at: float) -> None:
        """Keep the session of a connection whose peer has sent something."""
        session = tls.session
        if session is None or not session.has_ticket:
            return
        self._sessions[origin] = VerifiedSession(session, tls.context, verified_at)
        self._sessions.move_to_end(origin)
        if len(self._sessions) > self._capacity:
            self._sessions.popitem(last=False)

    def drop(self, origin: Origin) -> None:
        """Forget the session: the next connection does a full handshake."""
        self._sessions.pop(origin, None)


class TlsConnection:
    """A TLS connection on a socket of its own; made by `start_tls`.

    OpenSSL reads and writes buffers in memory, so that a receiver cannot keep it busy: it would
    read session tickets from a socket as long as they arrive. What it has not read after a response
    makes the connection unusable.
    """

    __slots__ = (
        "_incoming",
        "_outgoing",
        "_poll",
        "_resumed",
        "_sending",
        "_session_kept",
        "_sessions",
        "_socket",
        "_surplus",
        "_tls",
        "_verified_at",
        "address",
        "broken",
        "idle_since",
        "origin",
    )

    def __init__(
        self,
        origin: Origin,
        sock: socket.socket,
        context: ssl.SSLContext,
        sessions: SessionCache,
        address: str = "",
        *,
        resumed: VerifiedSession | None = None,
    ) -> None:
        self.origin = origin
        self.address = address
        self.idle_since = 0.0
        self.broken = False
        self._socket = sock
        self._poll = select.poll()  # created once, used before each exchange
        self._poll.register(sock, select.POLLIN)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_hostname=origin.host,
            session=None if resumed is None else resumed.session,
        )
        self._resumed = resumed
        self._sending = False
        self._surplus = False  # OpenSSL has a part of a record that followed a response
        self._sessions = sessions
        self._session_kept = False
        self._verified_at = 0.0

    async def do_handshake(self, handshaking: trio.Lock) -> None:
        """Do the handshake; each of its computations holds the lock `handshaking`.

        Raises: OSError, of which ssl.SSLError is a subclass.
        """
        while True:
            try:
                async with handshaking:  # a checkpoint: all other tasks run in between
                    self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._take_in()
            else:
                await self._flush()
                self._verified_at = self._sessions.begin(self._resumed, self._tls)
                return

    async def start(self, data: bytes) -> int:
        if len(data) > _SURELY_BUFFERED:
            return 0
        await self.send(data)
        return len(data)

    async def send(self, data: bytes | memoryview) -> None:
        self._sending = True
        try:
            while data and not self.broken:
                self._tls.write(data[:_CHUNK])
                data = data[_CHUNK:]
                await self._flush()
        except (OSError, trio.ClosedResourceError):
            self.broken = True
            self._sessions.drop(self.origin)
        finally:
            self._sending = False

    async def receive(self, limit: int) -> bytes:
        try:
            data = await self._receive(limit)
        except (ssl.SSLEOFError, ssl.SSLSyscallError):
            data = b""  # no close_notify: the length of a response shows where it ends
        except (OSError, trio.ClosedResourceError) as error:
            self._sessions.drop(self.origin)
            raise BrokenConnection(tls=isinstance(error, ssl.SSLError)) from None
        if not self._session_kept:  # its ticket arrives before the first response
            self._keep_session(responded=bool(data))
        return data

    async def _receive(self, limit: int) -> bytes:
        while True:
            if not self._has_unread():
                await self._take_in()
            try:
                return self._tls.read(limit)
            except ssl.SSLWantReadError:
                if not self._sending:  # else the sending task flushes OpenSSL's own records
                    await self._flush()

    def _keep_session(self, *, responded: bool) -> None:
        if responded:
            self._session_kept = True
            self._sessions.keep(self.origin, self._tls, self._verified_at)
        else:  # it ended without a response
            self._sessions.drop(self.origin)

    async def receive_ready(self, limit: int) -> bytes:
        if not self._has_unread() and not self._poll.poll(0):
            return b""
        try:
            for _ in range(_READS_PER_RECORD):
                if not self._has_unread():
                    self._take_in_nowait()
                with suppress(ssl.SSLWantReadError):
                    return self._tls.read(limit)
        except OSError:  # the end, a failure, or closed
            pass
        self._surplus = True
        return b""

    def is_reusable(self) -> bool:
        # A late session ticket counts as a byte: that connection is closed although it is usable.
        if self.broken or self._surplus or self._socket.fileno() < 0:
            return False
        return not self._has_unread() and not self._poll.poll(0)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()  # no close_notify: a complete response needs none, it could block

    def _has_unread(self) -> bool:
        return bool(self._tls.pending() or self._incoming.pending)

    async def _flush(self) -> None:
        """Send the records that OpenSSL has written. Raises: OSError, ClosedResourceError."""
        while data := self._outgoing.read():
            while (sent := self._send_nowait(data)) < len(data):
                data = data[sent:]
                await trio.lowlevel.wait_writable(self._socket)

    def _send_nowait(self, data: bytes) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    async def _take_in(self) -> None:
        """Wait for bytes or the end of the stream. Raises: OSError, ClosedResourceError."""
        if self._socket.fileno() < 0:
            raise trio.ClosedResourceError
        await trio.lowlevel.wait_readable(self._socket)
        self._take_in_nowait()

    def _take_in_nowait(self) -> None:
        try:
            data = self._socket.recv(_MAX_RECORD_BYTES)
        except BlockingIOError:
            return
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()


class StreamConnection:
    """A TLS connection over trio's own stream, which keeps no session: the plain version."""

    def __init__(self, origin: Origin, stream: trio.SSLStream[RecordStream], address: str) -> None:
        self.origin = origin
        self.address = address
        self.idle_since = 0.0
        self.broken = False
        self._stream = stream
        self._records = stream.transport_stream

    async def start(self, data: bytes) -> int:
        return 0

    async def send(self, data: memoryview) -> None:
        try:
            await self._stream.send_all(data)
        except trio.BrokenResourceError:
            self.broken = True

    async def receive(self, limit: int) -> bytes:
        try:
            return bytes(await self._stream.receive_some(limit))
        except trio.BrokenResourceError as error:
            raise BrokenConnection(tls=isinstance(error.__cause__, ssl.SSLError)) from None

    async def receive_ready(self, limit: int) -> bytes:
        return await _receive_ready(self, self._records, limit)

    def is_reusable(self) -> bool:
        return not self.broken and not self._stream.pending() and self._records.is_reusable()

    def close(self) -> None:
        self._records.close()


async def _receive_ready(connection: StreamConnection, records: RecordStream, limit: int) -> bytes:
    """Read without waiting: only reading a record shows whether it has bytes of a response."""
    records.waits = False
    try:
        return await connection.receive(limit)
    except (NothingReady, BrokenConnection):
        return b""
    finally:
        records.waits = True


class NothingReady(Exception):
    """Raised by a `RecordStream` that must not wait and has no bytes."""


class RecordStream(trio.abc.Stream):
    """The stream below TLS; it returns one TLS record at a time.

    OpenSSL accepts all bytes that it is given, and does not show whether some are left. A record
    that follows a response would stay there, and be read as the response to the next POST.

    `waits`: whether a receive waits for the peer; otherwise it raises NothingReady.
    """

    def __init__(self, raw: PlainConnection) -> None:
        self._raw = raw
        self.waits = True
        self._ahead = b""  # received, but not returned yet
        self._left = 0  # bytes of the current record that were not returned; 0 between records

    def is_reusable(self) -> bool:
        """Return whether no bytes are left here or in the socket."""
        return not self._ahead and self._raw.is_reusable()

    def close(self) -> None:
        """Close at once, synchronously."""
        self._raw.close()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        needed = 1 if self._left else _RECORD_HEADER
        while len(self._ahead) < needed:
            data = await self._receive()
            if not data:
                needed = self._left = len(self._ahead)  # the end; TLS decides what it means
                break
            self._ahead += data
        if not self._left and needed:
            self._left = _RECORD_HEADER + int.from_bytes(self._ahead[3:_RECORD_HEADER], "big")
        size = min(self._left, _CHUNK if max_bytes is None else max_bytes)
        record, self._ahead = self._ahead[:size], self._ahead[size:]
        self._left -= len(record)
        return record

    async def _receive(self) -> bytes:
        if not self.waits:
            data = self._raw.receive_nowait(_CHUNK)
            if not data:
                raise NothingReady
            return data
        try:
            return await self._raw.receive(_CHUNK)
        except BrokenConnection:
            raise trio.BrokenResourceError from None

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._raw.send(memoryview(data)[await self._raw.start(data) :])
        if self._raw.broken:
            raise trio.BrokenResourceError

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()


async def start_tls(
    origin: Origin,
    sock: socket.socket,
    context: ssl.SSLContext,
    sessions: SessionCache,
    handshaking: trio.Lock,
    *,
    address: str = "",
    fresh: bool = False,
    fast_path: bool = True,
) -> TlsConnection | StreamConnection:
    """Do the handshake on a connected socket; return the connection.

    The socket is closed if the handshake fails or is cancelled.

    Args:
        origin: the receiver, whose host the certificate must have.
        sock: the socket, connected to the receiver or tunnelled to it.
        context: verifies the receiver.
        sessions: the sessions of earlier connections.
        handshaking: one lock for the process: a step of a handshake computes for up to half a
            millisecond, and a hundred at once would delay all exchanges by fifty.
        address: the peer's address, for people to read.
        fresh: do a full handshake, even if a session is known.
        fast_path: False in the tests that also run over trio's own stream.

    Raises: TlsError.
    """
    resumable = None if fresh else sessions.get(origin, context)
    try:
        if not fast_path:
            return await _by_stream(origin, sock, context, address)
        connection = TlsConnection(origin, sock, context, sessions, address, resumed=resumable)
        await connection.do_handshake(handshaking)
    except (OSError, trio.BrokenResourceError) as error:  # an SSLError is an OSError
        sessions.drop(origin)
        sock.close()
        cause = error.__cause__  # the reason why trio's stream broke
        raise TlsError(
            _sentence(origin, cause if isinstance(cause, ssl.SSLError) else error)
        ) from None
    except BaseException:
        sock.close()
        raise
    return connection


async def _by_stream(
    origin: Origin, sock: socket.socket, context: ssl.SSLContext, address: str
) -> StreamConnection:
    records = RecordStream(PlainConnection(origin, sock))
    stream = trio.SSLStream(records, context, server_hostname=origin.host, https_compatible=True)
    await stream.do_handshake()
    return StreamConnection(origin, stream, address)


def _sentence(origin: Origin, cause: Exception) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        reason = cause.verify_message.strip().rstrip(".")
        return f"The certificate of {origin.host} cannot be trusted: {reason}."
    if isinstance(cause, ssl.SSLError) and cause.reason:
        reason = cause.reason.replace("_", " ").lower()
        return f"TLS with {origin.host} failed: {reason}."
    return f"The connection to {origin.host} broke during the TLS handshake."
