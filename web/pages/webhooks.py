"""Additional data of Webhooks on pages: names, states, counts, recent deliveries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from fw_actors.documents.fields import iso
from fw_actors.ops.console_facts import locked_identifiers
from fw_actors.rules.findings import ServiceState
from fw_actors.webhooks.health import (
    MAX_WAITING_DELIVERIES,
    OutcomeCounts,
    WebhookHealth,
    counts_by_hour,
    counts_of_a_day,
    failing_webhooks,
    health_of,
    label_of_webhook,
)
from fw_actors.webhooks.pacing import paused_webhooks
from web.pages.listing import (
    BAD,
    GOOD,
    PLAIN,
    WARN,
    FilterChoice,
    ListCell,
    ListColumn,
    Listing,
    ListRow,
    badge,
    shortened,
)
from web.pages.rendering import document_path, list_path
from web.pages.replays import replays_of
from web.pages.wording import sentence, time_or_empty

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

WEBHOOK, DELIVERY, MAIL = "Webhook", "Webhook Delivery", "Email Delivery"
RECENT: Final = 10
MAX_CHOICES: Final = 200
MAX_FAILING_WEBHOOKS: Final = 10
CHART_HOURS: Final = 24
CHART_HEIGHT: Final = 40
_TONES: Final[Mapping[str, str]] = {
    "working": GOOD, "slow": WARN, "paused": WARN, "failing": BAD, "disabled": PLAIN,
}  # fmt: skip


@dataclass(frozen=True)
class RecentDelivery:
    """One line of a Webhook's recent deliveries."""

    name: str
    path: str
    event: str
    status: ListCell
    attempts: int
    response_status: str
    creation: str


@dataclass(frozen=True)
class ChartBar:
    """An hour of the chart: the heights of its two parts, and its tooltip."""

    sent: int
    failed: int
    title: str


@dataclass(frozen=True)
class ShownHealth:
    """The state of a Webhook as its page shows it."""

    state: ListCell
    failing_since: str
    failures: int
    last_error: str
    last_success: str
    periods: tuple[tuple[str, str], ...]
    waiting: str
    oldest: str
    bars: tuple[ChartBar, ...]
    paused_since: str
    paused_until: str
    """Empty without a pause of the Webhook, and for a pause without an end."""


def webhook_view(fw: Fw, values: Mapping[str, Any], service: ServiceState) -> dict[str, Any]:
    """Return the additional variables of a Webhook's page, and of the part that is reloaded."""
    name, until = values["name"], values.get("old_secret_until")
    rows = fw.get_list(
        DELIVERY,
        [["webhook", "=", name]],
        ["name", "event", "status", "attempts", "response_status", "creation"],
        order_by="creation desc",
        limit=RECENT,
    )
    health = health_of(fw.tx, [name], service)[name]
    hours = counts_by_hour(fw.tx, name, CHART_HOURS)
    return {
        "recent": [_recent(row) for row in rows],
        "health": _shown(health, hours),
        "replays": replays_of(fw, name),
        "both_sign_until": until if until and until > iso(fw.tx.now) else "",
    }


def _recent(row: Mapping[str, Any]) -> RecentDelivery:
    return RecentDelivery(
        row["name"],
        document_path(DELIVERY, row["name"]),
        row["event"],
        badge(row["status"]),
        row["attempts"],
        str(row["response_status"] or ""),
        row["creation"],
    )


def state_badge(health: WebhookHealth) -> ListCell:
    """Return a Webhook's state as a coloured badge."""
    return ListCell("badge", health.state.value, _TONES.get(health.state, PLAIN))


def _shown(health: WebhookHealth, hours: list[tuple[int, OutcomeCounts]]) -> ShownHealth:
    periods = (("Last hour", health.hour), ("Last day", health.day), ("Last week", health.week))
    return ShownHealth(
        state=state_badge(health),
        failing_since=time_or_empty(health.failing_since),
        failures=health.failures,
        last_error=sentence(health.last_error) if health.failures else "",
        last_success=time_or_empty(health.last_success),
        periods=tuple((label, in_words(counts)) for label, counts in periods),
        waiting=waiting_of(health),
        oldest=time_or_empty(health.oldest),
        bars=tuple(_bars(hours)),
        paused_since=time_or_empty(health.paused_since),
        paused_until=time_or_empty(health.paused_until),
    )


def in_words(counts: OutcomeCounts) -> str:
    """Return counts as `1,204 sent, 3 failed (99.8 %)`."""
    if counts.rate is None:
        return "nothing"
    # Truncated, not rounded: 100 % means that nothing failed.
    share = int(counts.rate * 1000) / 10
    return f"{counts.sent:,} sent, {counts.failed:,} failed ({share:g}\u00a0%)"


def waiting_of(health: WebhookHealth) -> str:
    """Return the number of waiting deliveries."""
    return _counted(health.waiting)


def _counted(number: int) -> str:
    """Return a number that was counted up to `MAX_WAITING_DELIVERIES`."""
    return f"{number:,}{' or more' if number >= MAX_WAITING_DELIVERIES else ''}"


