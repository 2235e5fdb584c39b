"""Webhooks: are they on, what is owed, what failed, and which could never work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from fw_actors.documents.core.webhook import DOCUMENT
from fw_actors.documents.doctype import ROW_ID
from fw_actors.documents.vault import UnreadableError
from fw_actors.errors import ValidationError
from fw_actors.http import parse_target
from fw_actors.rules.delivery_outcome import Status
from fw_actors.rules.findings import Finding, Section, ok, warning
from fw_actors.rules.signing import UnusableSecretError, key_of
from fw_actors.services.site import Site
from fw_actors.store import Tx

MS_PER_DAY: Final = 86_400_000
KEY_BYTES: Final = (24, 64)  # Standard Webhooks; interface §7, "The secret is judged"
_MOST_NAMED: Final = 5


@dataclass(frozen=True)
class WebhookFacts:
    """What the spec's doctor report counts, and the names of the odd ones."""

    off: bool
    enabled: int
    retrying: int
    failed: int  # in the last 24 hours
    odd_secrets: tuple[str, ...] = ()
    refused_urls: tuple[str, ...] = ()
    lost_doctypes: tuple[str, ...] = ()


async def webhook_facts(site: Site) -> WebhookFacts:
    """Ask the store, in one snapshot."""
    return await site.store.read(lambda tx: _ask(tx, site))


def judge_webhooks(facts: WebhookFacts) -> Section:
    """Judge the facts; pure. Source: spec, Doctor report."""
    shown = {
        "off": facts.off,
        "enabled": facts.enabled,
        "retrying": facts.retrying,
        "failed24h": facts.failed,
    }
    return Section("webhooks", "Webhooks", tuple(_findings(facts)), shown)


def _findings(facts: WebhookFacts) -> Iterator[Finding]:
    yield ok(
        f"webhooks are {'off' if facts.off else 'on'}; enabled webhooks: {facts.enabled}, "
        f"deliveries retrying: {facts.retrying}"
    )
    if facts.off and facts.enabled:
        yield warning(
            f"webhooks are off (FW_WEBHOOKS), and {facts.enabled} are enabled: their events are "
            "lost",
            "Unset FW_WEBHOOKS and restart; what happened meanwhile is not sent later.",
        )
    if facts.failed:
        yield warning(
            f"deliveries that failed in the last 24 hours: {facts.failed}",
            "fw webhooks list --status Failed names them, fw webhooks explain DELIVERY says why, "
            "fw webhooks replay DELIVERY sends one again.",
        )
    else:
        yield ok("no delivery failed in the last 24 hours")
    low, high = KEY_BYTES
    yield from _odd(
        facts.odd_secrets,
        f"signing keys that are not {low} to {high} bytes long",
        "Give them a secret of 32 random bytes: whsec_ and base64.",
    )
    yield from _odd(
        facts.refused_urls,
        "urls that would be refused if they were saved now (http is for development mode)",
        "Give them an https url.",
    )
    yield from _odd(
        facts.lost_doctypes,
        "watched DocTypes that no app of the site declares",
        "Add the app to apps in fw.json, or disable them.",
    )


def _odd(names: tuple[str, ...], what: str, todo: str) -> Iterator[Finding]:
    if names:
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        yield warning(f"{what}: Webhook {', '.join(names[:_MOST_NAMED])}{more}", todo)


def _ask(tx: Tx, site: Site) -> WebhookFacts:
    deliveries = site.registry.tables["Webhook Delivery"].table.c
    ended = sa.func.coalesce(deliveries.last_attempt, deliveries.modified)
    retrying = sa.select(sa.func.count()).where(deliveries.status == Status.RETRYING.value)
    failed = sa.select(sa.func.count()).where(
        deliveries.status == Status.FAILED.value, ended > tx.now - MS_PER_DAY
    )
    c = site.registry.tables["Webhook"].table.c
    hooks = tx.rows(
        sa.select(c.name, c.url, c.event_type, c.webhook_doctype, c.secret, c[ROW_ID])
        .where(c.enabled == 1)
        .order_by(c.name)
    )
    return WebhookFacts(
        off=site.config.deployment.webhooks_off,
        enabled=len(hooks),
        retrying=tx.scalar(retrying),
        failed=tx.scalar(failed),
        odd_secrets=tuple(name for name, *_, secret, row in hooks if _is_odd(site, secret, row)),
        refused_urls=tuple(name for name, url, *_ in hooks if not _is_allowed(site, url)),
        lost_doctypes=tuple(
            name
            for name, _, kind, doctype, *_ in hooks
            if kind == DOCUMENT and doctype not in site.registry.metas
        ),
    )


def _is_odd(site: Site, secret: str | None, row_id: str) -> bool:
    """Say whether a key opens and has an unusual length; what does not open is told elsewhere."""
    try:
        key = key_of(site.vault.open(secret or "", "Webhook", "secret", row_id))
    except (UnreadableError, UnusableSecretError):
        return False
    return not KEY_BYTES[0] <= len(key) <= KEY_BYTES[1]


def _is_allowed(site: Site, url: str) -> bool:
    try:
        parse_target(url, development=site.config.deployment.mode == "development")
    except ValidationError:
        return False
    return True
