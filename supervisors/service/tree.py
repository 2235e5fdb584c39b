"""The supervision tree of the service: children start in order and stop in reverse.

A stop first closes the front, then stops leasing deliveries, then drains work in progress, and
closes the store last. The children are defined in `assembly` and `front`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio

from fw_actors.actors.background import (
    ErrorWriter,
    Replayer,
    StoreProbe,
    SubscriptionWatch,
    store_answers,
)
from fw_actors.actors.console import Console, ServiceConsole
from fw_actors.actors.gateway import Gateway
from fw_actors.actors.metrics import Counter, DeliveryMeter
from fw_actors.actors.queue_worker import Drain, QueueWakeUps, Waker
from fw_actors.actors.sweeper import (
    DAILY,
    EACH_MINUTE,
    HOURLY,
    Batch,
    ClockCorrection,
    Schedule,
    Sweeper,
    audit_batches,
    auth_batches,
    webhook_batches,
)
from fw_actors.config import Config
from fw_actors.documents.permissions import ADMINISTRATOR
from fw_actors.http import open_sender
from fw_actors.ops import error_log, mail_queue, queued_jobs
from fw_actors.ops.data_migrations import pending
from fw_actors.ops.site import Site, open_site, open_store
from fw_actors.ops.stored_secrets import secret_facts
from fw_actors.rules.receivers import OutageAction
from fw_actors.runtime import (
    ActorRef,
    Clock,
    Entropy,
    Log,
    Runtime,
    SystemClock,
    SystemEntropy,
    open_runtime,
)
from fw_actors.store import Store, Tx
from fw_actors.tracing import CURRENT_TRACE, Tracer
from fw_actors.webhooks import events, replay
from fw_actors.webhooks.signing_keys import end_rotation
from fw_actors.webhooks.subscriptions import SharedSubscriptions
from supervisors.children import ChildSpec, actor_child, task_child
from supervisors.service.assembly import (
    APP_JOBS,
    DISPATCHER,
    MAILER,
    PROBE,
    RELEASE_SECONDS,
    ServiceDependencies,
    access,
    delivering,
    kept_connections,
    mailing,
)
from supervisors.service.console_socket import console_socket
from supervisors.service.control_channel import PeerProcesses
from supervisors.service.front import (
    Start,
    answering_while_starting,
    application,
    health_of,
    listening,
    monitoring,
    server_child,
)
from supervisors.service.metrics import BACKLOG_PROBE, ProcessMetrics
from supervisors.service.process import DRAIN_SECONDS
from supervisors.service.site_files import SitePaths, site_url
from supervisors.service.telemetry import open_tracer
from supervisors.tree import open_supervisor
from web.app import FrontEnd
from web.listening import Bound

SIGN_IN_OUTCOMES: Final = ("signed_in", "wrong", "throttled", "overloaded")
DELIVERY_OUTCOMES: Final = ("Sent", "Retrying", "Failed")
ERRORS: Final = "error_writer"
REPLAYER: Final = "replayer"
WORKERS: Final = {
    events.QUEUE: DISPATCHER,
    mail_queue.QUEUE: MAILER,
    queued_jobs.APP_QUEUE: APP_JOBS,
    error_log.QUEUE: ERRORS,
    replay.REPLAYS: REPLAYER,
}
"""The actor that works on each queue."""


@dataclass(frozen=True)
class Inherited:
    """The resources that one of several processes gets from its supervisor.

    `alone`: no other process accepts requests while this one starts.
    """

    bound: Bound
    subscriptions: SharedSubscriptions
    peers: PeerProcesses
    alone: bool


@dataclass(frozen=True)
class RunningService:
    """A service that accepts requests; `url` is empty for a worker that does not listen."""

    url: str
    site: Site
    gateway: Gateway
    runtime: Runtime

    async def failed(self) -> None:
        """Wait forever: the supervisor raises a permanent failure out of `open_service`."""
        await trio.sleep_forever()

    async def answers(self, seconds: float) -> bool:
        """Return whether the store answers within `seconds`."""
        return await store_answers(self.runtime.ref(PROBE), seconds)


@asynccontextmanager
async def open_service(
    config: Config,
    *,
    log: Log,
    front: bool = True,
    bound: Bound | None = None,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    inline: bool = False,
    run_folder: Path | None = None,
    inherited: Inherited | None = None,
) -> AsyncIterator[RunningService]:
    """Run a site's service; without `front` it is a worker, which delivers webhooks and mail, runs
    the jobs of apps, and serves health checks on `bound`. `run_folder` contains the console's
    socket. `inherited` is given to one of several processes, whose `config` is its own part.

    Yields once it accepts requests. Leaving is the graceful stop; cancelling stops at once.

    Raises: ConfigurationError; SupervisorFailed if a child cannot be kept running.
    """
    clock = clock or SystemClock(config.deployment.clock_offset)
    entropy = entropy or SystemEntropy()
    with _address(config, inherited, bound, front=front) as address:
        # While another process serves requests, this one accepts none before it is ready.
        starting = address if inherited is None or inherited.alone else None
        async with (
            _starting(config, starting, entropy) as start,
            open_tracer(config, entropy, log) as tracer,
            open_runtime(
                clock=clock,
                entropy=entropy,
                log=log,
                scrub=config.scrubber.scrub_known,
                carry=() if tracer is None else (CURRENT_TRACE,),
                hooks=None if tracer is None else tracer.hooks,
            ) as runtime,
            _open_dependencies(
                config,
                runtime,
                log,
                address if front else None,
                tracer,
                inline=inline,
                inherited=inherited,
            ) as deps,
        ):
            if config.place.number == 1:
                await _warn_of_secrets(deps.site, log)
                await _warn_of_migrations(deps.site, log)
            has_socket = front and not inline and config.place.number == 1
            paths = SitePaths(config.folder, run_folder) if has_socket else None
            async with run_service_tree(deps, address, paths, front=front, start=start) as service:
                yield service


@asynccontextmanager
async def _open_dependencies(
    config: Config,
    runtime: Runtime,
    log: Log,
    bound: Bound | None,
    tracer: Tracer | None,
    *,
    inline: bool,
    inherited: Inherited | None,
) -> AsyncIterator[ServiceDependencies]:
    """Open site, sender and readers, which the children of the service share."""
    recorded = Counter(WORKERS)
    workers = {queue: runtime.ref(name) for queue, name in WORKERS.items()}

    opening = open_site(
        config,
        clock=runtime.clock,
        entropy=runtime.entropy,
        inline=inline,
        durable=not inline,
        recorded=partial(QueueWakeUps, recorded, workers),
        shared=None if inherited is None else inherited.subscriptions,
        tracer=tracer,
    )
    async with (
        opening as site,
        open_sender(
            limits=kept_connections(config),
            policy=config.outgoing,
            proxy=config.egress_proxy,
            certificates=config.client_certificates,
        ) as sender,
        _slow_reads(site, inline=inline) as slow_reads,
    ):
        peers = None if inherited is None else inherited.peers
        yield ServiceDependencies(
            site=site,
            url=_url(config, bound),
            runtime=runtime,
            sender=sender,
            slow_reads=slow_reads,
            log=log,
            signed_in=Counter(SIGN_IN_OUTCOMES),
            delivered=DeliveryMeter(DELIVERY_OUTCOMES),
            recorded=recorded,
            peers=peers,
            paused=set() if peers is None else set(await peers.paused_receivers()),
        )


@asynccontextmanager
async def run_service_tree(
    deps: ServiceDependencies,
    bound: Bound | None,
    paths: SitePaths | None = None,
    *,
    front: bool = True,
    start: Start | None = None,
) -> AsyncIterator[RunningService]:
    """Run the tree over open dependencies; `start` has served the address until now.

    Without `bound` there is no server; without `front` it serves only health and metrics. Without
    `paths` there is no socket of the console.
    """
    lockouts, gateway = access(deps, ProcessMetrics(deps))
    children = _actors(deps, lockouts)
    app: FrontEnd | None = None
    if bound is not None and not front:
        app = monitoring(deps, bound, gateway)
    elif bound is not None:
        app = _front_end(deps, bound, paths, gateway, children)
    if app is not None and bound is not None:
        children.append(server_child(app, bound, None if start is None else start.connections))
    stop_seconds = DRAIN_SECONDS + RELEASE_SECONDS
    async with open_supervisor(deps.runtime, "service", children, stop_seconds=stop_seconds):
        gateway.open()
        if start is not None and app is not None:
            start.hand_over(app)
        try:
            url = "" if bound is None else bound.url
            # Only while there are workers: before and after, a wake-up would be a dead letter.
            with _woken_by_external_commits(deps):
                yield RunningService(url, deps.site, gateway, deps.runtime)
        finally:
            gateway.drain()
            for name in (MAILER, APP_JOBS):  # they drain while the others stop
                deps.runtime.ref(name).tell(Drain(DRAIN_SECONDS))


def _actors(deps: ServiceDependencies, lockouts: ChildSpec) -> list[ChildSpec]:
    """Return the actors of every process in their order; `lockouts` is the pool of LockoutActors.

    One probe has a reserved reader: it answers while queries occupy the other readers.
    """
    site = deps.site
    children: list[ChildSpec] = [
        actor_child(PROBE, lambda: StoreProbe(site.store, reserved=True)),
        actor_child(BACKLOG_PROBE, lambda: StoreProbe(site.store)),
        actor_child(ERRORS, lambda: ErrorWriter(site.store, site.errors)),
        lockouts,
        *mailing(deps),
        *delivering(deps),
        actor_child(REPLAYER, lambda: Replayer(site, deps.log)),
    ]
    if site.config.ops.scheduler:
        children.append(actor_child("sweeper", lambda: _sweeper(deps)))
    if site.config.place.number == 1:
        children.append(actor_child("subscription_watch", lambda: _watch(deps)))
    return children


def _front_end(
    deps: ServiceDependencies,
    bound: Bound,
    paths: SitePaths | None,
    gateway: Gateway,
    children: list[ChildSpec],
) -> FrontEnd:
    """Return the whole front end; with `paths`, add the children of its console."""
    console = _console(deps, deps.runtime.ref(DISPATCHER))
    health = health_of(deps, gateway)
    if paths is not None:
        paths.prepare()
        children += (
            task_child("console_history", console.keep_history),
            console_socket(paths.console, paths.run_folder, console, deps.log, health.exposition),
        )
    return application(deps, gateway, console, health)


@contextmanager
def _woken_by_external_commits(deps: ServiceDependencies) -> Iterator[None]:
    """Wake up all queue workers after commits of other processes."""
    wakers = [Waker(deps.runtime.ref(name), elsewhere=True) for name in WORKERS.values()]

    def wake_up() -> None:
        for waker in wakers:
            waker()

    unsubscribe = deps.site.store.on_external_commit(wake_up)
    try:
        yield
    finally:
        unsubscribe()


@asynccontextmanager
async def _starting(
    config: Config, bound: Bound | None, entropy: Entropy
) -> AsyncIterator[Start | None]:
    """Serve `bound` from now on, until the service does."""
    if bound is None:
        yield None
        return
    async with answering_while_starting(config, bound, entropy) as start:
        yield start


def _address(
    config: Config, inherited: Inherited | None, bound: Bound | None, *, front: bool
) -> AbstractContextManager[Bound | None]:
    """Return the address on which the process accepts; None for a worker that does not listen."""
    if inherited is not None:
        return nullcontext(inherited.bound)
    return listening(config) if front else _closing(bound)


@contextmanager
def _closing(bound: Bound | None) -> Iterator[Bound | None]:
    try:
        yield bound
    finally:
        if bound is not None:
            bound.socket.close()


def _console(deps: ServiceDependencies, dispatcher: ActorRef) -> Console:
    site, runtime, peers = deps.site, deps.runtime, deps.peers
    if peers is None:
        return Console(site, runtime, dispatcher, deps.delivered)
    return ServiceConsole(site, runtime, dispatcher, deps.delivered, peers)


def _watch(deps: ServiceDependencies) -> SubscriptionWatch:
    site = deps.site
    refresh = site.config.ops.subscription_refresh
    return SubscriptionWatch(site.store, site.subscriptions, refresh=refresh)


async def _warn_of_secrets(site: Site, log: Log) -> None:
    """Log stored secrets that cannot be decrypted: deliveries that need them fail permanently."""
    for complaint in (await secret_facts(site, first_batches=True)).complaints():
        log.warning("service.secrets_unreadable", error=complaint, hint="fw doctor")


async def _warn_of_migrations(site: Site, log: Log) -> None:
    """Log the pending data migrations of apps, which can be run while the service runs."""
    for each in await site.store.read(lambda tx: pending(tx, site.registry)):
        log.warning("service.data_migration_pending", migration=str(each), hint="fw migrate")


def _slow_reads(site: Site, *, inline: bool) -> AbstractAsyncContextManager[Store]:
    """Return a store with its own readers for a mail transport that is an app's function: it uses
    the network and would block all other reads."""
    if inline or site.config.mail.transport != "method":
        return nullcontext(site.store)
    return open_store(site.config, site.clock, site.entropy, inline=False, limited=False)


def _url(config: Config, bound: Bound | None) -> str:
    return site_url(config) if bound is None else config.deployment.public_url or bound.url


def _sweeper(deps: ServiceDependencies) -> Sweeper:
    config = deps.site.config
    return Sweeper(
        deps.site.store,
        deps.log,
        {
            "auth": Schedule(HOURLY, auth_batches(config.auth.lockout_minutes)),
            "webhooks": Schedule(
                DAILY, webhook_batches(config.ops.webhook_retention_days, config.ops.payload_days)
            ),
            "audit": Schedule(DAILY, audit_batches(config.ops.audit_retention_days)),
            "receivers": Schedule(
                EACH_MINUTE, (_notices(deps), _rotations(deps)), batch=1, log_end=False
            ),
            "clock": Schedule(EACH_MINUTE, (_clock(deps),), batch=1, log_end=False),
        },
    )


def _notices(deps: ServiceDependencies) -> Batch:
    """Return the step that sends notices about failing receivers, and disables Webhooks."""
    site, log = deps.site, deps.log

    def log_action(action: OutageAction, webhook: str) -> None:
        if action is OutageAction.NOTICE:
            log.warning("receiver.failing", webhook=webhook)
        elif action is OutageAction.DISABLE:
            log.warning("receiver.disabled", webhook=webhook)
        else:
            log.info("receiver.recovered", webhook=webhook)

    def step(tx: Tx) -> int:
        return site.notices.step(tx, lambda tx: site.handle(tx, ADMINISTRATOR), log_action)

    return step


def _clock(deps: ServiceDependencies) -> Batch:
    """Return the step that corrects times which were stored while the clock was ahead."""
    auth, log = deps.site.config.auth, deps.log

    def corrected(rows: int) -> None:
        log.warning("clock.corrected", rows=rows)

    return ClockCorrection(
        auth.lockout_minutes, auth.session_days, auth.session_idle_days, corrected
    )


def _rotations(deps: ServiceDependencies) -> Batch:
    """Return the step that clears old signing secrets whose overlap has ended."""
    site = deps.site
    return lambda tx: end_rotation(tx, lambda tx: site.handle(tx, ADMINISTRATOR), site.audit)