def _bars(hours: list[tuple[int, OutcomeCounts]]) -> Iterator[ChartBar]:
    highest = max((counts.sent + counts.failed for _, counts in hours), default=0) or 1
    for hour, counts in hours:
        failed = -(-counts.failed * CHART_HEIGHT // highest)  # a single failure is visible
        sent = min(CHART_HEIGHT - failed, round(counts.sent * CHART_HEIGHT / highest))
        yield ChartBar(sent, failed, f"{iso(hour)[11:16]} UTC: {in_words(counts)}")


def with_states(fw: Fw, webhooks: Listing, service: ServiceState) -> Listing:
    """Return the list of Webhooks with their names and states in place of bare ids."""
    health = health_of(fw.tx, [row.name for row in webhooks.rows], service)
    added = tuple(
        ListColumn(key, label, "", "none", kind)
        for key, label, kind in (
            ("state", "State", "text"),
            ("day", "Last day", "text"),
            ("waiting", "Waiting", "number"),
        )
    )

    def row_of(row: ListRow) -> ListRow:
        of_it = health[row.name]
        name, *cells = row.cells
        state = state_badge(of_it)
        more = (state, ListCell("text", in_words(of_it.day)), ListCell("number", waiting_of(of_it)))
        return replace(
            row,
            cells=(
                replace(name, kind="text", text=shortened(of_it.label), note=row.name),
                *more,
                *cells,
            ),
        )

    first, *columns = webhooks.columns
    return replace(
        webhooks, columns=(first, *added, *columns), rows=tuple(map(row_of, webhooks.rows))
    )


def with_names(fw: Fw, deliveries: Listing, service: ServiceState) -> Listing:
    """Return the list of deliveries with the names of their Webhooks, also as a filter, and with
    their errors as sentences."""
    labels = webhook_labels(fw)
    names = [column.name for column in deliveries.columns]
    webhook, error = names.index("webhook"), names.index("error")

    def row_of(row: ListRow) -> ListRow:
        cells = list(row.cells)
        label = labels.get(cells[webhook].text)
        if label is not None:
            cells[webhook] = replace(
                cells[webhook], text=shortened(label), note=cells[webhook].text
            )
        cells[error] = replace(cells[error], kind="words", text=sentence(cells[error].text))
        return replace(row, cells=tuple(cells))

    filters = tuple(
        replace(each, choices=choices_of(labels, each.value), target=WEBHOOK)
        if each.name == "webhook"
        else each
        for each in deliveries.filters
    )
    return replace(deliveries, rows=tuple(map(row_of, deliveries.rows)), filters=filters)


def choices_of(labels: Mapping[str, str], value: str) -> tuple[FilterChoice, ...]:
    """Return the Webhooks by name; none if there are too many to choose from."""
    if not labels or len(labels) > MAX_CHOICES:
        return ()
    named = {**labels, **({value: value} if value and value not in labels else {})}
    ordered = sorted(named.items(), key=lambda pair: pair[1].lower())
    return tuple(FilterChoice(name, label, name == value) for name, label in ordered)


def webhook_labels(fw: Fw) -> dict[str, str]:
    """Return the label of each Webhook, by its id."""
    rows = fw.get_list(WEBHOOK, [], ["name", "title", "url"], limit=MAX_CHOICES + 1)
    return {row["name"]: label_of_webhook(row["title"], row["url"]) for row in rows}


@dataclass(frozen=True)
class AttentionLine:
    """A condition that needs an operator: a sentence, and the path of its page."""

    text: str
    path: str
    since: str = ""
    detail: str = ""


def attention(fw: Fw, service: ServiceState) -> tuple[AttentionLine, ...]:
    """Return the conditions that need attention, the worst first; none unless the user is a System
    Manager without scopes."""
    if not fw.rights.administers:
        return ()
    return tuple(_attention(fw, service))


def _attention(fw: Fw, service: ServiceState) -> Iterator[AttentionLine]:
    stale = service.stale_webhooks
    if stale:
        changed = (
            f"The Webhook {stale[0]} was" if len(stale) == 1 else f"{len(stale):,} Webhooks were"
        )
        yield AttentionLine(
            f"{changed} changed on another server; this one uses the change after a restart",
            document_path(WEBHOOK, stale[0]) if len(stale) == 1 else list_path(WEBHOOK),
        )
    for each in failing_webhooks(fw.tx, service, MAX_FAILING_WEBHOOKS):
        yield AttentionLine(
            f"{each.label} fails: {each.failures:,} attempts in a row, {waiting_of(each)} waiting",
            document_path(WEBHOOK, each.name), time_or_empty(each.failing_since),
            sentence(each.last_error),
        )  # fmt: skip
    paused = [each.webhook for each in paused_webhooks(fw.tx)[:MAX_FAILING_WEBHOOKS]]
    for each in health_of(fw.tx, paused, service).values():
        yield AttentionLine(
            f"{each.label} is paused, {waiting_of(each)} waiting",
            document_path(WEBHOOK, each.name), time_or_empty(each.paused_since),
        )  # fmt: skip
    failed = counts_of_a_day(fw.tx).failed
    if failed:
        noun = "delivery has" if failed == 1 else "deliveries have"
        yield AttentionLine(
            f"{failed:,} {noun} failed in the last day", f"{list_path(DELIVERY)}?status=Failed"
        )
    locked = locked_identifiers(fw.tx)
    if locked:
        noun = "identifier is" if locked == 1 else "identifiers are"
        yield AttentionLine(f"{locked:,} {noun} locked", "/app/console#locks-title")
    failed_mails = [["status", "=", "Failed"]]
    mails = len(fw.get_list(MAIL, failed_mails, ["name"], "creation desc", MAX_WAITING_DELIVERIES))
    if mails:
        noun = "mail has" if mails == 1 else "mails have"
        yield AttentionLine(f"{_counted(mails)} {noun} failed", f"{list_path(MAIL)}?status=Failed")
