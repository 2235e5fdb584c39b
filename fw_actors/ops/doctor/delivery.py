"""Doctor sections on webhooks, receivers and queues.

The module has more than 500 lines because the three sections share facts and wording.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Final, NamedTuple

import sqlalchemy as sa

from fw_actors.documents.core import DOCUMENT, Webhook, WebhookDelivery
from fw_actors.documents.doctype import ROW_ID
from fw_actors.documents.fields import iso
from fw_actors.documents.tables import table_of
from fw_actors.documents.vault import UnreadableError
from fw_actors.errors import ValidationError
from fw_actors.http import parse_endpoint
from fw_actors.http.tls import UnusableCertificateError, end_of
from fw_actors.ops import queued_jobs
from fw_actors.ops.console_facts import queues
from fw_actors.ops.site import Site
from fw_actors.rules.delivery import DeliveryStatus
from fw_actors.rules.findings import Finding, Section, ServiceState, ok, problem, warning
from fw_actors.rules.receivers import FAILURES
from fw_actors.rules.safe_output import counted
from fw_actors.rules.signing import KEY_BYTES, UnusableSecretError, key_of
from fw_actors.runtime.clock import MS_PER_DAY
from fw_actors.store import QueueStats, Statement, Tx, one_of
from fw_actors.store.schema import JOB, WEBHOOK_HEALTH
from fw_actors.webhooks import events
from fw_actors.webhooks.events import QUEUE
from fw_actors.webhooks.health import receivers_of
from fw_actors.webhooks.pacing import paused_webhooks

_W: Final = table_of(Webhook).table.c
_D: Final = table_of(WebhookDelivery).table.c
_HEALTH: Final = WEBHOOK_HEALTH.c
_OF_WEBHOOKS: Final = (
    sa.select(_HEALTH.webhook, _HEALTH.failing_since)
    .select_from(WEBHOOK_HEALTH.join(_W.name.table, _W.name == _HEALTH.webhook))
    .where(_HEALTH.failing_since.is_not(None))
    .order_by(_HEALTH.failing_since, _HEALTH.webhook)
)
_FAILING: Final = Statement(
    _OF_WEBHOOKS.where(_W.enabled == 1, _HEALTH.failures >= sa.bindparam("failures"))
)
_DISABLED: Final = Statement(
    _OF_WEBHOOKS.where(_W.enabled == 0, _HEALTH.disabled == _HEALTH.failing_since)
)
_GROUPED: Final = (
    sa.select(_D.webhook, _D.creation)
    .where(_D.status == DeliveryStatus.FAILED.value, _D.last_attempt > sa.bindparam("after"))
    .order_by(_D.last_attempt)  # the first ones, so that each group has its first event
    .limit(sa.bindparam("limit"))
    .subquery()
)
_RESENDABLE: Final = Statement(
    sa.select(_GROUPED.c.webhook, sa.func.min(_GROUPED.c.creation))
    .select_from(_GROUPED.join(_W.name.table, _W.name == _GROUPED.c.webhook))
    .where(_W.enabled == 1)
    .group_by(_GROUPED.c.webhook)
    .having(sa.func.count() > 1)
    .order_by(sa.func.count().desc(), _GROUPED.c.webhook)
)

_MAX_GROUPED: Final = 10_000  # failed deliveries, by their Webhook
_MAX_COMMANDS: Final = 3
_MAX_NAMED: Final = 5  # receivers, and Webhooks in a list
CERTIFICATE_DAYS: Final = 30


class WebhookSince(NamedTuple):
    """A Webhook, and the time (ms) since which a condition applies to it."""

    webhook: str
    since: int


@dataclass(frozen=True)
class WebhookFacts:
    """The counts of the webhook report (O-131), and the names of misconfigured Webhooks."""

    off: bool
    enabled: int
    retrying: int
    failed: int  # in the last 24 hours
    resendable: tuple[WebhookSince, ...] = ()  # enabled, and the first event of several of these
    odd_secrets: tuple[str, ...] = ()
    refused_urls: tuple[str, ...] = ()
    lost_doctypes: tuple[str, ...] = ()
    child_doctypes: tuple[str, ...] = ()
    paused: tuple[WebhookSince, ...] = ()
    failing: tuple[WebhookSince, ...] = ()
    disabled: tuple[WebhookSince, ...] = ()
    lost_certificates: tuple[str, ...] = ()
    ending_certificates: tuple[str, ...] = ()


NOT_ASKED: Final = ServiceState(running=False)
_NAMES_SHOWN: Final = 5


async def webhook_facts(site: Site) -> WebhookFacts:
    """Query the store in one snapshot."""
    return await site.store.read(lambda tx: _read_webhooks(tx, site))


def evaluate_webhooks(facts: WebhookFacts, service: ServiceState = NOT_ASKED) -> Section:
    """Evaluate the Webhooks (O-131, O-132, O-146)."""
    shown = {
        "off": facts.off,
        "enabled": facts.enabled,
        "retrying": facts.retrying,
        "failed24h": facts.failed,
        "paused": [each.webhook for each in facts.paused],
        "failing": _shown(facts.failing),
        "disabled": _shown(facts.disabled),
    }
    findings = (*_webhook_findings(facts), *_stale(service))
    return Section("webhooks", "Webhooks", findings, shown)


def _stale(service: ServiceState) -> Iterator[Finding]:
    """Report Webhooks whose change the service on this machine does not use yet (B-42)."""
    names = service.stale_webhooks
    if names:
        shown = ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
        yield warning(
            f"the service on {service.node} does not use {len(names)} changed "
            f"Webhook{'' if len(names) == 1 else 's'}: {shown}",
            "Run fw restart there. With ops.subscriptionRefresh no restart is needed.",
        )


def _webhook_findings(facts: WebhookFacts) -> Iterator[Finding]:
    yield ok(
        f"webhooks are {'off' if facts.off else 'on'}; enabled Webhooks: {facts.enabled}, "
        f"deliveries retrying: {facts.retrying}"
    )
    if facts.off and facts.enabled:
        yield warning(
            f"webhooks are off (FW_WEBHOOKS), but {facts.enabled} are enabled: their "
            "events are lost",
            "Unset FW_WEBHOOKS and restart; events that occurred meanwhile are not sent later.",
        )
    if facts.failed:
        yield warning(
            f"deliveries that failed in the last 24 hours: {facts.failed}",
            "fw webhooks list --status Failed lists them, fw webhooks explain DELIVERY gives the "
            f"reason, fw webhooks replay DELIVERY resends one{_bulk_replays(facts.resendable)}.",
        )
    else:
        yield ok("no delivery failed in the last 24 hours")
    yield from _since(
        facts.paused,
        "paused Webhooks, longest paused first",
        "Their deliveries wait; fw webhooks resume WEBHOOK ends a pause.",
    )
    yield from _since(
        facts.failing,
        f"Webhooks whose last {FAILURES} attempts or more have all failed",
        "fw webhooks test WEBHOOK shows what its receiver answers; disable the Webhook if the "
        "receiver no longer exists.",
    )
    yield from _since(
        facts.disabled,
        "Webhooks that ops.disableAfterDays has disabled, by the beginning of their failures",
        "Repair the receiver, then fw webhooks enable WEBHOOK; events since then are not sent "
        "later.",
    )
    yield from _misconfigured(facts)


def _misconfigured(facts: WebhookFacts) -> Iterator[Finding]:
    """Report Webhooks whose documents have values that cannot be used, or not for long."""
    if facts.lost_certificates:
        yield problem(
            f"Webhooks whose client certificate cannot be used: {_named(facts.lost_certificates)}",
            "Their attempts fail. FW_CLIENT_CERT_<NAME> and FW_CLIENT_KEY_<NAME> must name files "
            "in PEM, without a password, that this user may read.",
        )
    if facts.ending_certificates:
        yield warning(
            f"client certificates that have expired or expire within {CERTIFICATE_DAYS} days: "
            f"{_named(facts.ending_certificates)}",
            "Renew the files; the next new connection uses them, without a restart.",
        )
    low, high = KEY_BYTES
    yield from _warnings(
        facts.odd_secrets,
        f"signing keys that are not {low} to {high} bytes long",
        "Set a secret of 32 random bytes: whsec_ and base64.",
    )
    yield from _warnings(
        facts.refused_urls,
        "URLs that are no longer accepted (http only in development mode)",
        "Set an https url, or disable the Webhooks.",
    )
    yield from _warnings(
        facts.lost_doctypes,
        "watched DocTypes that no app of the site declares",
        "Add the app to apps in fw.json, or disable the Webhooks.",
    )
    yield from _warnings(
        facts.child_doctypes,
        "watched DocTypes that are child tables now, which cause no events",
        "Watch the DocTypes of their parents, or disable the Webhooks.",
    )


def _bulk_replays(webhooks: Sequence[WebhookSince]) -> str:
    """Return the commands that resend the failed deliveries of each Webhook."""
    commands = [
        f"fw webhooks replay --webhook {quote(each.webhook)} --since {iso(each.since)}"
        for each in webhooks[:_MAX_COMMANDS]
    ]
    if not commands:
        return ""
    others = ", and likewise for other Webhooks" if len(webhooks) > len(commands) else ""
    return (
        f". All of a Webhook, when its receiver works again: {'; '.join(commands)}{others} "
        "(--dry-run lists them)"
    )


def _since(webhooks: Sequence[WebhookSince], subject: str, todo: str) -> Iterator[Finding]:
    if webhooks:
        names = tuple(f"{each.webhook} since {iso(each.since)}" for each in webhooks)
        yield from _warnings(names, f"{subject}: {len(names)}", todo)


def _shown(webhooks: Sequence[WebhookSince]) -> list[dict[str, str]]:
    return [{"webhook": each.webhook, "since": iso(each.since)} for each in webhooks]


def _warnings(names: tuple[str, ...], subject: str, todo: str) -> Iterator[Finding]:
    if names:
        yield warning(f"{subject}: Webhook {_named(names)}", todo)


def _named(names: tuple[str, ...]) -> str:
    """Return the first names in a list, and the number of the others."""
    unnamed = len(names) - _MAX_NAMED
    more = f" and {unnamed} more" if unnamed > 0 else ""
    return f"{', '.join(names[:_MAX_NAMED])}{more}"


def _read_webhooks(tx: Tx, site: Site) -> WebhookFacts:
    retrying = sa.select(sa.func.count()).where(_D.status == DeliveryStatus.RETRYING.value)
    failed = sa.select(sa.func.count()).where(  # by the index: a million others may have failed
        _D.status == DeliveryStatus.FAILED.value,
        _D.last_attempt > tx.now - MS_PER_DAY,
    )
    webhooks = tx.rows(
        sa.select(_W.name, _W.url, _W.event_type, _W.webhook_doctype, _W.secret, _W[ROW_ID])
        .where(_W.enabled == 1)
        .order_by(_W.name)
    )
    metas = site.registry.metas
    lost_certificates, ending_certificates = _certificates(tx, site)
    return WebhookFacts(
        off=site.config.deployment.webhooks_off,
        enabled=len(webhooks),
        retrying=tx.scalar(retrying),
        failed=tx.scalar(failed),
        resendable=tuple(
            WebhookSince(*row)
            for row in tx.rows(_RESENDABLE, after=tx.now - MS_PER_DAY, limit=_MAX_GROUPED)
        ),
        odd_secrets=tuple(
            str(name) for name, *_, secret, row in webhooks if _is_odd(site, secret, row)
        ),
        refused_urls=tuple(str(name) for name, url, *_ in webhooks if not _is_allowed(site, url)),
        paused=tuple(
            WebhookSince(each.webhook, each.since or tx.now) for each in paused_webhooks(tx)
        ),
        failing=tuple(WebhookSince(*row) for row in tx.rows(_FAILING, failures=FAILURES)),
        disabled=tuple(WebhookSince(*row) for row in tx.rows(_DISABLED)),
        lost_certificates=lost_certificates,
        ending_certificates=ending_certificates,
        lost_doctypes=tuple(
            str(name)
            for name, _, kind, doctype, *_ in webhooks
            if kind == DOCUMENT and doctype not in metas
        ),
        child_doctypes=tuple(
            str(name)
            for name, _, kind, doctype, *_ in webhooks
            if kind == DOCUMENT and doctype in metas and metas[doctype].child
        ),
    )


def _certificates(tx: Tx, site: Site) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return enabled Webhooks with an unusable client certificate, and certificates that end."""
    webhooks = tx.rows(
        sa.select(_W.name, _W.client_certificate)
        .where(_W.enabled == 1, sa.func.coalesce(_W.client_certificate, "") != "")
        .order_by(_W.name)
    )
    unusable, expiring = [], set()
    for webhook, name in webhooks:
        certificate = site.config.client_certificates.get(name)
        try:
            if certificate is None:
                unusable.append(str(webhook))
            elif end_of(certificate) < tx.now + CERTIFICATE_DAYS * MS_PER_DAY:
                expiring.add(str(name))
        except (UnusableCertificateError, OSError):
            unusable.append(str(webhook))
    return tuple(unusable), tuple(sorted(expiring))


