"""Remembers the deliveries that were handled, in memory or in an SQLite file.

A delivery is claimed before its handler runs and completed after it. A claim is a lease: if the
process dies in between, the next attempt at the delivery may claim it once the lease has ended.
Therefore each event is handled at least once, and exactly once unless a handler or its process
fails.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar, Final, Protocol
from weakref import WeakSet

from fw_client.randomness import new_key

DAY_SECONDS: Final = 86_400.0
MAX_AHEAD_SECONDS: Final = 300.0
"""A claim that ends later than a new one by more was granted before the clock was set back. Then it
ends when a new one would; until then its handler may still run."""


class ClaimResult(Enum):
    """The result of a claim."""

    CLAIMED = "the caller handles it"
    BUSY = "another handles it at the moment"
    DONE = "it has been handled"
    FULL = "too many are being handled"


@dataclass(frozen=True, slots=True)
class SeenClaim:
    """A claim; `token` is only for one that was granted."""

    result: ClaimResult
    token: str = ""


class SeenEvents(Protocol):
    """The memory of a receiver. Methods may block, and are called from any thread."""

    def claim(self, name: str, now: float, lease: float) -> SeenClaim:
        """Claim the delivery `name` at `now` (Unix seconds) for `lease` seconds."""

    def complete(self, name: str, token: str, now: float) -> None:
        """Record that a claimed delivery was handled; does nothing if the claim was taken over."""

    def release(self, name: str, token: str) -> None:
        """Release a claim, so that the next attempt may claim the delivery at once."""


@dataclass(slots=True)
class _Entry:
    token: str
    until: float
    done: bool = False


class _ForkSafe:
    """Has a lock, which a forked process replaces: a thread of its parent may hold the old one."""

    _all: ClassVar[WeakSet[_ForkSafe]] = WeakSet()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all.add(self)

    @classmethod
    def replace_locks(cls) -> None:
        """Replace the locks of all instances. Called in a forked process, which has one thread."""
        for each in list(cls._all):
            each._lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_ForkSafe.replace_locks)


class SeenInMemory(_ForkSafe):
    """Remembers deliveries in the memory of this process: for tests, and for idempotent handlers.

    Args:
        capacity: the number of remembered deliveries; beyond it, the one handled longest ago is
            forgotten. If all of them are being handled, further ones are refused (FULL).
    """

    def __init__(self, capacity: int = 10_000) -> None:
        if capacity < 1:
            raise ValueError("capacity must be at least 1")
        super().__init__()
        self._capacity = capacity
        self._claimed: dict[str, _Entry] = {}
        self._done: OrderedDict[str, None] = OrderedDict()

    def claim(self, name: str, now: float, lease: float) -> SeenClaim:
        """Claim a delivery; see `SeenEvents.claim`."""
        with self._lock:
            if name in self._done:
                self._done.move_to_end(name)
                return SeenClaim(ClaimResult.DONE)
            entry = self._claimed.get(name)
            if entry is not None and entry.until > now:
                if entry.until > now + lease + MAX_AHEAD_SECONDS:
                    entry.until = now + lease
                return SeenClaim(ClaimResult.BUSY)
            if entry is None and not self._made_room(now):
                return SeenClaim(ClaimResult.FULL)
            token = new_key()
            self._claimed[name] = _Entry(token, now + lease)
            return SeenClaim(ClaimResult.CLAIMED, token)

    def _made_room(self, now: float) -> bool:
        """Return whether there is room for one more, after forgetting deliveries if necessary."""
        if len(self._claimed) + len(self._done) < self._capacity:
            return True
        if self._done:
            self._done.popitem(last=False)
            return True
        over = next((name for name, each in self._claimed.items() if each.until <= now), None)
        if over is not None:
            del self._claimed[over]
        return over is not None

    def complete(self, name: str, token: str, now: float) -> None:
        """Record that a delivery was handled; see `SeenEvents.complete`."""
        with self._lock:
            if self._is_mine(name, token):
                del self._claimed[name]
                self._done[name] = None

    def release(self, name: str, token: str) -> None:
        """Give a claim back; see `SeenEvents.release`."""
        with self._lock:
            if self._is_mine(name, token):
                del self._claimed[name]

    def _is_mine(self, name: str, token: str) -> bool:
        entry = self._claimed.get(name)
        return entry is not None and entry.token == token


_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS fw_received (
    id TEXT PRIMARY KEY, token TEXT NOT NULL, until REAL NOT NULL, done_at REAL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS fw_received_until ON fw_received (until);
"""
_CLAIM: Final = """
INSERT INTO fw_received (id, token, until) VALUES (:id, :token, :until)
ON CONFLICT (id) DO UPDATE SET token = :token, until = :until
WHERE done_at IS NULL AND until <= :now
"""
_SHORTEN: Final = """
UPDATE fw_received SET until = :until WHERE id = :id AND done_at IS NULL AND until > :latest
"""
_FORGET: Final = """
DELETE FROM fw_received WHERE id IN (SELECT id FROM fw_received WHERE until < ? LIMIT 100)
"""


