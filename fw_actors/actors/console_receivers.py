"""The receivers of the console: what processes see of them, and what the store tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from fw_actors.rules.concurrency import FAILURES
from fw_actors.webhooks.receiver_facts import StoredReceiver

HEALTH_ORDER: Final = ("paused", "failing", "slow", "healthy", "untried")
"""The order in which an operator looks at them."""


class Receiver(msgspec.Struct, frozen=True, rename="camel"):
    """A receiver: its slots, their use, its health, and what waits for it. Times in ms."""

    origin: str
    in_flight: int
    window: int
    limit: int
    health: str
    """healthy, slow, failing, paused, or untried: nothing was sent there since the start."""
    failures: int = 0
    """Attempts that have failed since the last success."""
    failing_since: int | None = None
    """When the first of these failures was."""
    last_error: str = ""
    webhooks: int = 0
    waiting: int = 0
    """Deliveries that wait in the store for all processes, at most 1,000 of a Webhook."""
    more_wait: bool = False
    last_success: int | None = None


def with_stored(live: Sequence[Receiver], stored: Sequence[StoredReceiver]) -> list[Receiver]:
    """Return the receivers of processes with what the store tells of them, the worst first.

    One that fails by the store is failing, whatever a process has seen of it since its start. One
    that no process knows is added if deliveries wait for it, or fail.
    """
    known = {each.origin: each for each in stored}
    found = [_with_stored(each, known.pop(each.origin, None)) for each in live]
    found += [
        _with_stored(Receiver(each.origin, 0, 0, 0, "untried"), each)
        for each in known.values()
        if each.waiting or each.failures >= FAILURES
    ]
    return sorted(found, key=_urgency)


def _urgency(each: Receiver) -> tuple[int, int, int, int, str]:
    order = HEALTH_ORDER.index(each.health)
    return order, -each.failures, -each.waiting, -each.in_flight, each.origin


def _with_stored(receiver: Receiver, stored: StoredReceiver | None) -> Receiver:
    if stored is None:
        return receiver
    shown = msgspec.structs.replace(
        receiver,
        webhooks=stored.webhooks,
        waiting=stored.waiting,
        more_wait=stored.more_wait,
        last_success=stored.last_success,
    )
    if stored.failures <= receiver.failures:
        return shown
    fails = stored.failures >= FAILURES and receiver.health != "paused"
    return msgspec.structs.replace(
        shown,
        health="failing" if fails else receiver.health,
        failures=stored.failures,
        failing_since=stored.failing_since,
        last_error=stored.last_error,
    )
