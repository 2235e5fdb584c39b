"""The supervised actors of the queues: webhooks, mail, app jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from fw_actors.access.links import Links
from fw_actors.actors.background import AppJobs, Mailer
from fw_actors.actors.console import process_name
from fw_actors.actors.delivery import DeliveryActor, DeliveryDependencies
from fw_actors.actors.dispatcher import Dispatcher
from fw_actors.actors.outcome_writer import OutcomeWriter
from fw_actors.config import Config
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import ADMINISTRATOR
from fw_actors.http import PoolLimits
from fw_actors.mail import LogTransport, MethodTransport, SmtpTransport, Transport, load_method
from fw_actors.ops.mail_queue import MailComposer
from fw_actors.rules.delivery import Backoff
from fw_actors.runtime import KeyedPool
from fw_actors.webhooks.deliveries import Deliveries
from fw_actors.webhooks.signing_keys import SigningKeys
from supervisors.children import ChildSpec, actor_child, pool_child
from supervisors.service.parts import GIVE_BACK_SECONDS, Parts
from supervisors.service.process import DRAIN_SECONDS

DISPATCHER: Final = "dispatcher"
OUTCOMES: Final = "outcomes"
_IDLE_SECONDS: Final = 30.0


def kept_connections(config: Config) -> PoolLimits:
    """Return pool limits that keep as many idle connections as attempts may be in flight."""
    ops = config.ops
    return PoolLimits(idle=ops.delivery_concurrency, idle_per_origin=ops.per_receiver_concurrency)


def delivering(parts: Parts) -> Sequence[ChildSpec]:
    """Return the OutcomeWriter, the pool of DeliveryActors and the Dispatcher."""
    site, ops = parts.site, parts.site.config.ops
    backoff = Backoff(ops.backoff_seconds, ops.backoff_cap_seconds)
    traced = site.tracer is not None
    deliveries = Deliveries(site.registry, backoff, worker=process_name(), traced=traced)
    dispatcher, outcomes = parts.runtime.ref(DISPATCHER), parts.runtime.ref(OUTCOMES)
    dependencies = DeliveryDependencies(
        site.store,
        deliveries,
        parts.sender,
        SigningKeys(site.vault),
        site.clock,
        parts.log,
        dispatcher,
        outcomes,
        parts.delivered,
        honour_retry_after=ops.honour_retry_after,
        scrubber=site.config.scrubber,
        tracer=site.tracer,
    )
    pool = KeyedPool(
        parts.runtime,
        "deliveries",
        capacity=ops.delivery_concurrency,
        idle_seconds=_IDLE_SECONDS,
        make=partial(DeliveryActor, dependencies=dependencies),
    )
    return (
        actor_child(
            OUTCOMES,
            lambda: OutcomeWriter(
                site.store, deliveries, site.clock, parts.log, slots=ops.delivery_concurrency
            ),
        ),
        pool_child("deliveries", pool, shutdown_seconds=DRAIN_SECONDS),
        actor_child(
            DISPATCHER,
            lambda: Dispatcher(
                site.store,
                deliveries,
                pool,
                slots=ops.delivery_concurrency,
                per_receiver=ops.per_receiver_concurrency,
                paused=parts.paused,
            ),
        ),
    )


MAILER: Final = "mailer"
APP_JOBS: Final = "app_jobs"
_SHUTDOWN_SECONDS: Final = DRAIN_SECONDS + GIVE_BACK_SECONDS


def mailing(parts: Parts) -> Sequence[ChildSpec]:
    """Return the Mailer and the runner of app jobs. Raises: ConfigurationError."""
    site, config = parts.site, parts.site.config
    backoff = Backoff(config.ops.backoff_seconds, config.ops.backoff_cap_seconds)
    links = Links(site.registry, config.auth, site.entropy, parts.url)
    composer = MailComposer(site.registry, links, config.site.name)
    transport = parts.transport or transport_of(parts)
    return (
        actor_child(
            MAILER,
            lambda: Mailer(site.store, composer, transport, backoff, config.scrubber),
            shutdown_seconds=_SHUTDOWN_SECONDS,
        ),
        actor_child(
            APP_JOBS,
            lambda: AppJobs(
                site.store,
                site.handle,
                backoff,
                site.errors.note,
                config.scrubber,
                tracer=site.tracer,
            ),
            shutdown_seconds=_SHUTDOWN_SECONDS,
        ),
    )


def transport_of(parts: Parts) -> Transport:
    """Return the configured mail transport. Raises: ConfigurationError."""
    mail = parts.site.config.mail
    if mail.transport == "smtp":
        return SmtpTransport(mail, parts.site.clock, parts.site.entropy)
    if mail.transport == "method" and mail.method is not None:

        async def run(fn: Callable[[Fw], None]) -> None:
            await parts.slow_reads.read(lambda tx: fn(parts.site.handle(tx, ADMINISTRATOR)))

        return MethodTransport(mail.method, load_method(mail.method), run)
    return LogTransport(parts.log)