def _is_odd(site: Site, secret: str | None, row_id: str) -> bool:
    """Return whether a key is readable and has an invalid length; others report unreadable ones."""
    try:
        key = key_of(site.vault.open(secret or "", "Webhook", "secret", row_id))
    except (UnreadableError, UnusableSecretError):
        return False
    return not KEY_BYTES[0] <= len(key) <= KEY_BYTES[1]


def _is_allowed(site: Site, url: str) -> bool:
    try:
        parse_endpoint(url, development=site.config.deployment.mode == "development")
    except ValidationError:
        return False
    return True


@dataclass(frozen=True)
class ReceiverBacklog:
    """The due deliveries of one receiver.

    Args:
        receiver: scheme, host and port; empty for deleted Webhooks and invalid URLs.
        webhooks: names, sorted.
        due: due deliveries, including those whose lease has ended.
        leased: deliveries with an active lease.
        last_error: error of the latest attempt, empty after a 2xx; None before the first attempt.
        paused: those of the Webhooks that are paused.
        limited: those that are enabled and have a rate limit.
    """

    receiver: str
    webhooks: tuple[str, ...]
    due: int
    leased: int
    last_error: str | None
    paused: tuple[str, ...] = ()
    limited: tuple[str, ...] = ()


_LIMITED: Final = Statement(sa.select(_W.name).where(_W.rate_limit > 0, _W.enabled == 1))


