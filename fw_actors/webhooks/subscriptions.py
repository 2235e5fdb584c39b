"""Validation of Webhook documents, and the index of subscriptions by event.

A change from outside takes effect at the next restart, by design (B-42). Therefore a save reads the
entries that it invalidates (B-41) in its transaction; the next write would include such changes.

The processes of one service have the subscriptions in shared memory. A Webhook that is saved in one
process applies to writes that start later in any of them (B-41). The saving process publishes the
subscriptions that it has read in its transaction before the save is answered, and each process
compares a few bytes of the memory before it uses its cached copy. No process has to be notified or
waited for, so a frozen or killed process does not delay the others.

Each process writes only its own part: a stamp, the position of its newest snapshot, and two areas
that it uses alternately. The snapshot with the highest stamp is the current one. Stamps are taken
in transactions that exclude each other, so that their order is that of the commits.

The module has more than 500 lines because both parts are about the same columns of a Webhook.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec
import sqlalchemy as sa
import trio

from fw_actors.config import ClientCertificate, ProcessPlace
from fw_actors.documents.core import BY_DOCUMENT, CUSTOM, DOCUMENT, Webhook
from fw_actors.documents.doctype import ROW_ID
from fw_actors.documents.handle import DocType, Fw
from fw_actors.documents.hooks import DB_SET, Observer
from fw_actors.documents.permissions import MANAGERS_ONLY
from fw_actors.documents.registry import Registry
from fw_actors.documents.tables import table_of, valid_number
from fw_actors.errors import OverloadedError, ValidationError
from fw_actors.http import Endpoint, parse_endpoint
from fw_actors.http.tls import UnusableCertificateError, check_certificate
from fw_actors.rules.identifiers import is_invisible
from fw_actors.rules.signing import (
    DOCUMENT_EVENTS,
    UnusableEventNameError,
    UnusableSecretError,
    validate_event_name,
    validate_secret,
)
from fw_actors.store import Row, Statement, Store, Tx

REFRESH_SECONDS: Final = 0.5  # with the transaction that applies it, below a second
_WORD: Final = 8  # bytes
_STAMP_WORDS: Final = 64
"""The first words of the memory: the stamp of each process, 0 before its first snapshot."""
_PLACE_WORDS: Final = 3
"""Then for each process: offset, length and checksum of its newest snapshot."""
_HEADER: Final = (_STAMP_WORDS * (1 + _PLACE_WORDS)) * _WORD
_AREA: Final = 1 << 30
"""The largest snapshot in bytes; the file is sparse."""
_ATTEMPTS: Final = 1000


@dataclass(frozen=True, slots=True)
class Subscription:
    """The columns of an enabled Webhook that recording an event needs."""

    webhook: str
    max_attempts: int
    row_id: str | None  # distinguishes a renamed Webhook from a deleted one and from its namesake
    ordered: bool = False  # one delivery at a time for each document


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """All enabled Webhooks by subscribed event, in the order of their names."""

    documents: Mapping[tuple[str, str], tuple[Subscription, ...]]  # (DocType, on_…)
    custom: Mapping[str, tuple[Subscription, ...]]


_DECODER: Final = msgspec.msgpack.Decoder(Subscriptions)


class _ChangedMeanwhile(Exception):
    """Raised if a snapshot was replaced while it was read."""


class SharedSubscriptions:
    """One process's view of the shared subscriptions. May be used by any thread."""

    def __init__(self, descriptor: int, place: ProcessPlace) -> None:
        """`descriptor` is that of zeroed shared memory; it is closed with this object."""
        self._descriptor = descriptor
        self._own = place.number - 1
        self._memory = mmap.mmap(descriptor, _HEADER)
        self._words = memoryview(self._memory).cast("Q")
        self._lock = threading.Lock()

    @staticmethod
    def stamp() -> int:
        """Return a stamp that is higher than all earlier ones on this machine.

        Call it in a transaction that excludes other changes of Webhooks.
        """
        return time.monotonic_ns()  # one clock for all processes

    def publish(self, stamp: int, subscriptions: Subscriptions) -> None:
        """Make `subscriptions` the subscriptions of all processes, unless they have newer ones.

        If the memory is full, each process reads the subscriptions from the store instead.
        """
        with self._lock:
            if stamp <= self._words[self._own]:
                return
            content = msgspec.msgpack.encode(subscriptions)
            place = _STAMP_WORDS + _PLACE_WORDS * self._own
            base = _HEADER + 2 * _AREA * self._own
            offset = base + _AREA if self._words[place] == base else base
            length = len(content)
            try:
                if length > _AREA or os.pwrite(self._descriptor, content, offset) != length:
                    length = 0
            except OSError:
                length = 0
            self._words[place] = offset
            self._words[place + 1] = length
            self._words[place + 2] = zlib.crc32(content)
            self._words[self._own] = stamp

    def stamps(self) -> bytes:
        """Return the stamps of all processes, which change with each publication. It is cheap."""
        return self._memory[: _STAMP_WORDS * _WORD]

    def newest(self, stamps: bytes) -> Subscriptions | None:
        """Return the snapshot with the highest of `stamps`; None: read it from the store."""
        words = memoryview(stamps).cast("Q")
        with self._lock:
            for _ in range(_ATTEMPTS):
                with suppress(_ChangedMeanwhile):
                    return self._snapshot(words.tolist().index(max(words)))
        return None  # its writer was killed in between

    def _snapshot(self, process: int) -> Subscriptions | None:
        """Return the newest snapshot of a process. Raises: _ChangedMeanwhile."""
        place = _STAMP_WORDS + _PLACE_WORDS * process
        offset, length, checksum = self._words[place : place + _PLACE_WORDS].tolist()
        if not length:
            return None
        content = os.pread(self._descriptor, length, offset)
        if zlib.crc32(content) != checksum:
            raise _ChangedMeanwhile
        return _DECODER.decode(content)

    def close(self) -> None:
        """Release the memory."""
        self._words.release()
        self._memory.close()
        with suppress(OSError):
            os.close(self._descriptor)


