"""The recorded attempts of deliveries, kept as long as the delivery (B-185 to B-189).

The row of a delivery has its last attempt: status, response, error and, in the internal column
`trace`, the rest. When another attempt follows, the earlier one is moved to `fw_delivery_attempt`.
A delivery that is sent at the first attempt, as nearly all are, therefore costs only one more
column.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from fw_actors.documents.core import WebhookDelivery, missing_delivery
from fw_actors.documents.tables import table_of
from fw_actors.errors import ValidationError
from fw_actors.http import Times, parse_endpoint
from fw_actors.rules.delivery import is_cancellation
from fw_actors.rules.signing import SCHEME, SignedHeaders
from fw_actors.runtime.clock import US_PER_MS
from fw_actors.store import JsonRows, Statement, Tx, rows_as_json
from fw_actors.store.jobs import held_of
from fw_actors.store.schema import DELIVERY_ATTEMPT
from fw_actors.tracing import TraceContext, decode_context

MAX_KEPT_ATTEMPTS: Final = 30
"""The maximum number of attempts kept for one delivery, the newest ones."""

_URLS: Final = 1024
_SIGNED: Final = 3  # headers; those of tracing follow
NO_ITEM: Final = "-"
"""Stands for an unknown item of a trace."""
_STEPS: Final = 4  # items; then the timestamp and the signatures
_SIGNATURE: Final = SCHEME.decode()
_BETWEEN_SIGNATURES: Final = ";"  # for the space between those of two secrets


class AttemptTrace(NamedTuple):
    """The steps and the request of an attempt. Steps in microseconds, 0 for a step that was not
    needed.

    Args:
        timestamp, signature: the headers `webhook-timestamp` and `webhook-signature`; None and
            empty if nothing was signed.
        address: the receiver's IP address and port; empty if unknown.
        url: the Webhook's URL without the query, which may contain a token.
        worker: the process that made the attempt, as host and process id.
        parent_id: the parent id in the header `traceparent`; empty if none was sent.
    """

    dns: int = 0
    connect: int = 0
    tls: int = 0
    answer: int = 0
    timestamp: int | None = None
    signature: str = ""
    address: str = ""
    url: str = ""
    worker: str = ""
    parent_id: str = ""


def encode_trace(times: Times | None, signed: SignedHeaders, address: str, url: str) -> str:
    """Return a trace in its stored form, except the last item, which is the worker.

    Items contain no spaces and are separated by spaces. Two signatures, of a rotated secret and its
    successor, are one item. The parent id is an item only if a `traceparent` was sent.
    """
    timestamp = signature = NO_ITEM
    parent = ""
    if signed:
        timestamp = signed[1][1].decode()
        signature = signed[2][1].decode().replace(" ", _BETWEEN_SIGNATURES)
        if len(signed) > _SIGNED:
            parent = f" {signed[_SIGNED][1].decode().split('-')[2]}"
    steps = "0 0 0 0"
    if times is not None:
        answer = int(times.answer * US_PER_MS)
        if times.connect or times.dns:  # a new connection
            dns, connect = int(times.dns * US_PER_MS), int(times.connect * US_PER_MS)
            steps = f"{dns} {connect} {int(times.tls * US_PER_MS)} {answer}"
        else:
            steps = f"0 0 0 {answer}"
    return f"{steps} {timestamp} {signature} {address or NO_ITEM} {url or NO_ITEM}{parent}"


def decode_trace(text: str | None) -> AttemptTrace:
    """Return a stored trace; an empty one if there is none, or if raw SQL has damaged it."""
    items = (text or "").split(" ")
    second = _STEPS + 2
    if len(items) > second and items[second].startswith(_SIGNATURE):
        # Earlier builds wrote two signatures as two items.
        items[second - 1 : second + 1] = [_BETWEEN_SIGNATURES.join(items[second - 1 : second + 1])]
    try:
        dns, connect, tls, answer = map(int, items[:_STEPS])
        timestamp, signature, address, url, *parent, worker = (
            "" if item == NO_ITEM else item for item in items[_STEPS:]
        )
        stamp = int(timestamp) if timestamp else None
        (parent_id,) = parent or [""]
    except ValueError:
        return AttemptTrace()
    return AttemptTrace(
        dns, connect, tls, answer, stamp, signature.replace(_BETWEEN_SIGNATURES, " "), address, url,
        worker, parent_id,
    )  # fmt: skip


@lru_cache(_URLS)
def url_without_query(url: str) -> str:
    """Return a Webhook's URL as in traces: `?…` replaces the query."""
    try:
        shown = parse_endpoint(url, development=True).display
    except ValidationError:  # written by raw SQL
        return ""
    return f"{shown}?…" if "?" in url else shown


