"""Lines over time as a PNG, each series in a strip of its own; written with zlib alone."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Final

WIDTH: Final = 640
STRIP: Final = 80
_MARGIN: Final = 6
_GROUND, _LINE, _FRAME = 255, 40, 210


def png_of(series: Mapping[str, Sequence[float]]) -> bytes:
    """Return a grey picture: a strip for each series, from 0 to its largest value, in order."""
    rows: list[bytearray] = []
    for values in series.values():
        rows += _strip(values)
    raw = b"".join(b"\x00" + bytes(row) for row in rows)
    head = struct.pack(">IIBBBBB", WIDTH, len(rows), 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(kind, data)
        for kind, data in ((b"IHDR", head), (b"IDAT", zlib.compress(raw)), (b"IEND", b""))
    )


def _strip(values: Sequence[float]) -> list[bytearray]:
    rows = [bytearray([_GROUND]) * WIDTH for _ in range(STRIP)]
    rows[-1] = bytearray([_FRAME]) * WIDTH
    maximum = max(values, default=0.0) or 1.0
    before: int | None = None
    for x in range(WIDTH if values else 0):
        value = values[x * len(values) // WIDTH]
        y = STRIP - 1 - _MARGIN - round(value / maximum * (STRIP - 1 - 2 * _MARGIN))
        low, high = sorted((y, y if before is None else before))
        for each in range(low, high + 1):
            rows[each][x] = _LINE
        before = y
    return rows


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
