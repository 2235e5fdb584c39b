"""One request and its answer on one connection; decides what the receiver's silence means."""

from __future__ import annotations

import trio

from fw_actors.http.connection import Broken, Connection, ExchangeStep, Progress
from fw_actors.http.errors import TlsError
from fw_actors.http.response import MAX_RESPONSE, ResponseReader


class StaleConnection(Exception):
    """Raised when a kept connection was dead: it ended before one byte of an answer."""


async def run_exchange(
    connection: Connection,
    request: bytes,
    reader: ResponseReader,
    progress: Progress,
    *,
    kept: bool,
) -> bool:
    """Send a request and read its answer into `reader`, as far as it is to be waited for.

    An answer that comes before the request is sent whole counts, and ends the sending.

    Args:
        connection: used by nobody else; of no use after an exception or a cancellation.
        kept: whether it answered before, and so may be stale.

    Returns: whether the connection may be used again.

    Raises:
        Stale: a kept connection broke or ended before one byte came.
        TlsError, ProtocolError: there was no answer.
    """
    progress.step = ExchangeStep.SEND
    sent = await connection.start(request)
    if sent == len(request):
        progress.step = ExchangeStep.ANSWER
        await _read(connection, reader, progress, kept)
        return reader.reusable and not connection.broken
    whole = await _read_while_sending(connection, request[sent:], reader, progress, kept)
    return whole and reader.reusable and not connection.broken


async def _read_while_sending(
    connection: Connection, rest: bytes, reader: ResponseReader, progress: Progress, kept: bool
) -> bool:
    """As `_read`, beside a task that sends; return whether everything was sent."""
    whole = False
    fault: Exception | None = None

    async def send() -> None:
        nonlocal whole
        await connection.send(memoryview(rest))
        if not connection.broken:
            whole = True
            progress.step = ExchangeStep.ANSWER

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        try:
            await _read(connection, reader, progress, kept)
        except Exception as error:  # raised below, without the nursery's group around it
            fault = error
        nursery.cancel_scope.cancel()
    if fault is not None:
        raise fault
    return whole


async def _read(
    connection: Connection, reader: ResponseReader, progress: Progress, kept: bool
) -> None:
    began = progress.now()
    satisfied = False
    while not satisfied:
        try:
            data = await connection.receive(reader.room)
        except Broken as broken:
            if kept and reader.room == MAX_RESPONSE:
                raise StaleConnection from None
            if broken.tls and reader.status is None:
                raise TlsError("TLS failed before the receiver answered.") from None
            reader.break_off()
            return
        if kept and not data and reader.room == MAX_RESPONSE:
            raise StaleConnection
        before = reader.status
        satisfied = reader.feed(data)
        if before is None and reader.status is not None:
            progress.times.answer = (progress.now() - began) * 1000
    while not reader.ended and (data := await connection.receive_ready(reader.room)):
        reader.feed(data)
