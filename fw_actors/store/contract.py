"""What every store offers: two calls, and word of what other processes commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from fw_actors.store.transaction import Tx

T = TypeVar("T")


@dataclass(frozen=True)
class StoreStatistics:
    """What a store has done since it was opened, for `/metrics` and the console."""

    waiting_writes: int
    """Calls of `write` not answered yet; more than `max_waiting_writes` are refused."""
    waiting_reads: int
    """Calls of `read` not answered yet; more than `max_waiting_reads` are refused, of those that
    are reserved and of the others each."""
    max_waiting_writes: int
    max_waiting_reads: int
    commits: int
    """Commits; each answers a group of one or more calls of `write`."""
    committed: int
    """Calls of `write` whose function returned and is committed."""
    rolled_back: int
    """Calls of `write` whose function raised, so that what it did was undone alone."""
    refused: int
    """Calls of `write` answered 503: the queue or disk was full, the database locked, …"""
    skipped: int
    """Calls cancelled before their function began."""
    reads: int
    """Calls of `read` whose function ran."""
    largest_group: int
    foreign_commits: int
    """How often commits of other processes were noticed."""


class Store(Protocol):
    """Transactions for the service. All methods are called from trio's thread."""

    async def write(self, fn: Callable[[Tx], T], *, durable: bool = True) -> T:
        """Run `fn` in a transaction of its own and return its result once that is durable.

        `fn` is a plain function and short: hashing, DNS and HTTP never happen in it. It runs in
        another thread, at most once, and in the order of the calls. When it raises, what it did
        is undone and the exception is raised here.

        Without `durable` the result comes as soon as it is committed, before the disk has it:
        every process sees it, and none that is killed takes it back, but a power failure may,
        until a later durable write returns, though it wrote nothing itself (on PostgreSQL: or
        until its WAL writer has come by). For what may be done twice, like a lease.

        Cancelled while `fn` has not begun, the call is withdrawn and changes nothing. Once it
        has begun it is waited for and commits: the result is returned here and the cancellation
        shows at the caller's next checkpoint.

        Raises: OverloadedError when too many calls wait or the database can't take it (locked
            by another process, full disk, I/O error); nothing was changed then, unless the
            disk failed during the commit itself, when only a later read can tell.
        """

    async def read(self, fn: Callable[[Tx], T], *, reserved: bool = False) -> T:
        """Run `fn` against one snapshot, beside the writers, and return its result.

        It sees every write that was answered before the call. Cancelled, it is withdrawn if it
        has not begun, and else interrupted: what it runs is ended, and its caller gets the
        cancellation.

        `reserved`: run it where searches don't go. For reads by a key, at once done, that must not
        wait behind those: sessions, tries to sign in, readiness.

        Raises: OverloadedError when too many calls wait, when the call has waited, or `fn` has run
            for longer than a query may take (`extra.reason` tells the latter), or when the
            database can't be read.
        """

    def on_foreign_commit(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have `callback` called on trio's thread when another process has committed.

        Within about a second; several commits may be one call, and a call may come without
        one. Returns a function that ends it.
        """

    def look_now(self) -> None:
        """Look at once for commits of other processes, instead of within a second."""

    def statistics(self) -> StoreStatistics:
        """Return what the store has done so far."""
