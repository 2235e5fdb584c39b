"""Limits: of sign-in attempts at an identifier, and of denials that are recorded.

A single statement of the store admits an attempt while fewer than `limit` count; this module
decides which count, and the wait after a refused attempt (A-63, A-71, A-68).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from fw_actors.runtime.clock import MS_PER_MINUTE, MS_PER_SECOND

IN_FLIGHT_MS: Final = 30_000  # a charge still open after it (a crash) is a failure
BUSY_RETRY_SECONDS: Final = 1.0  # others are in flight; the identifier is not locked
ADDRESS_WINDOW_MS: Final = 15 * MS_PER_MINUTE
RECOVERY_MAIL_WINDOW_MS: Final = 60 * MS_PER_MINUTE
SHARED_ATTEMPTS: Final = 100  # in a window, for all of a full bucket that have no counter


@dataclass(frozen=True, slots=True)
class Budget:
    """The limit of failures within a window; a failure older than `window` (ms) does not count."""

    limit: int
    window: int
    locks: bool = True  # the failure that reaches the limit starts a lock for a whole window


WIDER_56: Final = 4  # times the address's budget, for all networks of /64 in a /56
WIDER_48: Final = 16  # and in a /48


def wider(budget: Budget, times: int) -> Budget:
    """Return the budget of a network around an address: several addresses may share it, within a
    limit.
    """
    return replace(budget, limit=budget.limit * times)


def shared_budget(budget: Budget) -> Budget:
    """Return the budget of a shared counter; it never locks, because others' attempts would lock
    users.
    """
    return Budget(SHARED_ATTEMPTS, budget.window, locks=False)


@dataclass(frozen=True, slots=True)
class Tally:
    """The stored counts for a key at the moment of a refused attempt; times in ms."""

    failed: int
    oldest: int | None
    newest_failure: int | None
    locked_until: int | None


def may_verify(charged_at: int, now: int) -> bool:
    """Return whether a charged attempt may still be hashed; times in ms.

    Later its charge counts as a failure, and after the window not at all: a process that was
    stopped for a while would hash one more than the limit.
    """
    return now - charged_at < IN_FLIGHT_MS


def is_locked(tally: Tally, budget: Budget, now: int) -> bool:
    """Return whether an attempt is refused regardless of attempts in flight."""
    locked = tally.locked_until is not None and tally.locked_until > now
    return locked or tally.failed >= budget.limit


def refusal_seconds(tally: Tally, budget: Budget, now: int) -> float:
    """Return the seconds from `now` that a refused attempt has to wait.

    While locked, it is the rest of the lock, which refused attempts do not extend. If only attempts
    in flight exceed the limit, it is a moment. If charges that a crash has left reach the limit, it
    is as if the last one had locked. A budget that never locks opens when its oldest failure leaves
    the window.
    """
    if tally.locked_until is not None and tally.locked_until > now:
        return (tally.locked_until - now) / MS_PER_SECOND
    if tally.failed < budget.limit:
        return BUSY_RETRY_SECONDS
    since = tally.newest_failure if budget.locks else tally.oldest
    end = (now if since is None else since) + budget.window
    return max(BUSY_RETRY_SECONDS, min(end - now, budget.window) / MS_PER_SECOND)


RECORDED_PER_MINUTE: Final = 20
"""The number of denials of one user per minute with their own Audit Event; the rest are counted.

Without a limit any user could fill the Audit Events, at the price of a request each.
"""


def minute_of(now: int) -> tuple[int, int]:
    """Return the first millisecond of the clock's minute that `now` is in, and of the next one."""
    begin = now - now % MS_PER_MINUTE
    return begin, begin + MS_PER_MINUTE


def refusals_beyond_limit(recorded: int, counted: int | None) -> int | None:
    """Return the number of refusals beyond the limit in a minute, including the current one.

    Args:
        recorded: the refusals of this minute that have their own event.
        counted: the number in the event that counts the others; None without such an event.

    Returns: None if this refusal gets its own event.
    """
    if counted is None:
        return None if recorded < RECORDED_PER_MINUTE else 1
    return counted + 1
