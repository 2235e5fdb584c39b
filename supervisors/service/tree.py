"""What runs in the service: store, hasher, lockouts, deliveries, dispatcher, sweeper, web.

Children start in this order and stop in reverse: first the doors close, then nothing new is
leased, then what is in flight drains, and the store ends last.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import trio

from fw_actors.actors.counters import Counter
from fw_actors.actors.delivery import DeliveryActor
from fw_actors.actors.dispatcher import Dispatcher, Nudge
from fw_actors.actors.gateway import Gateway
from fw_actors.actors.lockout import LockoutActor
from fw_actors.actors.outcomes import OutcomeWriter
from fw_actors.actors.sweeper import DAILY, HOURLY, Schedule, Sweeper
from fw_actors.config import Config
from fw_actors.documents import rest
from fw_actors.http import PoolLimits, Sender, open_sender
from fw_actors.rules.delivery_outcome import Backoff
from fw_actors.runtime import (
    Clock,
    Entropy,
    KeyedPool,
    Log,
    Runtime,
    SystemClock,
    SystemEntropy,
    open_runtime,
)
from fw_actors.services.deliveries import Deliveries
from fw_actors.services.sign_in import SignIn
from fw_actors.services.signing_keys import SigningKeys
from fw_actors.services.site import Site, open_site
from fw_actors.services.sweeps import auth_batches, webhook_batches
from supervisors.children import ChildSpec, actor_child, pool_child, task_child
from supervisors.service.readings import Readings
from supervisors.service.signals import DRAIN_SECONDS
from supervisors.tree import open_supervisor
from web.app import make_app
from web.client_address import ProxyTrust
from web.server import bind, serve
from web.settings import Settings, login_screen

MAX_LOCKOUTS: Final = 10_000  # identifiers with a sign-in under way or just over
IDLE_SECONDS: Final = 30.0
SIGN_IN_OUTCOMES: Final = ("signed_in", "wrong", "throttled", "overloaded")
DELIVERY_OUTCOMES: Final = ("Sent", "Retrying", "Failed")


@dataclass(frozen=True)
class RunningService:
    """A service that accepts; `url` is empty for a worker."""

    url: str
    site: Site
    gateway: Gateway
    runtime: Runtime

    async def failed(self) -> None:
        """Wait for ever: a failure for good is raised out of `open_service` by its supervisor."""
        await trio.sleep_forever()


@dataclass(frozen=True)
class Parts:
    """What the children are made of."""

    site: Site
    runtime: Runtime
    sender: Sender
    log: Log
    signed_in: Counter
    delivered: Counter


@asynccontextmanager
async def open_service(
    config: Config,
    *,
    log: Log,
    front: bool = True,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    inline: bool = False,
) -> AsyncIterator[RunningService]:
    """Run a site's service; without `front` it is a worker, which only delivers.

    Through once it accepts. Leaving is the graceful stop; cancelling stops at once.

    Raises: ConfigurationError; SupervisorFailed when a child can't be kept running.
    """
    clock = clock or SystemClock(config.deployment.clock_offset)
    entropy = entropy or SystemEntropy()
    async with open_runtime(clock=clock, entropy=entropy, log=log) as runtime:
        nudge = partial(runtime.ref("dispatcher").tell, Nudge())
        opening = open_site(
            config, clock=clock, entropy=entropy, inline=inline, recorded=lambda: _ignore(nudge())
        )
        async with opening as site, open_sender(limits=_kept_connections(config)) as sender:
            forget = site.store.on_foreign_commit(lambda: _ignore(nudge()))
            parts = Parts(
                site, runtime, sender, log, Counter(SIGN_IN_OUTCOMES), Counter(DELIVERY_OUTCOMES)
            )
            try:
                async with _run(parts, front=front) as service:
                    yield service
            finally:
                forget()


def _kept_connections(config: Config) -> PoolLimits:
    """As many may lie idle as may be in flight: a busy receiver's are not closed between posts."""
    ops = config.ops
    return PoolLimits(idle=ops.delivery_concurrency, idle_per_origin=ops.per_receiver_concurrency)


