"""An open site: its store with current schema, its DocTypes, and transactions for users.

Command line, service and tests all open a site this way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import trio

from fw_actors.access.accounts import FIRST_ROLES, AccountRenames, Accounts
from fw_actors.access.api_keys import ApiKeys
from fw_actors.access.links import LinkRules
from fw_actors.access.passwords import NewPasswords, Passwords
from fw_actors.access.users import LastManagerRule, ScopeReferences, ScopeRules
from fw_actors.config import Config
from fw_actors.documents.core import CORE
from fw_actors.documents.handle import Fw, SiteContext
from fw_actors.documents.hooks import Observer
from fw_actors.documents.lifecycle import Documents
from fw_actors.documents.permissions import ADMINISTRATOR, Rights
from fw_actors.documents.registry import (
    Registry,
    declared_in,
    declared_migrations,
    load_apps,
)
from fw_actors.documents.tables import are_made, make_tables
from fw_actors.documents.vault import VaultCipher
from fw_actors.errors import FwError, OverloadedError, refuse_coroutine
from fw_actors.hashing import Hasher
from fw_actors.ops import error_log, mail_queue, queued_jobs
from fw_actors.ops.audit import AuditLog, DeletionAudit, DocumentAudit, VersionRecorder
from fw_actors.ops.data_migrations import refuse_older_apps
from fw_actors.ops.error_log import ErrorRecorder
from fw_actors.ops.mail_queue import MailQueue
from fw_actors.ops.queued_jobs import JobControl, JobRecorder, JobsOfUsers
from fw_actors.ops.stored_secrets import check_rotation
from fw_actors.rules.identifiers import DeliveryIds
from fw_actors.rules.receivers import NoticePolicy
from fw_actors.runtime import Clock, Entropy, SystemClock, SystemEntropy
from fw_actors.runtime.system import unwrap_single_error
from fw_actors.store import Store, StoreError, Tx, installation_key, open_sqlite
from fw_actors.store.store import MIGRATION_LOCK_SECONDS
from fw_actors.store.trio_sqlite import make_file
from fw_actors.tracing import Tracer
from fw_actors.webhooks import events, replay
from fw_actors.webhooks.cancellation import Cancellations
from fw_actors.webhooks.deliveries import DeliveryRenames, NamesOfDeletedWebhooks
from fw_actors.webhooks.events import CustomEvents, DeliveryRecorder, EventRecorder
from fw_actors.webhooks.health import HealthRenames
from fw_actors.webhooks.outage_notices import OutageEnds, ReceiverNotices, WebhookOwners
from fw_actors.webhooks.pacing import Pauses
from fw_actors.webhooks.replay import BulkReplays, Replays, RunRenames
from fw_actors.webhooks.subscriptions import (
    SharedSubscriptions,
    SubscriptionCache,
    SubscriptionRenewal,
    WebhookRules,
    refresh_forever,
)

T = TypeVar("T")


class _RolledBack(Exception):
    """Carries the result of a transaction that is rolled back on purpose."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _call(fn: Callable[[Fw], T], fw: Fw) -> T:
    """Return the result of a plain function; of another one nothing would run, without an error."""
    value = fn(fw)
    refuse_coroutine(getattr(fn, "__name__", "The function"), value)
    return value


