"""Connections between the site's sender and its receivers, in memory and in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import trio

from fw_actors.http import ConnectError, Origin
from fw_actors.http.exchange import BrokenConnection, Connection, ExchangeStep, Progress
from fw_actors.http.tls import SessionCache
from tests.simulation.incarnation import Incarnation


class SimulatedWire:
    """Both ends of one connection. The sender's is a `Connection`; the receiver's says so."""

    def __init__(self, origin: Origin, incarnation: Incarnation) -> None:
        self.origin = origin
        self.address = f"{origin.host}:{origin.port}"
        self.idle_since = 0.0
        self.broken = False
        self._incarnation = incarnation
        self._to_receiver, self._to_sender = bytearray(), bytearray()
        self._ended = self._reset = self._hung_up = False
        self._changed = trio.Event()

    # The sender's end.

    async def start(self, data: bytes) -> int:
        """See `Connection.start`. A dead process sends nothing."""
        if not self._incarnation.dead:
            self._to_receiver += data
            self._note()
        return len(data)

    async def send(self, data: memoryview) -> None:
        """See `Connection.send`; `start` takes everything."""
        await self.start(bytes(data))

    async def receive(self, limit: int) -> bytes:
        """See `Connection.receive`."""
        while True:
            await self._incarnation.step()
            if self._reset or self._hung_up:
                raise BrokenConnection
            if self._to_sender or self._ended:
                return await self.receive_ready(limit)
            await self._changed.wait()

    async def receive_ready(self, limit: int) -> bytes:
        """See `Connection.receive_ready`."""
        data = bytes(self._to_sender[:limit])
        del self._to_sender[:limit]
        return data

    def is_reusable(self) -> bool:
        """See `Connection.is_reusable`."""
        return not (self._to_sender or self._ended or self._reset or self._hung_up)

    def close(self) -> None:
        """See `Connection.close`."""
        self._hung_up = True
        self._note()

    # The receiver's end.

    async def read(self) -> bytes:
        """Wait for bytes of the sender; empty when it has closed the connection."""
        while not self._to_receiver and not self._hung_up:
            await self._changed.wait()
        data = bytes(self._to_receiver)
        self._to_receiver.clear()
        return data

    def write(self, data: bytes) -> None:
        """Send bytes to the sender."""
        self._to_sender += data
        self._note()

    def end(self, *, reset: bool = False) -> None:
        """Close the connection; `reset` breaks it."""
        self._ended, self._reset = True, reset
        self._note()

    async def deserted_at_last(self) -> None:
        """Wait until the sender closes it."""
        while not self._hung_up:
            await self._changed.wait()

    @property
    def deserted(self) -> bool:
        """Whether the sender has closed it."""
        return self._hung_up

    def _note(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


class WireListener(Protocol):
    """A listener that accepts connections."""

    async def accept(self, wire: SimulatedWire) -> None:
        """Take the connection; take one's time, or raise ConnectError."""


class VirtualDialler:
    """Stands where `Dialler` does in a real sender."""

    def __init__(self, listeners: Mapping[Origin, WireListener], incarnation: Incarnation) -> None:
        self._listeners, self._incarnation = listeners, incarnation
        self.sessions = SessionCache()

    async def dial(self, origin: Origin, progress: Progress, *, fresh: bool = False) -> Connection:
        """See `Dialler.dial`."""
        progress.enter(ExchangeStep.CONNECT)
        await self._incarnation.step()
        listener = self._listeners.get(origin)
        if listener is None:
            raise ConnectError(f"{origin.host} port {origin.port} refused the connection.")
        wire = SimulatedWire(origin, self._incarnation)
        await listener.accept(wire)
        return wire
