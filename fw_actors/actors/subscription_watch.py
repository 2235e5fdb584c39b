"""SubscriptionWatch: notices changes of Webhooks from outside the service, and can apply them."""

from __future__ import annotations

from typing import Final

from fw_actors.errors import OverloadedError
from fw_actors.runtime import Actor, MailboxPolicy, Message, Overflow, handles
from fw_actors.store import Store
from fw_actors.webhooks.stale_subscriptions import stale_webhooks
from fw_actors.webhooks.subscriptions import SubscriptionCache

WATCH_SECONDS: Final = 10.0
REFRESH_SECONDS: Final = 0.5  # with the transaction that applies it, below a second
NAMES_LOGGED: Final = 20


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
        """Log what has changed, once for each state; a save that was under way is none."""
        log, names = self.context.log, list(stale[:NAMES_LOGGED])
        if stale and self._refresh:
            log.info("subscriptions.refreshed", webhooks=names, changed=len(stale))
        elif stale == self._before and stale != self._told:
            self._told = stale
            if stale:
                log.warning("subscriptions.stale", webhooks=names, changed=len(stale))
        self._before = stale