@asynccontextmanager
async def _run(parts: Parts, *, front: bool) -> AsyncIterator[RunningService]:
    site = parts.site
    lockouts, gateway = _sign_ins(parts)
    children: list[ChildSpec] = [pool_child("lockouts", lockouts), *_delivery(parts)]
    if site.config.ops.scheduler:
        children.append(actor_child("sweeper", lambda: _sweeper(parts)))
    url = ""
    if front:
        web, url = _front(site, gateway)
        children.append(web)
    async with open_supervisor(
        parts.runtime, "service", children, stop_seconds=DRAIN_SECONDS + 2.0
    ):
        gateway.open()
        try:
            yield RunningService(url, site, gateway, parts.runtime)
        finally:
            gateway.drain()


def _sign_ins(parts: Parts) -> tuple[KeyedPool, Gateway]:
    site = parts.site
    sign_in = SignIn(
        site.store,
        site.hasher,
        site.accounts,
        site.config.auth,
        site.entropy,
        site.installation_key,
    )
    lockouts = KeyedPool(
        parts.runtime,
        "lockouts",
        make=lambda key: LockoutActor(sign_in),
        capacity=MAX_LOCKOUTS,
        idle_seconds=IDLE_SECONDS,
    )
    readings = Readings(
        site, parts.runtime, parts.sender, signed_in=parts.signed_in, delivered=parts.delivered
    )
    return lockouts, Gateway(site, sign_in, lockouts, parts.signed_in, readings)


def _delivery(parts: Parts) -> Sequence[ChildSpec]:
    site, ops = parts.site, parts.site.config.ops
    deliveries = Deliveries(site.registry, Backoff(ops.backoff_seconds, ops.backoff_cap_seconds))
    dispatcher, outcomes = parts.runtime.ref("dispatcher"), parts.runtime.ref("outcomes")
    keys = SigningKeys(site.vault)
    pool = KeyedPool(
        parts.runtime,
        "deliveries",
        capacity=ops.delivery_concurrency,
        idle_seconds=IDLE_SECONDS,
        make=lambda key: DeliveryActor(
            site.store,
            deliveries,
            parts.sender,
            keys,
            site.clock,
            parts.log,
            dispatcher,
            outcomes,
        ),
    )
    return (
        actor_child(
            "outcomes",
            lambda: OutcomeWriter(
                site.store, deliveries, site.clock, parts.log, dispatcher, parts.delivered
            ),
        ),
        pool_child("deliveries", pool, shutdown_seconds=DRAIN_SECONDS),
        actor_child(
            "dispatcher",
            lambda: Dispatcher(
                site.store,
                deliveries,
                pool,
                places=ops.delivery_concurrency,
                per_receiver=ops.per_receiver_concurrency,
            ),
        ),
    )


def _sweeper(parts: Parts) -> Sweeper:
    config, registry = parts.site.config, parts.site.registry
    return Sweeper(
        parts.site.store,
        parts.log,
        {
            "auth": Schedule(HOURLY, auth_batches(config.auth.lockout_minutes)),
            "webhooks": Schedule(
                DAILY, webhook_batches(registry, config.ops.webhook_retention_days)
            ),
        },
    )


def _front(site: Site, gateway: Gateway) -> tuple[ChildSpec, str]:
    """Bind at once, so that a taken address is told before anything runs."""
    config = site.config
    bound = bind(config.deployment.bind_host, config.deployment.bind_port)
    trust = config.deployment.trust_proxy
    settings = Settings(
        name=config.site.name,
        url=config.deployment.public_url or bound.url,
        login=login_screen(config.login.notice, config.login.demo_user, config.login.demo_password),
        secure_cookie=config.auth.secure_cookie,
        max_requests=config.web.max_requests,
        trust=ProxyTrust(trust.every_peer, trust.networks),
    )
    app = make_app(gateway, rest, settings, site.entropy)
    stop = trio.Event()

    async def run(*, task_status: trio.TaskStatus[Any]) -> None:
        await serve(app, bound, stop=stop, task_status=task_status)

    # A second more than the drain itself, so that the orderly cut comes before the cancellation.
    web = task_child("web", run, stop=stop.set, shutdown_seconds=DRAIN_SECONDS + 1.0)
    return web, bound.url


def _ignore(told: bool) -> None:
    """A nudge that nobody takes is no loss: the next look finds the row."""
