"""The subscriptions that the processes of one service have in common, in memory that they share.

A Webhook that is saved in one process applies to writes that start later in each of them (B-41).
The saving process puts what it has read in its own transaction into the memory before the save is
answered, and each process compares a few bytes there before it uses its cached copy. No process has
to be notified or waited for, and a frozen or killed process does not delay the others.

Each process writes only its own part: a stamp, the place of its newest snapshot, and two areas
that it writes in turn. The snapshot with the highest stamp is the current one. Stamps are taken in
transactions that exclude each other, so that they have the order of the commits.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from fw_actors.config import ProcessPlace

_WORD: Final = 8  # bytes
_STAMP_WORDS: Final = 64
"""The first words of the memory: the stamp of each process, 0 before its first snapshot."""
_PLACE_WORDS: Final = 3
"""Then for each process: offset, length and checksum of its newest snapshot."""
_HEADER: Final = (_STAMP_WORDS * (1 + _PLACE_WORDS)) * _WORD
_AREA: Final = 1 << 30
"""The largest snapshot in bytes; the file is sparse."""
_TRIES: Final = 1000


@dataclass(frozen=True, slots=True)
class Subscription:
    """The columns of an enabled Webhook that recording an event needs."""

    webhook: str
    max_attempts: int
    row_id: str | None  # distinguishes a renamed Webhook from a deleted one and from its namesake
    ordered: bool = False  # one delivery at a time for each document


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """All enabled Webhooks by subscribed event, in the order of their names."""

    documents: Mapping[tuple[str, str], tuple[Subscription, ...]]  # (DocType, on_…)
    custom: Mapping[str, tuple[Subscription, ...]]


_DECODER: Final = msgspec.msgpack.Decoder(Subscriptions)


class _ChangedMeanwhile(Exception):
    """Raised if a snapshot was replaced while it was read."""


def shared_memory() -> int:
    """Return the descriptor of new memory for the processes of one service."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("fw-subscriptions", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.write(descriptor, bytes(_HEADER))  # written: a hole could not be filled on a full disk
    return descriptor


class SharedSubscriptions:
    """One process's view of the shared subscriptions. For any thread."""

    def __init__(self, descriptor: int, place: ProcessPlace) -> None:
        """`descriptor` is of `shared_memory`; it is closed with this object."""
        self._descriptor = descriptor
        self._own = place.number - 1
        self._memory = mmap.mmap(descriptor, _HEADER)
        self._words = memoryview(self._memory).cast("Q")
        self._lock = threading.Lock()

    @staticmethod
    def stamp() -> int:
        """Return a stamp that is higher than all before it on this machine.

        To be called in a transaction that excludes others which change Webhooks.
        """
        return time.monotonic_ns()  # one clock for all processes

    def publish(self, stamp: int, found: Subscriptions) -> None:
        """Make `found` the subscriptions of all processes, unless they have newer ones.

        If the memory is full, each process reads the subscriptions from the store instead.
        """
        with self._lock:
            if stamp <= self._words[self._own]:
                return
            content = msgspec.msgpack.encode(found)
            place = _STAMP_WORDS + _PLACE_WORDS * self._own
            base = _HEADER + 2 * _AREA * self._own
            offset = base + _AREA if self._words[place] == base else base
            length = len(content)
            try:
                if length > _AREA or os.pwrite(self._descriptor, content, offset) != length:
                    length = 0
            except OSError:
                length = 0
            self._words[place] = offset
            self._words[place + 1] = length
            self._words[place + 2] = zlib.crc32(content)
            self._words[self._own] = stamp

    def stamps(self) -> bytes:
        """Return the stamps of all processes, which change with each publication. Very cheap."""
        return self._memory[: _STAMP_WORDS * _WORD]

    def newest(self, stamps: bytes) -> Subscriptions | None:
        """Return the snapshot with the highest of `stamps`; None: read it from the store."""
        words = memoryview(stamps).cast("Q")
        with self._lock:
            for _ in range(_TRIES):
                with suppress(_ChangedMeanwhile):
                    return self._snapshot(words.tolist().index(max(words)))
        return None  # its writer was killed in between

    def _snapshot(self, process: int) -> Subscriptions | None:
        """Return the newest snapshot of a process. Raises: _ChangedMeanwhile."""
        place = _STAMP_WORDS + _PLACE_WORDS * process
        offset, length, checksum = self._words[place : place + _PLACE_WORDS].tolist()
        if not length:
            return None
        content = os.pread(self._descriptor, length, offset)
        if zlib.crc32(content) != checksum:
            raise _ChangedMeanwhile
        return _DECODER.decode(content)

    def close(self) -> None:
        """Release the memory."""
        self._words.release()
        self._memory.close()
        with suppress(OSError):
            os.close(self._descriptor)
