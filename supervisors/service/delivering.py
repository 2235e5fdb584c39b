"""The children that deliver webhooks: the writer of outcomes, the attempts, the Dispatcher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fw_actors.actors.delivery import DeliveryActor, Means
from fw_actors.actors.dispatcher import Dispatcher
from fw_actors.actors.outcomes import OutcomeWriter
from fw_actors.config import Config
from fw_actors.http import PoolLimits
from fw_actors.rules.delivery_outcome import Backoff
from fw_actors.runtime import KeyedPool
from fw_actors.services.deliveries import Deliveries
from fw_actors.services.signing_keys import SigningKeys
from supervisors.children import ChildSpec, actor_child, pool_child
from supervisors.service.parts import Parts
from supervisors.service.signals import DRAIN_SECONDS

DISPATCHER: Final = "dispatcher"
OUTCOMES: Final = "outcomes"
_IDLE_SECONDS: Final = 30.0


def kept_connections(config: Config) -> PoolLimits:
    """As many may lie idle as may be in flight: a busy receiver's are not closed between posts."""
    ops = config.ops
    return PoolLimits(idle=ops.delivery_concurrency, idle_per_origin=ops.per_receiver_concurrency)


def delivering(parts: Parts) -> Sequence[ChildSpec]:
    """Return the writer of outcomes, the pool of deliveries and the Dispatcher."""
    site, ops = parts.site, parts.site.config.ops
    deliveries = Deliveries(site.registry, Backoff(ops.backoff_seconds, ops.backoff_cap_seconds))
    dispatcher, outcomes = parts.runtime.ref(DISPATCHER), parts.runtime.ref(OUTCOMES)
    means = Means(
        site.store,
        deliveries,
        parts.sender,
        SigningKeys(site.vault),
        site.clock,
        parts.log,
        dispatcher,
        outcomes,
        honour_retry_after=ops.honour_retry_after,
        scrubber=site.config.scrubber,
    )
    pool = KeyedPool(
        parts.runtime,
        "deliveries",
        capacity=ops.delivery_concurrency,
        idle_seconds=_IDLE_SECONDS,
        make=lambda key: DeliveryActor(means),
    )
    return (
        actor_child(
            OUTCOMES,
            lambda: OutcomeWriter(
                site.store,
                deliveries,
                site.clock,
                parts.log,
                dispatcher,
                parts.delivered,
                places=ops.delivery_concurrency,
            ),
        ),
        pool_child("deliveries", pool, shutdown_seconds=DRAIN_SECONDS),
        actor_child(
            DISPATCHER,
            lambda: Dispatcher(
                site.store,
                deliveries,
                pool,
                places=ops.delivery_concurrency,
                per_receiver=ops.per_receiver_concurrency,
            ),
        ),
    )
