"""Values on their way to PostgreSQL and back: int, float, str, bytes and None, as on SQLite."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from psycopg import postgres
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Dumper, Loader
from psycopg.types.none import NoneDumper
from psycopg.types.numeric import FloatDumper, FloatLoader, Int8Dumper, IntLoader
from psycopg.types.string import (
    ByteaLoader,
    BytesBinaryDumper,
    StrDumper,
    StrDumperUnknown,
    TextLoader,
)

_OID: Final = {info.name: info.oid for info in postgres.types}
_ANY_OTHER: Final = 0
"""What has no loader of its own comes as the text that PostgreSQL shows."""


class _TruthDumper(Dumper):
    """True and False are 1 and 0: no column of ours is boolean."""

    oid = _OID["int8"]

    def dump(self, obj: bool) -> bytes:
        return b"1" if obj else b"0"


class _TruthLoader(Loader):
    def load(self, data: Buffer) -> int:
        return int(bytes(data) == b"t")


class _NumericLoader(Loader):
    """Sums of whole numbers are `numeric` here: whole where they can be."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        return int(text) if text.lstrip(b"-").isdigit() else float(text)


def adapters() -> AdaptersMap:
    """Return how one connection converts values; what is not in it can't be sent.

    Whole numbers are always sent as int8, or each size would be a statement of its own to
    prepare. Text is sent without a type, so that PostgreSQL takes it for what stands beside it.
    """
    found = AdaptersMap(types=postgres.types)
    send: Any = found.register_dumper
    for kind, dumper in (
        (str, StrDumper), (str, StrDumperUnknown), (bytes, BytesBinaryDumper), (int, Int8Dumper),
        (bool, _TruthDumper), (float, FloatDumper), (type(None), NoneDumper),
    ):  # fmt: skip
        send(kind, dumper)
    receive = partial(_receive, found)
    receive(TextLoader, _ANY_OTHER)
    receive(IntLoader, *(_OID[name] for name in ("int2", "int4", "int8", "oid")))
    receive(FloatLoader, *(_OID[name] for name in ("float4", "float8")))
    receive(_NumericLoader, _OID["numeric"])
    receive(_TruthLoader, _OID["bool"])
    receive(ByteaLoader, _OID["bytea"])
    return found


def _receive(found: AdaptersMap, loader: type[Loader], *oids: int) -> None:
    for oid in oids:
        found.register_loader(oid, loader)