UNWATCHABLE: Final = frozenset(
    {*MANAGERS_ONLY, "Audit Event", "Version", "Error Log", "Email Delivery"}
)


def _locked(select: sa.Select[Any]) -> sa.Select[Any]:
    return select.with_for_update(read=True, key_share=True)


_W: Final = table_of(Webhook).table.c
_KEY: Final[sa.BindParameter[Any]] = sa.bindparam("key")
_ENABLED: Final = Statement(
    sa.select(
        _W.name,
        valid_number(Webhook, "max_attempts"),  # raw SQL may have written anything
        _W[ROW_ID],
        _W.event_type,
        _W.webhook_doctype,
        _W.custom_event,
        _W.ordering,
        *(_W[event] for event in DOCUMENT_EVENTS),
    )
    .where(_W.enabled == 1)
    .order_by(_W.name)
)
_SELECT_ROW_ID: Final = sa.select(_W[ROW_ID]).where(_W.name == _KEY)
_ROW_ID: Final = Statement(_SELECT_ROW_ID)
_ROW_ID_LOCKED: Final = Statement(_locked(_SELECT_ROW_ID))
_NAME_LOCKED: Final = Statement(_locked(sa.select(_W.name).where(_W[ROW_ID] == _KEY)))


def select_known(values: Sequence[sa.ColumnElement[Any]]) -> sa.Select[Any]:
    """Select `values` for a Webhook whose name is the known one, locked as by `current_name`.

    Parameters: `known_name` and `known_row`, from its `Subscription`.
    """
    is_known = (_W.name == sa.bindparam("known_name"), _W[ROW_ID] == sa.bindparam("known_row"))
    return _locked(sa.select(*values).where(*is_known))


