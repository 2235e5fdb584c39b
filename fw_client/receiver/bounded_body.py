"""Reading a request's body up to a limit."""

from __future__ import annotations

from collections.abc import AsyncIterable


async def read_bounded(
    chunks: AsyncIterable[bytes], length: str | None, limit: int
) -> bytes | None:
    """Return a body, or None if it is larger than `limit`; reading stops at the limit.

    Args:
        length: the header `content-length`.
    """
    if length is not None and length.isdigit() and int(length) > limit:
        return None
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)