class SeenInSqlite(_ForkSafe):
    """Remembers deliveries durably in an SQLite file, shared by the processes of a machine.

    Args:
        path: the file; created if it is missing.
        days: the time for which deliveries are remembered. A replay of an older delivery is handled
            again, so it should not be shorter than the service's `ops.webhookRetentionDays`.
    """

    def __init__(self, path: str | Path, days: float = 90) -> None:
        if not days > 0:
            raise ValueError("days must be more than 0")
        super().__init__()
        self._path, self._keep = Path(path), days * DAY_SECONDS
        self._opened: tuple[int, sqlite3.Connection] | None = None
        self._inherited: list[object] = []
        with self._lock:
            self._connection().executescript(_SCHEMA)

    def claim(self, name: str, now: float, lease: float) -> SeenClaim:
        """Claim a delivery; see `SeenEvents.claim`."""
        token = new_key()
        values = {"id": name, "token": token, "until": now + lease, "now": now}
        with self._lock:
            connection = self._connection()
            connection.execute(_FORGET, (now - self._keep,))
            if connection.execute(_CLAIM, values).rowcount == 1:
                return SeenClaim(ClaimResult.CLAIMED, token)
            cursor = connection.execute("SELECT done_at FROM fw_received WHERE id = ?", (name,))
            row = cursor.fetchone()
            done = row is not None and row[0] is not None
            if not done:
                latest = now + lease + MAX_AHEAD_SECONDS
                connection.execute(_SHORTEN, {**values, "latest": latest})
        return SeenClaim(ClaimResult.DONE if done else ClaimResult.BUSY)

    def complete(self, name: str, token: str, now: float) -> None:
        """Record that a delivery was handled; see `SeenEvents.complete`."""
        with self._lock:
            self._connection().execute(
                "UPDATE fw_received SET done_at = ?, until = ? WHERE id = ? AND token = ?",
                (now, now, name, token),
            )

    def release(self, name: str, token: str) -> None:
        """Give a claim back; see `SeenEvents.release`."""
        with self._lock:
            self._connection().execute(
                "DELETE FROM fw_received WHERE id = ? AND token = ? AND done_at IS NULL",
                (name, token),
            )

    def close(self) -> None:
        """Close the file; the next call opens it again."""
        with self._lock:
            if self._opened is not None:
                self._opened[1].close()
                self._opened = None

    def _connection(self) -> sqlite3.Connection:
        """Return the connection of this process; one from before a fork stays open, unused."""
        if self._opened is None or self._opened[0] != os.getpid():
            if self._opened is not None:
                self._inherited.append(self._opened)
            connection = sqlite3.connect(
                self._path, timeout=5, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            self._opened = os.getpid(), connection
        return self._opened[1]