class AttemptTrigger(StrEnum):
    """The cause of an attempt."""

    EVENT = "event"
    RETRY = "retry"
    REPLAY = "replay"


class AttemptRun(NamedTuple):
    """The origin of attempts: an event (`user` is empty) or a user's replay; `at` in ms."""

    user: str
    at: int


class RecordedAttempt(msgspec.Struct, frozen=True):
    """A recorded attempt: its number in its run, and its result.

    Times in ms since the epoch.
    """

    run: AttemptRun
    number: int
    status: str
    next_attempt: int | None
    ended: int
    response_status: int | None
    response_body: str | None
    error: str | None
    duration_ms: int
    trace: AttemptTrace

    @property
    def began(self) -> int:
        """The time (ms) at which the attempt began."""
        return self.ended - self.duration_ms

    @property
    def trigger(self) -> AttemptTrigger:
        """The cause of this attempt."""
        return trigger_of(self.number, self.run)


def trigger_of(number: int, run: AttemptRun) -> AttemptTrigger:
    """Return the cause of an attempt, by its number in its run."""
    if number > 1:
        return AttemptTrigger.RETRY
    return AttemptTrigger.REPLAY if run.user else AttemptTrigger.EVENT


def trigger_in_words(trigger: str, error: str | None, user: str | None) -> str:
    """Return the cause of an attempt for people: a cancellation is none of the stored causes."""
    if is_cancellation(error):
        return "cancelled"
    return f"{trigger} by {user}" if user and trigger == AttemptTrigger.REPLAY else str(trigger)


class AttemptHistory(NamedTuple):
    """The attempts of a delivery, newest first; the latest run; and the trace context of its
    event, if any."""

    run: AttemptRun
    attempts: list[RecordedAttempt]
    trace: TraceContext | None = None


# The columns of the last attempt in a delivery's row; the table of attempts has the same.
_OUTCOME: Final = (
    "status",
    "next_attempt",
    "last_attempt",
    "response_status",
    "response_body",
    "error",
    "duration_ms",
    "trace",
    "replayed",
)
_A: Final = DELIVERY_ATTEMPT.c
_DELIVERIES: Final = table_of(WebhookDelivery).table
_D: Final = _DELIVERIES.c
_NAME: Final[sa.BindParameter[Any]] = sa.bindparam("delivery")
_LAST: Final = Statement(
    sa.select(_D.creation, _D.trace_context, _D.attempts, *(_D[name] for name in _OUTCOME)).where(
        _D.name == _NAME
    )
)
_EARLIER: Final = Statement(
    sa.select(_A.number, *(_A[name] for name in _OUTCOME))
    .where(_A.delivery == _NAME)
    .order_by(_A.position.desc())
    .limit(MAX_KEPT_ATTEMPTS)
)


_OF_THESE: Final[sa.BindParameter[Any]] = sa.bindparam("names", expanding=True)
_LAST_OF: Final = Statement(
    sa.select(_D.name, _D.creation, _D.attempts, *(_D[name] for name in _OUTCOME)).where(
        _D.name.in_(_OF_THESE)
    )
)
_EARLIER_OF: Final = Statement(
    sa.select(_A.delivery, _A.number, *(_A[name] for name in _OUTCOME))
    .where(_A.delivery.in_(_OF_THESE))
    .order_by(_A.delivery, _A.position.desc())
)
_PART: Final = 500  # deliveries in a statement: a statement has a limited number of parameters


def attempts_of_each(tx: Tx, deliveries: Sequence[str]) -> dict[str, list[RecordedAttempt]]:
    """Return the recorded attempts of each delivery, newest first; a missing delivery has no key.

    Two statements read those of up to 500 deliveries.
    """
    attempts_by_delivery: dict[str, list[RecordedAttempt]] = {}
    for start in range(0, len(deliveries), _PART):
        names = list(deliveries[start : start + _PART])
        earlier: dict[str, list[tuple[Any, ...]]] = {}
        for delivery, *row in tx.rows(_EARLIER_OF, names=names):
            earlier.setdefault(delivery, []).append(tuple(row))
        for delivery, creation, attempts, *last in tx.rows(_LAST_OF, names=names):
            rows = [(attempts, *last)] if attempts else []
            rows += earlier.get(delivery, [])
            attempts_by_delivery[delivery] = [
                _attempt(creation, *each) for each in rows[:MAX_KEPT_ATTEMPTS]
            ]
    return attempts_by_delivery


