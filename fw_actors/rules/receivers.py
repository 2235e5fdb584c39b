"""The rules of a Webhook's receiver: slots, pauses, requests a second, consequences of failures.

A receiver (B-230, B-231, B-232, B-233) starts with one slot and doubles with each response up to
the limit. One that takes over a second to the head of its response, or times out, falls back to
one slot. Slow receivers may not take the last quarter of all slots, so that a healthy receiver
always finds one. The Webhooks of a receiver that have due deliveries share its slots (B-237).

A limit of requests is a token bucket, stored as one number: the time up to which its requests have
been used. Therefore the lock of one row covers it, and a changed limit needs no conversion. The
bucket holds the requests of at most a tenth of a second, so that a Webhook that was idle does not
exceed its limit. Rules: B-300 to B-326.

An outage is announced, its end is announced, or the Webhook is disabled (B-340 to B-346). An outage
is identified by its first failure since the last success; the actions taken for it are stored, so
that each happens once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fw_actors.runtime.clock import MS_PER_DAY, MS_PER_HOUR, US_PER_MS

SLOW_SECONDS: Final = 1.0
FAILURES: Final = 3  # so many failed attempts in a row make a receiver a failing one
RESERVE: Final = 4  # one slot in four is closed to slow receivers


@dataclass(slots=True)
class ReceiverSlots:
    """The window of one receiver and its attempts in flight."""

    limit: int
    window: int = 1
    slow: bool = False
    in_flight: int = 0
    yields: bool = False
    """Whether the last quarter of all slots is closed to it, as to a slow receiver."""
    paused: bool = False
    """Whether an operator has paused the receiver: no attempt starts."""
    failures: int = 0
    """The number of attempts that have failed since the last success."""
    failing_since: int | None = None
    """When the first of these failures was (ms)."""
    last_error: str = ""
    """The error of the last of them."""

    @property
    def free(self) -> int:
        """The free slots of this receiver, without regard to others."""
        return 0 if self.paused else max(0, self.window - self.in_flight)

    @property
    def health(self) -> str:
        """The state of the receiver: paused, failing, slow or healthy."""
        if self.paused:
            return "paused"
        if self.failures >= FAILURES:
            return "failing"
        return "slow" if self.slow else "healthy"

    def take(self, slots: int) -> None:
        """Begin `slots` attempts."""
        self.in_flight += slots

    def answered(self, seconds: float) -> None:
        """End an attempt whose response head came after `seconds`."""
        self.in_flight -= 1
        if seconds > SLOW_SECONDS:
            self._slow_down()
        else:
            self.slow = False
            self.window = min(self.limit, self.window * 2)

    def timed_out(self) -> None:
        """End an attempt that timed out without a response."""
        self.in_flight -= 1
        self._slow_down()

    def ended(self) -> None:
        """End an attempt that tells nothing about the receiver's speed."""
        self.in_flight -= 1

    def failed(self, error: str, now: int) -> None:
        """Count a failed attempt at `now` (ms); another method frees its slot."""
        if not self.failures:
            self.failing_since = now
        self.failures += 1
        self.last_error = error

    def succeeded(self) -> None:
        """Reset the failures after a successful attempt."""
        self.failures, self.failing_since, self.last_error = 0, None, ""

    def _slow_down(self) -> None:
        self.window = 1
        self.slow = True


def startable(receiver: ReceiverSlots, free_slots: int, all_slots: int) -> int:
    """Return the number of attempts that may start at a receiver.

    `free_slots` of `all_slots`, the slots of all receivers, are free.
    """
    if receiver.slow or receiver.yields:
        free_slots -= all_slots // RESERVE
    return max(0, min(receiver.free, free_slots))


def fair_shares(free_slots: int, in_flight: Mapping[str, int]) -> dict[str, int]:
    """Divide the free slots of a receiver so that the smallest number of slots that a Webhook uses
    is as large as possible (max-min fairness); return how many each may take.

    `in_flight` has the Webhooks with due deliveries, and how many slots each uses already. The
    first of them get those that cannot be divided.
    """
    ascending = sorted(in_flight.values())
    level = used = 0
    for webhooks, count in enumerate(ascending, 1):
        used += count
        level = (free_slots + used) // webhooks
        if webhooks == len(ascending) or level < ascending[webhooks]:
            break
    shares = {webhook: max(0, level - count) for webhook, count in in_flight.items()}
    rest = free_slots - sum(shares.values())
    for webhook, count in in_flight.items():
        if rest and count <= level:
            shares[webhook] += 1
            rest -= 1
    return shares