def receiver_backlogs(tx: Tx) -> tuple[ReceiverBacklog, ...]:
    """Return the due deliveries per receiver, largest backlog first."""
    due = _counts(tx, JOB.c.next_at <= tx.now)
    leased = _counts(tx, (JOB.c.next_at > tx.now) & JOB.c.lease.is_not(None))
    by_receiver: dict[str, dict[str, int]] = defaultdict(dict)
    receivers = receivers_of(tx)
    paused = {each.webhook for each in paused_webhooks(tx)}
    limited = {str(name) for (name,) in tx.rows(_LIMITED)}
    for webhook, count in due.items():
        by_receiver[receivers.get(webhook, "")][webhook] = count
    leased_at: defaultdict[str, int] = defaultdict(int)
    for webhook, count in leased.items():
        leased_at[receivers.get(webhook, "")] += count
    backlogs = [
        ReceiverBacklog(
            receiver,
            tuple(sorted(counts)),
            sum(counts.values()),
            leased_at[receiver],
            _last_error(tx, tuple(counts)),
            tuple(sorted(counts.keys() & paused)),
            tuple(sorted(counts.keys() & limited)),
        )
        for receiver, counts in by_receiver.items()
    ]
    return tuple(sorted(backlogs, key=lambda each: (-each.due, each.receiver)))


