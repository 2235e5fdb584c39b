"""Explains why a delivery waits, and sends test events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from fw_actors.documents.fields import iso
from fw_actors.documents.handle import Fw
from fw_actors.documents.registry import Registry
from fw_actors.errors import NotFoundError, ValidationError
from fw_actors.http import NetworkError, Sender, Times, parse_endpoint
from fw_actors.ops.site import Site
from fw_actors.rules.delivery import Backoff, DeliveryStatus, error_of_answer
from fw_actors.rules.explanation import MAX_COUNTED, Waiting
from fw_actors.rules.pacing import NOT_PAUSED, pause_end
from fw_actors.rules.signing import signed_headers
from fw_actors.rules.tokens import DeliveryIds
from fw_actors.store import Statement, Tx
from fw_actors.store.ordered_jobs import first_of
from fw_actors.store.schema import JOB
from fw_actors.webhooks.claims import Hook
from fw_actors.webhooks.deliveries import Deliveries
from fw_actors.webhooks.events import QUEUE
from fw_actors.webhooks.signing_keys import NoSigningKey, SigningKeys, receivers_of

_NAME: Final[sa.BindParameter[Any]] = sa.bindparam("key")

_JOB: Final = Statement(
    sa.select(
        JOB.c.id, JOB.c.next_at, JOB.c.lease, JOB.c.deaths, JOB.c.partition, JOB.c.ordering_key
    )
    .where(JOB.c.queue == QUEUE, JOB.c.subject == _NAME)
    .order_by(JOB.c.id.desc())
    .limit(1)
)


def waiting(tx: Tx, registry: Registry, delivery: str) -> Waiting:
    """Return the facts about a waiting delivery. Raises: NotFoundError."""
    row = registry.tables["Webhook Delivery"].fetch(tx, delivery)
    if row is None:
        raise NotFoundError(f"There is no delivery {delivery[:140]}.")
    hook = registry.tables["Webhook"].fetch(tx, row["webhook"])
    job = tx.one(_JOB, key=delivery) or (0, None, None, 0, "", None)
    number, next_at, lease, deaths, partition, ordering_key = job
    receivers = receivers_of(tx, registry)
    receiver = receivers.get(row["webhook"], "")
    same = [name for name, at in receivers.items() if at == receiver] if receiver else [partition]
    behind = None
    if next_at is None and ordering_key is not None:
        behind = first_of(tx, partition, ordering_key)
    ahead = in_flight = 0
    if next_at is not None and lease is None:
        ahead, in_flight = _competing(tx, same, next_at, number)
    return Waiting(
        now=tx.now,
        status=DeliveryStatus(row["status"]),
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        error=_sentence(row["error"]),
        hook_enabled=None if hook is None else bool(hook["enabled"]),
        next_at=next_at,
        leased=lease is not None,
        deaths=deaths,
        behind=behind or "",
        rate_limit=(0 if hook is None else hook["rate_limit"] or 0),
        paused_until=(
            NOT_PAUSED
            if hook is None
            else pause_end(hook["paused_since"], hook["paused_until"], tx.now)
        ),
        receiver=receiver,
        ahead=ahead,
        in_flight=in_flight,
    )


def _competing(tx: Tx, webhooks: list[str], due: int, number: int) -> tuple[int, int]:
    """Return how many deliveries of these Webhooks are due before a job, and how many leased.

    Both at most `MAX_COUNTED`: behind a dead receiver a hundred thousand may wait.
    """
    of_them = sa.select(JOB.c.id).where(JOB.c.queue == QUEUE, JOB.c.partition.in_(webhooks))
    before = (JOB.c.next_at < due) | ((JOB.c.next_at == due) & (JOB.c.id < number))
    ahead = of_them.where(JOB.c.next_at <= due, before, JOB.c.lease.is_(None))
    leased = of_them.where(JOB.c.next_at > tx.now, JOB.c.lease.is_not(None))
    return _count(tx, ahead), _count(tx, leased)


def _count(tx: Tx, rows: sa.Select[Any]) -> int:
    some = rows.limit(MAX_COUNTED).subquery()
    count: int = tx.scalar(sa.select(sa.func.count()).select_from(some))
    return count


def _sentence(error: str | None) -> str:
    return f"The last error: {error}" if error else "No error was noted."


EVENT: Final = "fw.test"
_NO_WAITS: Final = Backoff(1.0, 1.0)  # trials are not repeated


class StepTimes(msgspec.Struct, frozen=True):
    """The duration of each step in ms; 0 for a step that was skipped or not reached."""

    dns: float = 0.0
    connect: float = 0.0
    tls: float = 0.0
    answer: float = 0.0


class TrialResult(msgspec.Struct, frozen=True):
    """The result of a trial: the status, if any; `error` as on a delivery, None after 2xx."""

    status: int | None
    error: str | None
    times: StepTimes


class Trial:
    """Sends test events to the Webhooks of a site."""

    def __init__(self, site: Site, sender: Sender) -> None:
        self._site, self._sender = site, sender
        self._deliveries = Deliveries(site.registry, _NO_WAITS)
        self._keys = SigningKeys(site.vault)
        self._ids = DeliveryIds(site.entropy.bytes)

    async def send(
        self, webhook: str, read: Callable[[Callable[[Fw], Hook]], Awaitable[Hook]]
    ) -> TrialResult:
        """Send a test event to a Webhook, enabled or disabled.

        `read` runs a function in a transaction as the calling user.

        Raises: NotFoundError, PermissionDeniedError.
        """
        hook = await read(lambda fw: self._hook(fw, webhook))
        try:
            key = self._keys.of(hook)
            target = replace(  # the url was validated when it was written
                parse_endpoint(hook.url, development=True),
                certificate=hook.client_certificate or "",
            )
        except NoSigningKey as reason:
            return TrialResult(None, str(reason), StepTimes())
        except ValidationError as reason:
            return TrialResult(None, f"internal: {reason}", StepTimes())
        clock = self._site.clock
        now = clock.now()
        delivery = self._ids.new(now)
        event = {"type": EVENT, "timestamp": iso(now), "data": {"webhook": webhook}}
        body = msgspec.json.encode(event)

        def headers() -> tuple[tuple[bytes, bytes], ...]:
            now = clock.now()
            return signed_headers(key, delivery, now, body, self._keys.old_of(hook, now))

        try:
            answer = await self._sender.post(target, body, headers, timeout=hook.timeout, anew=True)
        except NetworkError as fault:
            return TrialResult(None, str(fault), _rounded(fault.times))
        error = error_of_answer(answer.status, answer.location)
        return TrialResult(answer.status, error or None, _rounded(answer.times))

    def _hook(self, fw: Fw, webhook: str) -> Hook:
        fw.get_doc("Webhook", webhook)  # checks existence and permission
        hook = self._deliveries.hook(fw.tx, webhook)
        assert hook is not None
        return hook


def _rounded(times: Times | None) -> StepTimes:
    if times is None:
        return StepTimes()
    steps = (times.dns, times.connect, times.tls, times.answer)
    return StepTimes(*(round(step, 3) for step in steps))