class SubscriptionCache:
    """The subscriptions known to this process. Used inside write transactions only.

    On PostgreSQL these overlap in several threads, so shared values are only replaced as a whole.
    With `shared` all processes of a service have the same subscriptions at any time.
    """

    def __init__(self, shared: SharedSubscriptions | None = None) -> None:
        self._shared = shared
        self._current: Subscriptions | None = None
        self._adopted = b""
        self._adopting = threading.Lock()
        self._pinned: WeakKeyDictionary[Tx, Subscriptions] = WeakKeyDictionary()
        self._generation = object()

    def of(self, tx: Tx) -> Subscriptions:
        """Return the current subscriptions, cached if possible."""
        if self._shared is not None:
            self._adopt(self._shared)
        current = (self._pinned.get(tx) if self._pinned else None) or self._current
        if current is not None:
            return current
        generation = self._generation  # before the rows: a concurrent invalidation wins
        loaded = self._pinned[tx] = self.stored(tx)
        # The rows may contain changes that are rolled back: cache them only after the commit.
        tx.after_commit(lambda: self._keep(loaded, generation))
        return loaded

    @property
    def in_use(self) -> Subscriptions | None:
        """The subscriptions in use; None if the next write will read them."""
        if self._shared is not None:
            self._adopt(self._shared)
        return self._current

    def stored(self, tx: Tx) -> Subscriptions:
        """Return the subscriptions in the store, without caching them."""
        return _grouped(tx.rows(_ENABLED))

    def current_name(self, tx: Tx, subscription: Subscription) -> str | None:
        """Return the current name of a Webhook, which its deliveries refer to.

        The name cannot change until the transaction ends: a concurrent rename waits and then
        includes what is recorded here (B-45). A deleted Webhook keeps its name, and its deliveries
        fail (B-166); None if another Webhook, which would get them, has that name by now.
        """
        name, row = subscription.webhook, tx.one(_ROW_ID_LOCKED, key=subscription.webhook)
        if row is not None and row[0] == subscription.row_id:
            return name
        new_name: str | None = tx.scalar(_NAME_LOCKED, key=subscription.row_id)
        return name if new_name is None and row is None else new_name

    def row_of(self, tx: Tx, webhook: str) -> str | None:
        """Return the row of a Webhook by its current name, without locking it; None without one."""
        row: str | None = tx.scalar(_ROW_ID, key=webhook)
        return row

    async def read_at_start(self, store: Store) -> None:
        """Read the subscriptions when the process opens the site.

        All processes of the service use the subscriptions that the last started process has read;
        it publishes them in a write, which is ordered among changes of Webhooks.
        """
        if self._shared is None:
            await store.read(self.of)
        else:
            await store.write(self.renew_after_commit)

    def pin(self, tx: Tx) -> None:
        """Freeze the subscriptions for the rest of a transaction that changes a Webhook."""
        self._exclude_other_processes(tx)
        self._pinned[tx] = self.of(tx)

    def renew_after_commit(self, tx: Tx) -> None:
        """Refresh the cache after a commit that changes a Webhook, for writes that start later.

        It is refreshed in all processes of the service before the change is answered.
        """
        shared = self._shared
        self._exclude_other_processes(tx)
        before, loaded = self._generation, self.stored(tx)
        if shared is None:
            tx.after_commit(lambda: self._renew(loaded, before))
        else:
            stamp = shared.stamp()
            tx.after_commit(lambda: shared.publish(stamp, loaded))

    def _exclude_other_processes(self, tx: Tx) -> None:
        """Make changes of Webhooks commit in the order of their stamps."""
        if self._shared is not None:
            tx.lock("fw.subscriptions")

    def _adopt(self, shared: SharedSubscriptions) -> None:
        """Replace the cache by the snapshot that was last published by any process."""
        stamps = shared.stamps()
        if stamps == self._adopted:
            return
        with self._adopting:
            stamps = shared.stamps()
            self._generation, self._current = object(), shared.newest(stamps)
            self._adopted = stamps  # set last: other threads then use the cache without the lock

    def _keep(self, loaded: Subscriptions, generation: object) -> None:
        if generation is self._generation:
            self._current = loaded

    def _renew(self, loaded: Subscriptions, before: object) -> None:
        """Replace the cache, or clear it if a concurrent change may have been missed."""
        is_unchanged = before is self._generation
        self._clear()
        if is_unchanged:
            self._current = loaded

    def _clear(self) -> None:
        self._current = None
        self._generation = object()


_EVENT_COLUMNS: Final = 7  # the index of the first on_… column in a row


