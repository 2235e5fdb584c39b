"""The dependencies that the children of the service share, and the children made from them.

The actors of deliveries, mail and app jobs, the lockouts, and the gateway, which requests enter
through. `tree` gives them their order, `front` makes the front end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
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
from fw_actors.actors.metrics import Counter, DeliveryMeter, MetricSample
from fw_actors.actors.outcome_writer import OutcomeWriter
from fw_actors.actors.queue_worker import ATTEMPT_OUTCOMES
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
from fw_actors.ops import mail_queue
from fw_actors.ops.mail_queue import MailComposer
from fw_actors.ops.queued_jobs import APP_QUEUE
from fw_actors.ops.site import Site
from fw_actors.rules.delivery import Backoff
from fw_actors.runtime import KeyedPool, Log, Runtime
from fw_actors.store import Store, Tx
from fw_actors.webhooks.deliveries import Deliveries
from fw_actors.webhooks.diagnostics import TestEventSender
from fw_actors.webhooks.signing_keys import SigningKeys
from supervisors.children import ChildSpec, actor_child, pool_child
from supervisors.service.control_channel import PeerProcesses
from supervisors.service.process import DRAIN_SECONDS

RELEASE_SECONDS: Final = delivery.RELEASE_SECONDS
"""The time for releasing leases after the time to drain is over."""


def _attempt_counters() -> Mapping[str, Counter]:
    return {queue: Counter(ATTEMPT_OUTCOMES) for queue in (mail_queue.QUEUE, APP_QUEUE)}


@dataclass(frozen=True)
class ServiceDependencies:
    """The shared dependencies, created once before the first child.

    `url` is the start of links: the public URL, or the bound address. `slow_reads` is a store on
    the same database for slow reads of an app's functions. `transport` replaces the configured mail
    transport. `peers` are the other processes of the service, if it has several. `paused` are
    the paused receivers, which the Dispatcher keeps up to date, so that its restart changes none.
    `attempted` counts attempts of mails and of jobs of apps, by queue.
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
    peers: PeerProcesses | None = None
    paused: set[str] = field(default_factory=set)
    attempted: Mapping[str, Counter] = field(default_factory=_attempt_counters)


MAX_LOCKOUTS: Final = 10_000  # identifiers with a sign-in in progress or just finished
PROBE: Final = "probe"
"""The StoreProbe that checks whether the store answers."""


def access(
    deps: ServiceDependencies, samples: Callable[[], Awaitable[Sequence[MetricSample]]]
) -> tuple[ChildSpec, Gateway]:
    """Return the pool of lockouts, and the gateway over all dependencies.

    `samples` returns the samples of `/metrics`.
    """
    site = deps.site
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
    attempts = AttemptLog(deps.signed_in, deps.log)
    lockouts = KeyedPool(
        deps.runtime,
        "lockouts",
        make=lambda key: LockoutActor(key, sign_in, changes, attempts),
        capacity=MAX_LOCKOUTS,
        idle_seconds=_IDLE_SECONDS,
        mailbox=lockout_mailbox(site.config.auth.max_login_attempts),
    )
    links = Links(site.config.auth, site.entropy, deps.url)
    recovery, invitation = _link_uses(deps, links)
    gateway = Gateway(
        site=site,
        sign_in=sign_in,
        changes=changes,
        lockouts=lockouts,
        attempts=attempts,
        keys=KeyUse(site.store, site.api_keys, site.entropy, site.installation_key),
        recovery=recovery,
        invitation=invitation,
        users=UserAdministration(site, links, deps.log),
        test_events=TestEventSender(site, deps.sender),
        samples=samples,
        probe=deps.runtime.ref(PROBE),
        dispatcher=deps.runtime.ref(DISPATCHER),
    )
    return pool_child("lockouts", lockouts), gateway


def _link_uses(deps: ServiceDependencies, links: Links) -> tuple[Recovery, Invitation]:
    site = deps.site
    throttle = RecoveryThrottle(site.config.auth, site.entropy, site.installation_key)
    link_use = LinkUse(
        site.store, site.hasher, links, site.passwords, throttle, site.audit, site.handle
    )
    recovery = Recovery(site.store, site.mail_queue, throttle, link_use, site.installation_key)
    return recovery, Invitation(link_use, site.handle)