@dataclass(frozen=True, kw_only=True)
class Site:
    """The parts that the service shares. `fn` always gets the handle `fw` (D-190)."""

    config: Config
    store: Store
    clock: Clock
    entropy: Entropy
    registry: Registry
    accounts: Accounts
    hasher: Hasher
    vault: VaultCipher
    context: SiteContext
    mail_queue: MailQueue
    new_passwords: NewPasswords
    audit: AuditLog
    subscriptions: SubscriptionCache
    replays: Replays
    pauses: Pauses
    cancellations: Cancellations
    bulk: BulkReplays
    errors: ErrorRecorder
    jobs: JobControl
    passwords: Passwords
    api_keys: ApiKeys
    installation_key: bytes
    notices: ReceiverNotices
    tracer: Tracer | None = None

    async def write(self, user: str, fn: Callable[[Fw], T], request_id: str = "") -> T:
        """Run the plain function `fn` as `user` in a transaction and commit it.

        Raises: what `fn` raises; UnawaitedCoroutineError if it is asynchronous.
        """
        return await self.store.write(lambda tx: _call(fn, self.handle(tx, user, request_id)))

    async def read(self, user: str, fn: Callable[[Fw], T], request_id: str = "") -> T:
        """Run `fn` as `user` against a snapshot."""
        return await self.store.read(lambda tx: _call(fn, self.handle(tx, user, request_id)))

    async def rollback(self, user: str, fn: Callable[[Fw], T]) -> T:
        """Run `fn` as `user` in a transaction that is rolled back; return its result."""

        def undone(tx: Tx) -> None:
            raise _RolledBack(_call(fn, self.handle(tx, user)))

        try:
            await self.store.write(undone)
        except _RolledBack as carried:
            value: T = carried.value
            return value
        raise AssertionError("a transaction that raises was committed")

    def handle(self, tx: Tx, user: str, request_id: str = "") -> Fw:
        """Return a handle on a transaction for a user. Raises: NotFoundError."""
        return self.context.handle(tx, user, request_id)

    async def hash_password(self, password: str, name: str, email: str) -> str:
        """Validate a new password and hash it. Raises: PasswordPolicyError, OverloadedError."""
        return await self.hasher.hash(password, name=name, email=email)


LAST_ERRORS_SECONDS: Final = 5.0
_SECONDS_BETWEEN_PREPARATIONS: Final = 0.1  # each waits for the lock itself


JobsRecorded = Callable[[str], None]
"""Called on trio's thread with a queue's name after each commit that contains a job."""


def _notify_others(store: Store) -> JobsRecorded:
    return lambda _queue: store.notify_others()


@asynccontextmanager
async def open_site(
    config: Config,
    *,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    inline: bool = False,
    durable: bool = True,
    limited: bool = True,
    recorded: Callable[[Store], JobsRecorded] | None = None,
    rekeying: bool = False,
    restoring: bool = False,
    shared: SharedSubscriptions | None = None,
    tracer: Tracer | None = None,
) -> AsyncIterator[Site]:
    """Open a site: create or migrate its store, load its apps, create their tables and roles.

    `inline` runs store and hasher on the caller's task: for `fw shell`, and for tests under trio's
    MockClock. `durable`: commits wait for the disk; False is for tests.
    `limited`: whether queries are limited to `ops.queryTimeoutSeconds`.
    `recorded` makes the function that is called after commits with jobs, and with `errors` for each
    queued defect; without it, the processes that serve the site are notified of these commits.
    `rekeying` also opens a site whose Vault values are being moved from one key to another, and
    `restoring` one into which a backup is being restored.
    `shared`: the subscriptions that the processes of a service share. `tracer` records traces if
    `ops.traceContext` is on.

    Raises: ConfigurationError, with all problems of apps and DocTypes at once.
    """
    clock = clock or SystemClock(config.deployment.clock_offset)
    entropy = entropy or SystemEntropy()
    registry = make_registry(config)
    if config.ops.trace_context and tracer is None:
        tracer = Tracer(entropy)
    async with open_store(
        config,
        clock,
        entropy,
        inline=inline,
        durable=durable,
        limited=limited,
        restoring=restoring,
    ) as store:
        hasher = Hasher.of(config, entropy, inline=inline)
        key = await store.read(installation_key)
        site = _assembled(
            config,
            store,
            clock=clock,
            entropy=entropy,
            registry=registry,
            hasher=hasher,
            key=key,
            recorded=(_notify_others if recorded is None else recorded)(store),
            shared=shared,
            tracer=tracer,
        )
        if not rekeying:
            await store.read(lambda tx: check_rotation(tx, site.vault.key_id))
        await _prepare(site)
        store.tracer = tracer
        try:
            async with _refreshed(site, recorded is None and not inline):
                yield site
        finally:
            await _write_last_errors(site)


async def _write_last_errors(site: Site) -> None:
    """Write the defects of a command's hooks, or of the last moments of a service.

    Shielded, because both also end by an error or a cancellation. The log contains the defects too,
    so that a store that does not take them must not change how they end.
    """
    if not site.errors.waits:
        return
    with trio.move_on_after(LAST_ERRORS_SECONDS, shield=True), suppress(FwError, StoreError):
        await site.store.write(site.errors.flush)