def waiting_findings(
    backlogs: Sequence[ReceiverBacklog], service: ServiceState
) -> Iterator[Finding]:
    """Report the backlog of each receiver, with advice that depends on the known cause."""
    for each in backlogs[:_MAX_NAMED]:
        if each.receiver:
            yield warning(_summary(each), _receiver_advice(each, service))


def _summary(backlog: ReceiverBacklog) -> str:
    if backlog.last_error is None:
        last = "no attempt was made yet"
    elif backlog.last_error:
        last = f"the last attempt ended with {backlog.last_error}"
    else:
        last = "the last attempt was answered 2xx."
    return (
        f"{backlog.receiver} (Webhook {_named(backlog.webhooks)}): due deliveries: {backlog.due}, "
        f"leased for an attempt: {backlog.leased}; {last.rstrip('.')}"
    )


def _receiver_advice(backlog: ReceiverBacklog, service: ServiceState) -> str:
    if not service.delivers:
        return "Due deliveries are sent when the service or a worker runs."
    sending = [name for name in backlog.webhooks if name not in backlog.paused]
    if not sending:
        return f"It is paused: fw webhooks resume {backlog.paused[0]}."
    if service.health.get(backlog.receiver) == "paused":
        return "The service has paused it; resume it in fw console or /app/console."
    advice = _sending_advice(backlog, sending, service)
    if not backlog.paused:
        return advice
    names = _named(backlog.paused)
    return f"The deliveries of paused Webhooks wait (fw webhooks resume): {names}. {advice}"