def _grouped(rows: list[Row]) -> Subscriptions:
    documents: defaultdict[tuple[str, str], list[Subscription]] = defaultdict(list)
    custom: defaultdict[str, list[Subscription]] = defaultdict(list)
    for row in rows:
        name, max_attempts, row_id, event_type, doctype, custom_event, order = row[:_EVENT_COLUMNS]
        if not isinstance(name, str) or not isinstance(row_id, str | None):
            continue  # bytes, by raw SQL: no delivery could refer to it
        subscription = Subscription(name, max_attempts, row_id, order == BY_DOCUMENT)
        if event_type == DOCUMENT:
            for event, subscribed in zip(DOCUMENT_EVENTS, row[_EVENT_COLUMNS:], strict=True):
                if subscribed:
                    documents[str(doctype), event].append(subscription)
        elif event_type == CUSTOM:
            custom[str(custom_event)].append(subscription)
    return Subscriptions(
        {key: tuple(subscriptions) for key, subscriptions in documents.items()},
        {key: tuple(subscriptions) for key, subscriptions in custom.items()},
    )


def changed_webhooks(in_use: Subscriptions, stored: Subscriptions) -> tuple[str, ...]:
    """Return the names of the Webhooks that a restart would subscribe to other events, in order."""
    before, after = _by_webhook(in_use), _by_webhook(stored)
    return tuple(sorted(name for name in {*before, *after} if before.get(name) != after.get(name)))


def _by_webhook(subscriptions: Subscriptions) -> Mapping[str, set[object]]:
    events_by_webhook: defaultdict[str, set[object]] = defaultdict(set)
    for events in (subscriptions.documents, subscriptions.custom):
        for event, subscribed in events.items():
            for each in subscribed:
                events_by_webhook[each.webhook].add(
                    (event, each.max_attempts, each.row_id, each.ordered)
                )
    return events_by_webhook


async def stale_webhooks(store: Store, cache: SubscriptionCache) -> tuple[str, ...]:
    """Return the Webhooks whose stored subscriptions this service does not use, by name.

    A Webhook that this service is saving at the same moment may be among them once.

    Raises: OverloadedError if the store does not answer.
    """
    in_use = cache.in_use
    if in_use is None:  # the next write reads them
        return ()
    return changed_webhooks(in_use, await store.read(cache.stored))


async def refresh_forever(store: Store, cache: SubscriptionCache) -> None:
    """Use changes of Webhooks from outside within a second, until cancelled (B-49).

    For a program that has opened the site; a service does it by its SubscriptionWatch.
    """
    while True:
        await trio.sleep(REFRESH_SECONDS)
        with suppress(OverloadedError):  # the next comparison finds them
            if await stale_webhooks(store, cache):
                await store.write(cache.renew_after_commit)