@asynccontextmanager
async def _refreshed(site: Site, is_program: bool) -> AsyncIterator[None]:
    """Keep the subscriptions of a program up to date, where `ops.subscriptionRefresh` is on."""
    if not (is_program and site.config.ops.subscription_refresh):
        yield
        return
    with unwrap_single_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(refresh_forever, site.store, site.subscriptions)
            yield
            nursery.cancel_scope.cancel()


def _assembled(
    config: Config,
    store: Store,
    *,
    clock: Clock,
    entropy: Entropy,
    registry: Registry,
    hasher: Hasher,
    key: bytes,
    recorded: JobsRecorded,
    shared: SharedSubscriptions | None,
    tracer: Tracer | None,
) -> Site:
    """Put the parts together; nothing is read or written yet."""
    vault = VaultCipher(config.secrets.key, entropy)
    accounts = Accounts()
    subscriptions = SubscriptionCache(shared)
    audit = AuditLog(entropy)
    mail_queued = partial(recorded, mail_queue.QUEUE)
    mails = MailQueue(entropy, config.site.name, mail_queued, tracer)
    api_keys = ApiKeys(entropy, audit)
    passwords = Passwords(mails, api_keys, audit, key, config.auth.session_idle_days)
    new_passwords = NewPasswords(hasher, passwords, audit)
    publisher, custom = _event_recorders(config, registry, subscriptions, entropy, recorded, tracer)
    policy = NoticePolicy(config.ops.receiver_notice, config.ops.disable_after_days)
    notices = ReceiverNotices(policy, custom, mails, audit)
    observers = (
        *_rules_of_users(registry, audit, accounts, api_keys, new_passwords),
        WebhookRules(
            registry,
            development=config.deployment.mode == "development",
            certificates=config.client_certificates,
        ),
        WebhookOwners(),
        OutageEnds(notices),  # before HealthRenames, which drops the row of a deleted Webhook
        AccountRenames(registry.roles()),
        JobsOfUsers(),
        DeliveryRenames(subscriptions),
        NamesOfDeletedWebhooks(),
        HealthRenames(),
        RunRenames(),  # after DeliveryRenames: it locks deliveries first, as a batch does
        VersionRecorder(entropy),
        SubscriptionRenewal(subscriptions, partial(recorded, events.QUEUE)),
        publisher,
    )
    errors = ErrorRecorder(entropy, config.scrubber, partial(recorded, error_log.QUEUE))
    documents = Documents(registry, vault, entropy, observers, errors.note)
    replays = Replays(audit, partial(recorded, events.QUEUE))
    pauses = Pauses(audit, partial(recorded, events.QUEUE))
    cancellations = Cancellations(audit, entropy, partial(recorded, events.QUEUE))
    bulk = BulkReplays(replays, audit, entropy, partial(recorded, replay.REPLAYS))
    enqueue = JobRecorder(partial(recorded, queued_jobs.APP_QUEUE), tracer)
    context = SiteContext(
        documents, custom.emit, custom.emit_many, accounts.rights, enqueue, config.secrets
    )
    return Site(
        config=config,
        store=store,
        clock=clock,
        entropy=entropy,
        registry=registry,
        accounts=accounts,
        hasher=hasher,
        vault=vault,
        context=context,
        mail_queue=mails,
        new_passwords=new_passwords,
        audit=audit,
        subscriptions=subscriptions,
        replays=replays,
        pauses=pauses,
        cancellations=cancellations,
        bulk=bulk,
        errors=errors,
        jobs=JobControl(audit, recorded),
        passwords=passwords,
        api_keys=api_keys,
        installation_key=key,
        notices=notices,
        tracer=tracer,
    )


def _event_recorders(
    config: Config,
    registry: Registry,
    subscriptions: SubscriptionCache,
    entropy: Entropy,
    recorded: JobsRecorded,
    tracer: Tracer | None,
) -> tuple[EventRecorder, CustomEvents]:
    """Return the recorders of events of documents and of apps, which share one of deliveries."""
    off = config.deployment.webhooks_off
    deliveries = DeliveryRecorder(
        subscriptions, DeliveryIds(entropy.bytes), partial(recorded, events.QUEUE), tracer
    )
    return (
        EventRecorder(registry, subscriptions, deliveries, off=off),
        CustomEvents(subscriptions, deliveries, off=off),
    )


