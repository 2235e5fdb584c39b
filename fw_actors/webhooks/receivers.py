"""The receivers of the console: what the store tells of them, with what processes see of them.

A receiver is an origin, to which several Webhooks may point. The facts come from the small table
of outcomes and from bounded counts, so that they cost the same however many deliveries there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import sqlalchemy as sa

from fw_actors.documents.core import Webhook
from fw_actors.documents.tables import table_of
from fw_actors.errors import ValidationError
from fw_actors.http import parse_endpoint
from fw_actors.rules.concurrency import FAILURES
from fw_actors.store import Statement, Tx
from fw_actors.store.schema import WEBHOOK_HEALTH
from fw_actors.webhooks.health import MAX_WAITING, waiting_deliveries

MAX_WEBHOOKS: Final = 200
"""The most Webhooks that are looked at, those first that fail longest in a row."""


class StoredReceiver(msgspec.Struct, frozen=True, rename="camel"):
    """A receiver as the store knows it. Times in ms.

    `waiting` counts at most 1,000 deliveries of each of its `webhooks`; then `more_wait`.
    `failures` are those in a row of the Webhook that has most.
    """

    origin: str
    webhooks: int
    waiting: int
    more_wait: bool
    failures: int
    failing_since: int | None
    last_error: str
    last_success: int | None


_HOOK: Final = table_of(Webhook).table.c
_HEALTH: Final = WEBHOOK_HEALTH.c
_FAILURES: Final = sa.func.coalesce(_HEALTH.failures, 0)
_HOOKS: Final = Statement(
    sa.select(
        _HOOK.name,
        _HOOK.url,
        _FAILURES,
        _HEALTH.failing_since,
        sa.func.coalesce(_HEALTH.last_error, ""),
        _HEALTH.last_success,
    )
    .select_from(_HOOK.name.table.outerjoin(WEBHOOK_HEALTH, _HEALTH.webhook == _HOOK.name))
    .where(_HOOK.enabled == 1)
    .order_by(_FAILURES.desc(), _HOOK.name)
    .limit(MAX_WEBHOOKS)
)


def stored_receivers(tx: Tx) -> list[StoredReceiver]:
    """Return the receivers of enabled Webhooks, by origin."""
    found: dict[str, StoredReceiver] = {}
    for name, url, failures, since, error, success in tx.rows(_HOOKS):
        origin = _origin(url)
        if origin is None:
            continue
        waiting = waiting_deliveries(tx, name)
        own = StoredReceiver(
            origin=origin,
            webhooks=1,
            waiting=waiting,
            more_wait=waiting >= MAX_WAITING,
            failures=failures,
            failing_since=since if failures else None,
            last_error=error if failures else "",
            last_success=success,
        )
        known = found.get(origin)
        found[origin] = own if known is None else _together(known, own)
    return [found[origin] for origin in sorted(found)]


def _origin(url: str | None) -> str | None:
    try:
        return str(parse_endpoint(url or "", development=True).origin)
    except ValidationError:
        return None


def _together(one: StoredReceiver, other: StoredReceiver) -> StoredReceiver:
    worst = max(one, other, key=lambda each: each.failures)
    return StoredReceiver(
        origin=one.origin,
        webhooks=one.webhooks + other.webhooks,
        waiting=one.waiting + other.waiting,
        more_wait=one.more_wait or other.more_wait,
        failures=worst.failures,
        failing_since=worst.failing_since,
        last_error=worst.last_error,
        last_success=max(
            (each for each in (one.last_success, other.last_success) if each is not None),
            default=None,
        ),
    )


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
