"""Reads the waiting deliveries, failures and last success of each receiver from the store.

A receiver is an origin, to which several Webhooks may point. The facts come from the small table
of outcomes and from bounded counts, so that they cost the same however many deliveries there are.
"""

from __future__ import annotations

from typing import Final

import msgspec
import sqlalchemy as sa

from fw_actors.documents.core import Webhook
from fw_actors.documents.tables import table_of
from fw_actors.errors import ValidationError
from fw_actors.http import parse_endpoint
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