def _rules_of_users(
    registry: Registry,
    audit: AuditLog,
    accounts: Accounts,
    api_keys: ApiKeys,
    new_passwords: NewPasswords,
) -> tuple[Observer, ...]:
    """Return the observers of accounts in the order in which they must see a change."""
    return (
        LastManagerRule(),
        accounts,
        LinkRules(),
        api_keys,
        ScopeRules(registry),
        ScopeReferences(audit),
        DeletionAudit(audit),
        DocumentAudit(audit),  # must see a new password before it is stored and cleared
        new_passwords,
    )


def make_registry(config: Config) -> Registry:
    """Load the site's apps and validate all DocTypes together. Raises: ConfigurationError."""
    apps = load_apps(config.apps, config.folder)
    doctypes, functions = declared_in(apps)
    return Registry((*CORE, *doctypes), functions, declared_migrations(apps))


def open_store(
    config: Config,
    clock: Clock,
    entropy: Entropy,
    *,
    inline: bool,
    durable: bool = True,
    limited: bool = True,
    restoring: bool = False,
) -> AbstractAsyncContextManager[Store]:
    """Open the store of FW_DATABASE. Raises: ConfigurationError.

    Args: as in `open_site`.
    """
    query_seconds = config.ops.query_timeout_seconds if limited else None
    if config.sqlite_file is not None:
        return open_sqlite(
            config.sqlite_file,
            clock=clock,
            entropy=entropy,
            inline=inline,
            durable=durable,
            query_seconds=query_seconds,
        )
    from fw_actors.store.postgres import open_postgres  # few sites need its driver

    return open_postgres(
        config.deployment.database,
        clock=clock,
        entropy=entropy,
        inline=inline,
        durable=durable,
        query_seconds=query_seconds,
        restoring=restoring,
    )


def check_store(config: Config) -> None:
    """Check that the database answers; its tables are neither created nor migrated.

    Raises: ConfigurationError, as `open_store` does.
    """
    if config.sqlite_file is not None:
        make_file(config.sqlite_file)
        return
    from fw_actors.store.postgres import check_postgres  # few sites need its driver

    check_postgres(config.deployment.database)


async def _prepare(site: Site) -> None:
    """Prepare the store; wait as long as `open_store` does while another process prepares it.

    A prepared store is only read, so that a command can open it while a write of another process
    hangs. Of two nodes that start at once, one makes the new indexes, which may take longer than a
    write waits for a lock. A wait for a table is not repeated: on PostgreSQL all other requests for
    the table would wait behind it each time.

    Raises: OverloadedError.
    """
    last = trio.current_time() + MIGRATION_LOCK_SECONDS
    while True:
        begun = False

        def prepare(tx: Tx) -> None:
            nonlocal begun
            tx.lock("fw.migrations")
            refuse_older_apps(tx, site.registry)  # on SQLite the first statement takes the lock
            begun = True
            _prepare_store(tx, site)

        try:
            if not await site.store.read(partial(_is_prepared, site=site)):
                await site.store.write(prepare)
            break
        except OverloadedError:
            if begun or trio.current_time() >= last:
                raise
        await trio.sleep(_SECONDS_BETWEEN_PREPARATIONS)
    await site.subscriptions.read_at_start(site.store)


def _is_prepared(tx: Tx, site: Site) -> bool:
    """Return whether `_prepare_store` would change nothing."""
    refuse_older_apps(tx, site.registry)
    tables = site.registry.tables
    return are_made(tx, tables.values()) and all(
        tables["Role"].exists(tx, role) for role in _roles(site.registry)
    )


def _prepare_store(tx: Tx, site: Site) -> None:
    """Create the tables of DocTypes and the missing roles.

    Creating roles that the site's code names is not a user's change: it writes no Audit Event.
    """
    registry = site.registry
    make_tables(tx, registry.tables.values())
    fw = Fw(site.context, tx, Rights(ADMINISTRATOR, frozenset()))
    with site.audit.suppressed(tx):
        for role in _roles(registry):
            if not registry.tables["Role"].exists(tx, role):
                fw.new_doc("Role", name=role).insert()


def _roles(registry: Registry) -> tuple[str, ...]:
    """Return the roles that a site has from its start."""
    return (*FIRST_ROLES, *registry.roles())
