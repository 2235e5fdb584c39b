"""How many attempts one look at the queue may start, and where each goes."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from fw_actors.errors import ValidationError
from fw_actors.http import Origin, Target, parse_target
from fw_actors.rules.receiver_places import ReceiverPlaces, startable
from fw_actors.services.delivery_rows import Hook

URLS_KEPT: Final = 1024


class ClaimPlan:
    """How many attempts may start at each receiver, counted down while a claim takes them.

    Used in the store's thread, and after that by the Dispatcher.
    """

    def __init__(
        self,
        receivers: dict[Origin | None, ReceiverPlaces],
        free: int,
        places: int,
        per_receiver: int,
    ) -> None:
        self._known, self._free = receivers, free
        self._places, self._per_receiver = places, per_receiver
        self._copies: dict[Origin | None, ReceiverPlaces] = {}
        self._targets: dict[Hook | None, Target | None] = {}

    def free(self, hook: Hook | None) -> int:
        """Return how many of this Webhook's deliveries may start now."""
        return startable(self._copy(hook), self._free, self._places)

    def take(self, hook: Hook | None, count: int) -> None:
        """So many were leased."""
        self._copy(hook).take(count)
        self._free -= count

    def target(self, hook: Hook | None) -> Target | None:
        """Return where this Webhook's deliveries go; found out once a look."""
        if hook not in self._targets:
            self._targets[hook] = target_of(hook)
        return self._targets[hook]

    def _copy(self, hook: Hook | None) -> ReceiverPlaces:
        target = self.target(hook)
        origin = target.origin if target is not None else None
        copy = self._copies.get(origin)
        if copy is None:
            known = self._known.get(origin)
            copy = (
                replace(known) if known else new_receiver(origin, self._places, self._per_receiver)
            )
            self._copies[origin] = copy
        return copy


def new_receiver(origin: Origin | None, places: int, per_receiver: int) -> ReceiverPlaces:
    """Return the places of a receiver that is not known yet; of `places` in all.

    Where nothing is sent (deleted, disabled) nobody has to be spared.
    """
    if origin is None:
        return ReceiverPlaces(limit=places, window=places)
    return ReceiverPlaces(limit=per_receiver)


def target_of(hook: Hook | None) -> Target | None:
    """Return where a Webhook's deliveries go; None when nothing is to be sent."""
    return _parsed(hook.url) if hook is not None and hook.enabled else None


@lru_cache(URLS_KEPT)
def _parsed(url: str) -> Target | None:
    """Taking a URL apart costs more than what else a look does for its Webhook."""
    try:
        return parse_target(url, development=True)  # judged when it was written
    except ValidationError:
        return None
