"""The work of a round: so many events of one size, signed with one secret."""

from __future__ import annotations

from typing import Final

EVENT: Final = "bench.happened"
BODY_BYTES: Final = 600
SLOTS: Final = 64
"""Requests in flight at once, on either side."""
SECRET: Final = "whsec_YSBzZWNyZXQgb2YgdGhlIGJlbmNobWFya3MsIDMyIGI="

# What the service puts around an event's data; the time always has the same length.
_AROUND: Final = (
    f'{{"type":"{EVENT}","timestamp":"2026-01-02T03:04:05.678Z","data":{{"filler":""}}}}'
)


def data() -> dict[str, str]:
    """Return the data of an event whose body has `BODY_BYTES` bytes."""
    return {"filler": "x" * (BODY_BYTES - len(_AROUND))}


def body() -> bytes:
    """Return a body as the service makes it."""
    return _AROUND.replace('""', f'"{data()["filler"]}"').encode()
