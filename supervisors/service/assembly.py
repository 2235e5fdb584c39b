"""The dependencies that the children of the service share, and the children made from them.

The actors of deliveries, mail and app jobs, the lockouts, and the gateway, which requests enter
through. `tree` gives them their order, `front` makes the front end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from fw_actors.access.administration import UserAdministration
from fw_actors.access.api_keys import KeyUse
from fw_actors.access.links import Links
from fw_actors.access.passwords import PasswordChanges
from fw_actors.access.recovery import Invitation, LinkUse, Recovery, RecoveryThrottle
from fw_actors.access.sign_in import AttemptDependencies, NewDeviceNotice, SignIn
from fw_actors.actors import delivery
from fw_actors.actors.app_jobs import AppJobs
from fw_actors.actors.console import process_name
from fw_actors.actors.delivery import AttemptsInFlight, DeliveryActor, DeliveryDependencies
from fw_actors.actors.dispatcher import Dispatcher
from fw_actors.actors.gateway import Gateway
from fw_actors.actors.lockout import AttemptLog, LockoutActor, lockout_mailbox
from fw_actors.actors.mailer import Mailer
from fw_actors.actors.metrics import Counter, DeliveryMeter, Reading
from fw_actors.actors.outcome_writer import OutcomeWriter
from fw_actors.config import Config
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import ADMINISTRATOR
from fw_actors.http import PoolLimits, Sender
from fw_actors.mail import (
    LogTransport,
    MethodTransport,
    NewDevice,
    Notice,
    SmtpTransport,
    Template,
    Transport,
    load_method,
)
from fw_actors.ops.mail_queue import MailComposer
from fw_actors.ops.site import Site
from fw_actors.rules.delivery import Backoff
from fw_actors.runtime import KeyedPool, Log, Runtime
from fw_actors.store import Store, Tx
from fw_actors.webhooks.deliveries import Deliveries
from fw_actors.webhooks.diagnostics import Trial
from fw_actors.webhooks.signing_keys import SigningKeys
from supervisors.children import ChildSpec, actor_child, pool_child
from supervisors.service.control_channel import Siblings
from supervisors.service.process import DRAIN_SECONDS

GIVE_BACK_SECONDS: Final = delivery.GIVE_BACK_SECONDS
"""The time for releasing leases after the time to drain is over."""


@dataclass(frozen=True)
class Parts:
    """The shared dependencies, created once before the first child.

    `url` is the start of links: the public URL, or the bound address. `slow_reads` is a store on
    the same database for slow reads of an app's functions. `transport` replaces the configured mail
    transport. `siblings` are the other processes of the service, if it has several. `paused` are
    the paused receivers, which the Dispatcher keeps up to date, so that its restart changes none.
    """

    site: Site
    url: str
    runtime: Runtime
    sender: Sender
    slow_reads: Store
    log: Log
    signed_in: Counter
    delivered: DeliveryMeter
    recorded: Counter
    transport: Transport | None = None
    siblings: Siblings | None = None
    paused: set[str] = field(default_factory=set)


MAX_LOCKOUTS: Final = 10_000  # identifiers with a sign-in in progress or just finished
PROBE: Final = "probe"
"""The StoreProbe that checks whether the store answers."""


def access(
    parts: Parts, readings: Callable[[], Awaitable[Sequence[Reading]]]
) -> tuple[ChildSpec, Gateway]:
    """Return the pool of lockouts, and the gateway over all parts.

    `readings` returns the samples of `/metrics`.
    """
    site = parts.site
    dependencies = AttemptDependencies(
        site.store,
        site.hasher,
        site.accounts,
        site.config.auth,
        site.clock,
        site.entropy,
        site.installation_key,
        _new_device_notice(site),
    )
    sign_in, changes = SignIn(dependencies), PasswordChanges(dependencies, site.passwords)
    attempts = AttemptLog(parts.signed_in, parts.log)
    lockouts = KeyedPool(
        parts.runtime,
        "lockouts",
        make=lambda key: LockoutActor(key, sign_in, changes, attempts),
        capacity=MAX_LOCKOUTS,
        idle_seconds=_IDLE_SECONDS,
        mailbox=lockout_mailbox(site.config.auth.max_login_attempts),
    )
    links = Links(site.registry, site.config.auth, site.entropy, parts.url)
    recovery, invitation = _link_uses(parts, links)
    gateway = Gateway(
        site,
        sign_in,
        changes,
        lockouts,
        attempts,
        KeyUse(site.store, site.api_keys, site.accounts, site.entropy, site.installation_key),
        recovery,
        invitation,
        UserAdministration(site, links, parts.log),
        Trial(site, parts.sender),
        readings,
        parts.runtime.ref(PROBE),
        parts.runtime.ref(DISPATCHER),
    )
    return pool_child("lockouts", lockouts), gateway


def _link_uses(parts: Parts, links: Links) -> tuple[Recovery, Invitation]:
    site = parts.site
    throttle = RecoveryThrottle(site.config.auth, site.entropy, site.installation_key)
    link_use = LinkUse(
        site.store, site.hasher, links, site.passwords, throttle, site.audit, site.handle
    )
    recovery = Recovery(site.store, site.outbox, throttle, link_use, site.installation_key)
    return recovery, Invitation(link_use, site.handle)


def _new_device_notice(site: Site) -> NewDeviceNotice | None:
    if not site.config.auth.new_device_mail:
        return None

    def notify(tx: Tx, user: str, device: NewDevice) -> None:
        notice = Notice(new_device=device)
        site.outbox.to_user(tx, Template.NEW_DEVICE, user, owner=user, notice=notice)

    return notify


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
    attempts = AttemptsInFlight(parts.runtime.ref(DISPATCHER))
    dependencies = _delivery_dependencies(parts, deliveries, attempts)
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
                attempts,
                slots=ops.delivery_concurrency,
                per_receiver=ops.per_receiver_concurrency,
                paused=parts.paused,
            ),
        ),
    )


def _delivery_dependencies(
    parts: Parts, deliveries: Deliveries, attempts: AttemptsInFlight
) -> DeliveryDependencies:
    site = parts.site
    return DeliveryDependencies(
        site.store,
        deliveries,
        parts.sender,
        SigningKeys(site.vault),
        site.clock,
        parts.log,
        parts.runtime.ref(DISPATCHER),
        parts.runtime.ref(OUTCOMES),
        attempts,
        parts.delivered,
        honour_retry_after=site.config.ops.honour_retry_after,
        scrubber=site.config.scrubber,
        tracer=site.tracer,
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
            lambda: Mailer(
                site.store, composer, transport, backoff, config.scrubber, tracer=site.tracer
            ),
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
