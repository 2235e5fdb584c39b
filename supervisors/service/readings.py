"""The numbers of `/metrics`: read at the moment of the request, from those who hold them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from fw_actors.actors.counters import Counter
from fw_actors.http import Sender
from fw_actors.runtime import Runtime
from fw_actors.services.access import Reading
from fw_actors.services.site import Site

OUTCOME: Final = "outcome"


class Readings:
    """Gives the numbers of this moment when called."""

    def __init__(
        self,
        site: Site,
        runtime: Runtime,
        sender: Sender,
        *,
        signed_in: Counter,
        delivered: Counter,
    ) -> None:
        self._site, self._runtime, self._sender = site, runtime, sender
        self._signed_in, self._delivered = signed_in, delivered

    def __call__(self) -> Sequence[Reading]:
        """Return all readings."""
        return [*self._access(), *self._delivery(), *self._store()]

    def _access(self) -> Iterator[Reading]:
        hasher = self._site.hasher.statistics()
        yield Reading(
            "fw_password_hashes", "counter", "Password hashes computed, decoys too.", hasher.hashes
        )
        yield Reading(
            "fw_password_hashes_waiting", "gauge", "Who waits for a hash.", hasher.waiting
        )
        for outcome, count in self._signed_in.counts().items():
            yield Reading(
                "fw_sign_ins", "counter", "Sign-ins by outcome.", count, {OUTCOME: outcome}
            )

    def _delivery(self) -> Iterator[Reading]:
        for outcome, count in self._delivered.counts().items():
            yield Reading(
                "fw_deliveries",
                "counter",
                "Attempts by what they made of the delivery.",
                count,
                {OUTCOME: outcome},
            )

    def _store(self) -> Iterator[Reading]:
        store = self._site.store.statistics()
        yield Reading("fw_store_commits", "counter", "Durable commits.", store.commits)
        yield Reading("fw_store_writes", "counter", "Transactions committed.", store.committed)
        yield Reading(
            "fw_store_refused", "counter", "Transactions refused with 503.", store.refused
        )
        yield Reading("fw_store_waiting_writes", "gauge", "Writes that wait.", store.waiting_writes)
