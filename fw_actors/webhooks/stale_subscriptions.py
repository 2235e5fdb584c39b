"""Compares the subscriptions that a service uses with those in the store.

A running service does not use a change that was made outside of it: by another server of the site,
a command with `--commit`, or raw SQL (B-42). The comparison makes this visible, and applies nothing
by itself. It compares rows and no counter of changes, so that it also sees raw SQL, and costs a
save nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from fw_actors.store import Store
from fw_actors.webhooks.shared_subscriptions import Subscriptions
from fw_actors.webhooks.subscriptions import SubscriptionCache


def changed_webhooks(used: Subscriptions, stored: Subscriptions) -> tuple[str, ...]:
    """Return the names of the Webhooks that a restart would subscribe to other events, in order."""
    before, after = _by_webhook(used), _by_webhook(stored)
    return tuple(sorted(name for name in {*before, *after} if before.get(name) != after.get(name)))


def _by_webhook(subscriptions: Subscriptions) -> Mapping[str, set[object]]:
    found: defaultdict[str, set[object]] = defaultdict(set)
    for events in (subscriptions.documents, subscriptions.custom):
        for event, subscribed in events.items():
            for each in subscribed:
                found[each.webhook].add((event, each.max_attempts, each.row_id))
    return found


async def stale_webhooks(store: Store, cache: SubscriptionCache) -> tuple[str, ...]:
    """Return the Webhooks whose stored subscriptions this service does not use, by name.

    A Webhook that this service is saving at the same moment may be among them once.

    Raises: OverloadedError if the store does not answer.
    """
    used = cache.used
    if used is None:  # the next write reads them
        return ()
    return changed_webhooks(used, await store.read(cache.stored))