def _new_device_notice(site: Site) -> NewDeviceNotice | None:
    if not site.config.auth.new_device_mail:
        return None

    def notify(tx: Tx, user: str, device: NewDevice) -> None:
        notice = Notice(new_device=device)
        site.mail_queue.to_user(tx, Template.NEW_DEVICE, user, owner=user, notice=notice)

    return notify


DISPATCHER: Final = "dispatcher"
OUTCOMES: Final = "outcomes"
_IDLE_SECONDS: Final = 30.0


def kept_connections(config: Config) -> PoolLimits:
    """Return pool limits that keep as many idle connections as attempts may be in flight."""
    ops = config.ops
    return PoolLimits(idle=ops.delivery_concurrency, idle_per_origin=ops.per_receiver_concurrency)


def delivering(deps: ServiceDependencies) -> Sequence[ChildSpec]:
    """Return the OutcomeWriter, the pool of DeliveryActors and the Dispatcher."""
    site, ops = deps.site, deps.site.config.ops
    backoff = Backoff(ops.backoff_seconds, ops.backoff_cap_seconds)
    traced = site.tracer is not None
    deliveries = Deliveries(backoff, worker=process_name(), traced=traced)
    attempts = AttemptsInFlight(deps.runtime.ref(DISPATCHER))
    dependencies = _delivery_dependencies(deps, deliveries, attempts)
    pool = KeyedPool(
        deps.runtime,
        "deliveries",
        capacity=ops.delivery_concurrency,
        idle_seconds=_IDLE_SECONDS,
        make=partial(DeliveryActor, dependencies=dependencies),
    )
    return (
        actor_child(
            OUTCOMES,
            lambda: OutcomeWriter(
                site.store, deliveries, site.clock, deps.log, slots=ops.delivery_concurrency
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
                paused=deps.paused,
            ),
        ),
    )


def _delivery_dependencies(
    deps: ServiceDependencies, deliveries: Deliveries, attempts: AttemptsInFlight
) -> DeliveryDependencies:
    site = deps.site
    return DeliveryDependencies(
        site.store,
        deliveries,
        deps.sender,
        SigningKeys(site.vault),
        site.clock,
        deps.log,
        deps.runtime.ref(DISPATCHER),
        deps.runtime.ref(OUTCOMES),
        attempts,
        deps.delivered,
        honour_retry_after=site.config.ops.honour_retry_after,
        scrubber=site.config.scrubber,
        tracer=site.tracer,
    )


MAILER: Final = "mailer"
APP_JOBS: Final = "app_jobs"
_SHUTDOWN_SECONDS: Final = DRAIN_SECONDS + RELEASE_SECONDS


def mailing(deps: ServiceDependencies) -> Sequence[ChildSpec]:
    """Return the Mailer and the runner of app jobs. Raises: ConfigurationError."""
    site, config = deps.site, deps.site.config
    backoff = Backoff(config.ops.backoff_seconds, config.ops.backoff_cap_seconds)
    links = Links(config.auth, site.entropy, deps.url)
    composer = MailComposer(links, config.site.name)
    transport = deps.transport or transport_of(deps)
    return (
        actor_child(
            MAILER,
            lambda: Mailer(
                site.store,
                composer,
                transport,
                backoff,
                config.scrubber,
                tracer=site.tracer,
                counted=deps.attempted[mail_queue.QUEUE],
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
                counted=deps.attempted[APP_QUEUE],
            ),
            shutdown_seconds=_SHUTDOWN_SECONDS,
        ),
    )


def transport_of(deps: ServiceDependencies) -> Transport:
    """Return the configured mail transport. Raises: ConfigurationError."""
    mail = deps.site.config.mail
    if mail.transport == "smtp":
        return SmtpTransport(mail, deps.site.clock, deps.site.entropy)
    if mail.transport == "method" and mail.method is not None:

        async def run(fn: Callable[[Fw], None]) -> None:
            await deps.slow_reads.read(lambda tx: fn(deps.site.handle(tx, ADMINISTRATOR)))

        return MethodTransport(mail.method, load_method(mail.method), run)
    return LogTransport(deps.log)