def _sending_advice(backlog: ReceiverBacklog, sending: Sequence[str], service: ServiceState) -> str:
    """Return advice about the Webhooks that are not paused."""
    test = f"fw webhooks test {sending[0]} shows how long each step takes"
    if backlog.last_error or service.health.get(backlog.receiver) == "slow":
        return (
            f"{test}. While it is slow or silent it gets one attempt at a time; disable the "
            "Webhook when the receiver no longer exists."
        )
    if set(sending) <= set(backlog.limited):
        return (
            "Its Webhooks send no more requests a second than their rate_limit. Raise the limits "
            "if the receiver takes more."
        )
    return (
        f"{test}. If it answers quickly, raise ops.perReceiverConcurrency, or add a worker "
        "(fw worker), which has the same number of slots."
    )


def _counts(tx: Tx, condition: sa.ColumnElement[bool]) -> dict[str, int]:
    """Count deliveries by Webhook."""
    grouped = (
        sa.select(JOB.c.partition, sa.func.count())
        .where(JOB.c.queue == QUEUE, condition)
        .group_by(JOB.c.partition)
    )
    return {str(webhook): count for webhook, count in tx.rows(grouped)}


_LAST: Final = sa.select(_HEALTH.last_error, _HEALTH.last_failure, _HEALTH.last_success)


def _last_error(tx: Tx, webhooks: Sequence[str]) -> str | None:
    """Return the error of the last attempt at Webhooks: empty after a success, None without one."""
    ended = [
        (at, str(error) if failed else "")
        for error, failure, success in tx.rows(_LAST.where(one_of(_HEALTH.webhook, webhooks)))
        for at, failed in ((failure, True), (success, False))
        if at is not None
    ]
    return max(ended, default=(0, None))[1]


LONG_SECONDS: Final = 300.0
STUCK_MS: Final = 60_000
"""The time after a lease's end within which a running service must claim the job."""