NOT_PAUSED: Final = 0
UNTIL_RESUMED: Final = 2**53 - 1
"""The end of a pause that has none: later than any clock."""
MAX_RATE: Final = 10_000
WINDOW_US: Final = 100_000
BATCH_US: Final = WINDOW_US // 2
"""Requests that come due within this time are claimed together."""
MAX_SKEW_US: Final = 5_000_000
"""A time used up further ahead than this was written before the clock was set back."""
_US: Final = 1_000_000


def pause_end(since: int | None, until: int | None, now: int) -> int:
    """Return when a pause ends (ms): `NOT_PAUSED`, `UNTIL_RESUMED` or a time after `now`.

    Args:
        since: when it began; None without one.
        until: when it ends by itself; None: not before it is ended.
    """
    if since is None or (until is not None and until <= now):
        return NOT_PAUSED
    return UNTIL_RESUMED if until is None else until


@dataclass(frozen=True, slots=True)
class RateAllowance:
    """The requests that a limit allows at one moment. Times in microseconds since the epoch."""

    interval: int
    """Between two requests."""
    used_until: int
    now: int

    @property
    def requests(self) -> int:
        """The number of requests that may start now."""
        return max(0, (self.now - self.used_until) // self.interval)

    def used_after(self, requests: int) -> int:
        """Return the time (µs) up to which the limit is used after `requests` more."""
        return self.used_until + requests * self.interval

    def next_at(self, requests: int) -> int:
        """Return the time (ms) when more may start after `requests`: one, or a batch."""
        at = self.used_after(requests) + max(self.interval, BATCH_US)
        return -(-at // US_PER_MS)


def rate_allowance(rate: int, used_until: int, now: int) -> RateAllowance:
    """Return the requests that a limit of `rate` requests a second allows at `now` (ms).

    `used_until` (µs) is the stored time, 0 at first. If it is ahead by more than the clocks of
    nodes may differ, the clock was set back since. Then one request may start at once; its claim
    stores a time of the current clock, and otherwise the stored time would stay.
    """
    interval, moment = _US // rate, now * US_PER_MS
    if used_until > moment + MAX_SKEW_US:
        used_until = moment - interval
    return RateAllowance(interval, max(used_until, moment - max(interval, WINDOW_US)), moment)


FAILING_EVENT: Final = "webhook.failing"
ENDED_EVENT: Final = "webhook.failing.ended"


class OutageAction(StrEnum):
    """The action for an outage: announce its end, announce it, or disable the Webhook."""

    END = "ended"
    NOTICE = "failing"
    DISABLE = "disabled"


@dataclass(frozen=True, slots=True)
class NoticePolicy:
    """`ops.receiverNotice` in hours and `ops.disableAfterDays`; 0 switches each off."""

    notice_hours: float
    disable_days: float

    @property
    def notice_ms(self) -> int:
        """The duration of an outage before it is announced."""
        return round(self.notice_hours * MS_PER_HOUR)

    @property
    def disable_ms(self) -> int:
        """The time between the first and the last failure at which the Webhook is disabled."""
        return round(self.disable_days * MS_PER_DAY)


@dataclass(frozen=True, slots=True)
class ReceiverOutage:
    """The failures of a Webhook in a row, and the actions taken for them; times in ms.

    `noticed` and `disabled` are the beginnings of the outages that were announced and that disabled
    it; `notice_open`: the end of `noticed` has not been announced.
    """

    enabled: bool
    failures: int
    since: int | None
    last_failure: int | None
    noticed: int | None = None
    notice_open: bool = False
    disabled: int | None = None


def outage_action(outage: ReceiverOutage, now: int, policy: NoticePolicy) -> OutageAction | None:
    """Return the action that is due at `now` (ms); None without one.

    A notice depends only on time: undelivered events justify a mail even if no further one occurs.
    Disabling requires failures over the whole period.
    """
    if outage.notice_open and (not outage.enabled or outage.noticed != outage.since):
        return OutageAction.END
    since, last = outage.since, outage.last_failure
    if not outage.enabled or since is None or last is None or outage.failures < FAILURES:
        return None
    if policy.disable_days and outage.disabled != since and last - since >= policy.disable_ms:
        return OutageAction.DISABLE
    if policy.notice_hours and outage.noticed != since and now - since >= policy.notice_ms:
        return OutageAction.NOTICE
    return None