def attempts_of(tx: Tx, delivery: str) -> AttemptHistory:
    """Return the recorded attempts of a delivery. Raises: NotFoundError."""
    row = tx.one(_LAST, delivery=delivery)
    if row is None:
        raise missing_delivery(delivery)
    creation, trace, attempts, *last = row
    rows = [(attempts, *last)] if attempts else []
    rows += tx.rows(_EARLIER, delivery=delivery)
    recorded = [_attempt(creation, *each) for each in rows[:MAX_KEPT_ATTEMPTS]]
    return AttemptHistory(decode_run(creation, last[-1]), recorded, decode_context(trace))


def _copying(which: sa.ColumnElement[bool]) -> Statement:
    """Return the statement that copies the last attempts of deliveries to `fw_delivery_attempt`."""
    last = sa.select(sa.func.max(_A.position)).where(_A.delivery == _D.name)
    position = sa.func.coalesce(last.correlate(_DELIVERIES).scalar_subquery(), 0) + 1
    columns = ("delivery", "position", "number", "webhook", *_OUTCOME)
    copied = (_D.attempts, _D.webhook, *(_D[name] for name in _OUTCOME))
    rows = sa.select(_D.name, position, *copied).where(which, _D.attempts > 0)
    return Statement(sa.insert(DELIVERY_ATTEMPT).from_select(columns, rows))


_AGAIN: Final = JsonRows("again")
_KEEP: Final = _copying(_D.name == _NAME)
_KEEP_HELD: Final = _copying(_D.name == held_of(_AGAIN).c.subject)
_DROP_OLDEST: Final = Statement(
    sa.delete(DELIVERY_ATTEMPT).where(
        _A.delivery == _NAME,
        _A.position
        <= sa.select(_A.position)
        .where(_A.delivery == _NAME)
        .order_by(_A.position.desc())
        .offset(sa.bindparam("kept"))
        .limit(1)
        .scalar_subquery(),
    )
)
_DELETE_RESPONSES: Final = Statement(
    sa.update(DELIVERY_ATTEMPT).where(_A.delivery == _NAME).values(response_body=sa.null())
)
_DELETE: Final = Statement(sa.delete(DELIVERY_ATTEMPT).where(_A.delivery == _NAME))


def keep_before_outcomes(tx: Tx, leases: Sequence[tuple[int, str]]) -> None:
    """Copy the last attempts of deliveries whose rows are about to get another outcome.

    `leases`: jobs and tokens; a lost lease is skipped, because its outcome is not written.
    """
    tx.run(_KEEP_HELD, again=rows_as_json(leases))


def archive_before_replay(tx: Tx, delivery: str, attempts: int) -> None:
    """Copy the last attempt of a delivery, and delete the oldest ones so that `attempts` more
    fit."""
    tx.run(_KEEP, delivery=delivery)
    tx.run(_DROP_OLDEST, delivery=delivery, kept=MAX_KEPT_ATTEMPTS - attempts)


def encode_replay(user: str, at: int) -> str:
    """Return the value of the internal column `replayed` of a delivery after a replay."""
    return f"{at} {user}"


def delete_attempts(tx: Tx, deliveries: Sequence[str]) -> None:
    """Delete the earlier attempts of deliveries that are being deleted."""
    tx.run_many(_DELETE, [{"delivery": name} for name in deliveries])


def delete_responses(tx: Tx, deliveries: Sequence[str]) -> None:
    """Erase the receivers' responses to the earlier attempts of deliveries."""
    tx.run_many(_DELETE_RESPONSES, [{"delivery": name} for name in deliveries])


def _attempt(creation: int, number: int, *row: Any) -> RecordedAttempt:
    status, next_attempt, ended, response_status, body, error, duration, trace, replayed = row
    return RecordedAttempt(
        decode_run(creation, replayed), number, status, next_attempt, ended or creation,
        response_status, body, error, duration or 0, decode_trace(trace),
    )  # fmt: skip


def decode_run(creation: int, replayed: str | None) -> AttemptRun:
    """Return the origin of attempts from the internal column `replayed` of their delivery."""
    at, _, user = (replayed or "").partition(" ")
    return AttemptRun(user, int(at)) if user and at.isdigit() else AttemptRun("", creation)