class SubscriptionRenewal(Observer):
    """Renews the subscriptions when a Webhook is written.

    `recorded` is called after each commit that changes or deletes a Webhook, because its waiting
    deliveries may then go to a receiver with free slots, or end.
    """

    doctypes = frozenset({"Webhook"})

    def __init__(self, subscriptions: SubscriptionCache, recorded: Callable[[], None]) -> None:
        self._subscriptions, self._recorded = subscriptions, recorded

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Pin the current subscriptions for this transaction before the Webhook is written."""
        self._subscriptions.pin(fw.tx)

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """Renew the subscriptions after the commit, for writes that start later."""
        self._subscriptions.renew_after_commit(fw.tx)
        if event != "on_insert":
            fw.tx.after_commit(self._recorded, once=True)


class WebhookRules(Observer):
    """Validates Webhook documents."""

    doctypes = frozenset({"Webhook"})

    def __init__(
        self,
        registry: Registry,
        *,
        development: bool,
        certificates: Mapping[str, ClientCertificate],
    ) -> None:
        """`certificates`: the client certificates that Webhooks may name."""
        self._registry = registry
        self._development = development
        self._certificates = certificates

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Refuse a Webhook that could not work. Raises: ValidationError naming the field."""
        if event == "on_trash":
            return
        values = doc.__dict__
        before: Mapping[str, Any] = {} if doc._before is None else doc._before.__dict__
        title = values["title"]
        if title and title != before.get("title") and is_invisible(title):
            raise ValidationError("title must have a visible character.", field="title")
        # One that was saved in development mode sends to http until it is disabled.
        may_be_http = values["url"] == before.get("url") and not values["enabled"]
        endpoint = parse_endpoint(values["url"], development=self._development or may_be_http)
        if values["client_certificate"]:
            certificate = before.get("client_certificate")
            self._validate_certificate(values["client_certificate"], endpoint, certificate)
        if values["event_type"] == DOCUMENT:
            self._validate_document(values, before)
        if values["event_type"] == CUSTOM:
            _validate_custom(values["custom_event"])
        if isinstance(values["secret"], str):
            _validate_secret(values["secret"])
            if event == DB_SET and values["old_secret"]:
                raise ValidationError(
                    "While the old secret also signs, change secret by save, not by db_set.",
                    field="secret",
                )
            if not isinstance(values["old_secret"], str):  # no rotation: the old one ends at once
                values.update(old_secret="", old_secret_until=None)

    def _validate_certificate(self, name: str, endpoint: Endpoint, before: str | None) -> None:
        """Refuse an unusable certificate; its files are read only when the certificate is
        changed."""
        field = "client_certificate"
        if endpoint.origin.scheme != "https":
            raise ValidationError("A client certificate needs an https URL.", field=field)
        if name == before:
            return
        certificate = self._certificates.get(name)
        if certificate is None:
            names = ", ".join(self._certificates) or "none"
            raise ValidationError(
                f"FW_CLIENT_CERT_{name} is not in the environment of this process; "
                f"known certificates: {names}.",
                field=field,
            )
        try:
            check_certificate(certificate)
        except UnusableCertificateError as error:
            raise ValidationError(str(error), field=field) from None

    def _validate_document(self, values: dict[str, object], before: Mapping[str, Any]) -> None:
        doctype = values["webhook_doctype"]
        if not doctype:
            raise ValidationError(
                "webhook_doctype is required if event_type is Document.", field="webhook_doctype"
            )
        meta = self._registry.metas.get(str(doctype))
        was_watched = (before.get("event_type"), before.get("webhook_doctype")) == (
            DOCUMENT,
            doctype,
        )
        is_being_enabled = values["enabled"] and not before.get("enabled")
        if (meta is None or meta.child) and was_watched and not is_being_enabled:
            return  # its app was removed or changed; deliveries may still wait for it
        if meta is None:
            raise ValidationError(f"There is no DocType {doctype}.", field="webhook_doctype")
        if doctype in UNWATCHABLE:
            raise ValidationError(
                f"{doctype} cannot be watched: Webhooks and the service's own records cause no "
                "events.",
                field="webhook_doctype",
            )
        if meta.child:
            raise ValidationError(
                f"{doctype} is a child table; watch its parent.", field="webhook_doctype"
            )
        if not any(values[event] for event in DOCUMENT_EVENTS):
            raise ValidationError(
                "Select at least one event: Inserted, Saved, Submitted, Cancelled or Deleted.",
                field="on_insert",
            )


def never_occurring(registry: Registry, values: Mapping[str, Any]) -> str | None:
    """Return a sentence about events of a Webhook that never occur; None without any.

    They are no reason to refuse it (B-16): the DocType may become submittable later.
    """
    meta = registry.metas.get(str(values.get("webhook_doctype") or ""))
    if values.get("event_type") != DOCUMENT or meta is None or meta.submittable:
        return None
    never = [event for event in ("on_submit", "on_cancel") if values.get(event)]
    if not never:
        return None
    verb = "occurs" if len(never) == 1 else "occur"
    return f"{meta.name} is not submittable: {' and '.join(never)} never {verb}."


def _validate_custom(event: object) -> None:
    if not event:
        raise ValidationError(
            "custom_event is required if event_type is Custom.", field="custom_event"
        )
    try:
        validate_event_name(str(event))
    except UnusableEventNameError as error:
        raise ValidationError(str(error), field="custom_event") from None


def _validate_secret(secret: str) -> None:
    try:
        validate_secret(secret)
    except UnusableSecretError as error:
        raise ValidationError(str(error), field="secret") from None
