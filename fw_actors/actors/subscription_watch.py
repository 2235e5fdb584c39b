"""SubscriptionWatch: notices changes of Webhooks from outside the service, and can apply them.

A running service does not use a change that was made outside it: by another server of the site, a
command with `--commit`, or raw SQL (B-42). Comparing the subscriptions in use with the stored ones
makes such a change visible. Rows are compared and not a counter of changes, so that raw SQL is
seen too and a save costs nothing more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from fw_actors.errors import OverloadedError
from fw_actors.runtime import Actor, MailboxPolicy, Message, Overflow, handles
from fw_actors.store import Store
from fw_actors.webhooks.shared_subscriptions import Subscriptions
from fw_actors.webhooks.subscriptions import SubscriptionCache

WATCH_SECONDS: Final = 10.0
REFRESH_SECONDS: Final = 0.5  # with the transaction that applies it, below a second
NAMES_LOGGED: Final = 20


def changed_webhooks(used: Subscriptions, stored: Subscriptions) -> tuple[str, ...]:
    """Return the names of the Webhooks that a restart would subscribe to other events, in order."""
    before, after = _by_webhook(used), _by_webhook(stored)
    return tuple(sorted(name for name in {*before, *after} if before.get(name) != after.get(name)))


def _by_webhook(subscriptions: Subscriptions) -> Mapping[str, set[object]]:
    found: defaultdict[str, set[object]] = defaultdict(set)
    for events in (subscriptions.documents, subscriptions.custom):
        for event, subscribed in events.items():
            for each in subscribed:
                found[each.webhook].add((event, each.max_attempts, each.row_id, each.ordered))
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


class Look(Message, frozen=True):
    """Compare the subscriptions in use with the stored ones."""


class SubscriptionWatch(Actor):
    """Logs Webhooks that were changed outside the service; with `refresh` it uses them at once.

    One of the processes of a service runs it, since all of them use the same subscriptions.
    """

    mailbox = MailboxPolicy(capacity=4, overflow=Overflow.REFUSE)

    def __init__(self, store: Store, cache: SubscriptionCache, *, refresh: bool) -> None:
        """`refresh` is `ops.subscriptionRefresh`."""
        self._store, self._cache, self._refresh = store, cache, refresh
        self._every = REFRESH_SECONDS if refresh else WATCH_SECONDS
        self._before: tuple[str, ...] = ()
        self._told: tuple[str, ...] = ()

    async def started(self) -> None:
        """Begin to look."""
        self.context.after(self._every, Look())

    @handles(Look)
    async def look(self, _message: Look) -> None:
        """Look once; a store that does not answer is asked again the next time."""
        try:
            stale = await stale_webhooks(self._store, self._cache)
            if stale and self._refresh:
                await self._store.write(self._cache.renew_after_commit)
        except OverloadedError:
            pass
        else:
            self._tell(stale)
        self.context.after(self._every, Look())

    def _tell(self, stale: tuple[str, ...]) -> None:
        """Log the changed Webhooks, once for each set of them.

        A set that is found only once was a save in progress, and is not logged.
        """
        log, names = self.context.log, list(stale[:NAMES_LOGGED])
        if stale and self._refresh:
            log.info("subscriptions.refreshed", webhooks=names, changed=len(stale))
        elif stale == self._before and stale != self._told:
            self._told = stale
            if stale:
                log.warning("subscriptions.stale", webhooks=names, changed=len(stale))
        self._before = stale
