"""The client of the console's socket: requests in lines of JSON, on asyncio for Textual."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from fw_cli.errors import CommandFailed
from supervisors.service.site_files import path_in, peer_user

MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
NOT_RUNNING: Final = (
    "the service is not running on this machine, or is still starting; see fw status"
)


class ConsoleClient:
    """A connection that carries one request at a time."""

    def __init__(self, address_file: Path) -> None:
        self._address_file = address_file
        self._turn = asyncio.Lock()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, do: str, **arguments: object) -> Any:
        """Return the object of the response.

        Raises: CommandFailed with the reason, if the service is gone or rejects the request.
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
        """Close the connection; the next request opens another."""
        writer, self._reader, self._writer = self._writer, None, None
        if writer is not None:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _exchange(self, question: dict[str, object]) -> Any:
        if self._reader is not None and self._reader.at_eof():
            await self.close()  # by the service, which may run again meanwhile
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_unix_connection(
                path_in(self._address_file), limit=MAX_ANSWER_BYTES
            )
            # Another user may have recreated the folder of a killed service.
            if peer_user(self._writer.get_extra_info("socket")) != self._address_file.stat().st_uid:
                raise ConnectionRefusedError
        self._writer.write(msgspec.json.encode(question) + b"\n")
        await self._writer.drain()
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return msgspec.json.decode(line)