@dataclass(frozen=True)
class QueueFacts:
    """The statistics of each queue, the long-expired leases, and the due deliveries per receiver;
    `receivers` is empty unless deliveries have waited for long."""

    stats: tuple[QueueStats, ...]
    stuck: Mapping[str, int]
    receivers: tuple[ReceiverBacklog, ...] = ()


async def queue_facts(site: Site) -> QueueFacts:
    """Query the store in one snapshot."""
    return await site.store.read(lambda tx: _read_queues(tx, site))


def evaluate_queues(facts: QueueFacts, service: ServiceState) -> Section:
    """Evaluate the queues."""
    shown = {
        row.queue: {
            "ready": row.ready,
            "oldestSeconds": row.oldest_seconds,
            "stuck": facts.stuck.get(row.queue, 0),
        }
        for row in facts.stats
    }
    receivers = [
        {
            "receiver": each.receiver,
            "webhooks": list(each.webhooks),
            "due": each.due,
            "leased": each.leased,
            "lastError": each.last_error or None,
        }
        for each in facts.receivers
    ]
    findings = tuple(_queue_findings(facts, service)) or (
        ok(f"nothing has been due for more than {LONG_SECONDS / 60:.0f} minutes"),
    )
    return Section("queues", "Queues", findings, {"queues": shown, "receivers": receivers})


def _queue_findings(facts: QueueFacts, service: ServiceState) -> Iterator[Finding]:
    for row in facts.stats:
        if row.oldest_seconds > LONG_SECONDS:
            yield warning(
                f"queue {row.queue} has {counted(row.ready, 'due job')}; the oldest has been due "
                f"for {row.oldest_seconds / 60:.0f} minutes",
                _queue_advice(row, service, any(each.receiver for each in facts.receivers)),
            )
        if row.queue == queued_jobs.APP_QUEUE and row.failed:
            yield warning(
                f"jobs of apps that failed permanently: {row.failed}",
                "fw jobs list --queue app --state failed shows their errors; fw jobs retry JOB "
                "runs one again, fw jobs cancel JOB deletes it.",
            )
    yield from waiting_findings(facts.receivers, service)
    for name, count in sorted(facts.stuck.items()):
        yield warning(
            f"queue {name}: jobs whose lease expired over a minute ago: {count}; the process that "
            "leased them has died or is blocked",
            "The service claims them as slots become free. If the number stays, check the log."
            if service.delivers
            else "A running service or worker claims them; start one.",
        )


def _queue_advice(row: QueueStats, service: ServiceState, receivers_named: bool) -> str:
    """Return advice for a waiting queue that depends on the known cause."""
    if not service.delivers:
        if row.leased:
            return (
                "The service is not running on this machine (fw start); another process serves "
                "the queue."
            )
        return "The service is not running on this machine. Run fw start, or fw worker."
    process = "The service runs" if service.running else "A worker runs"
    if row.queue == events.QUEUE and receivers_named:
        return f"{process}; the lines below name the receivers with waiting deliveries."
    return (
        f"{process}; its log contains the result of each attempt (delivery.attempted, mail.ended, "
        "job.failed)."
    )


def _read_queues(tx: Tx, site: Site) -> QueueFacts:
    paused = [each.webhook for each in paused_webhooks(tx)]  # nothing claims their deliveries
    stuck = (
        sa.select(JOB.c.queue, sa.func.count())
        .where(JOB.c.lease.is_not(None), JOB.c.next_at <= tx.now - STUCK_MS)
        .where(sa.or_(JOB.c.queue != QUEUE, ~one_of(JOB.c.partition, paused)))
        .group_by(JOB.c.queue)
    )
    stats = tuple(queues(tx))
    late = any(r.queue == events.QUEUE and r.oldest_seconds > LONG_SECONDS for r in stats)
    return QueueFacts(
        stats,
        {str(name): n for name, n in tx.rows(stuck)},
        receiver_backlogs(tx) if late else (),
    )
