"""The terminal's end of the console's socket: asks in lines of JSON, on asyncio as Textual is."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from fw_cli.refusals import CommandFailed
from supervisors.service.console_socket import path_in, peer_user

LONGEST_ANSWER: Final = 8 * 1024 * 1024
NOT_RUNNING: Final = "the service does not run here, or is just starting; see fw status"


class ConsoleClient:
    """One connection; one question at a time."""

    def __init__(self, told: Path) -> None:
        self._told = told
        self._turn = asyncio.Lock()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, do: str, **arguments: object) -> Any:
        """Return the answer's object.

        Raises: CommandFailed when the service has gone, or refuses; the message says why.
        """
        async with self._turn:
            try:
                answer = await self._exchange({"do": do, **arguments})
            except (OSError, EOFError):
                await self.close()
                raise CommandFailed(NOT_RUNNING) from None
        if "error" in answer:
            raise CommandFailed(answer["error"]["message"])
        return answer

    async def close(self) -> None:
        """End the connection; the next question opens another."""
        writer, self._reader, self._writer = self._writer, None, None
        if writer is not None:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _exchange(self, question: dict[str, object]) -> Any:
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_unix_connection(
                path_in(self._told), limit=LONGEST_ANSWER
            )
            # Whose folder a killed service's was may be anybody's by now.
            if peer_user(self._writer.get_extra_info("socket")) != self._told.stat().st_uid:
                raise ConnectionRefusedError
        self._writer.write(msgspec.json.encode(question) + b"\n")
        await self._writer.drain()
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return msgspec.json.decode(line)
