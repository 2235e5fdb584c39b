"""Vault values: whether each of them opens with the FW_SECRET_KEY of now."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import sqlalchemy as sa

from fw_actors.documents.doctype import ROW_ID
from fw_actors.documents.fields import Vault as VaultField
from fw_actors.documents.vault import UnreadableError
from fw_actors.rules.findings import Finding, Section, ok, problem
from fw_actors.services.site import Site
from fw_actors.store import Tx

BATCH: Final = 500

Place = tuple[str, str, str]
"""DocType, field, and why it does not open."""


class _Opened(NamedTuple):
    number: int
    faults: Counter[Place]
    last: str | None  # the row to go on after; None at the end


@dataclass(frozen=True)
class SecretFacts:
    """How many values there are, and those that do not open by their place."""

    stored: int
    unreadable: Mapping[Place, int]


async def secret_facts(site: Site) -> SecretFacts:
    """Open every stored value, a batch a transaction."""
    stored, unreadable = 0, Counter[Place]()
    for table in site.registry.tables.values():
        for field in table.fields if table.has_vault else ():
            if isinstance(field, VaultField):
                async for batch in _batches(site, table.meta.name, field.name):
                    stored += batch.number
                    unreadable.update(batch.faults)
    return SecretFacts(stored, dict(unreadable))


def judge_secrets(facts: SecretFacts) -> Section:
    """Judge the facts; pure."""
    findings = tuple(_findings(facts)) or (
        ok(f"stored secrets: {facts.stored}; each of them opens"),
    )
    lost = sum(facts.unreadable.values())
    return Section(
        "secrets", "Stored secrets", findings, {"stored": facts.stored, "unreadable": lost}
    )


def _findings(facts: SecretFacts) -> Iterator[Finding]:
    for (doctype, field, reason), count in sorted(facts.unreadable.items()):
        yield problem(
            f"{count} of the values in {doctype}, field {field}, do not open: {reason}",
            "Start with the FW_SECRET_KEY that they were written with, or write them anew. "
            "fw vault rekey is the way to change the key.",
        )


async def _batches(site: Site, doctype: str, field: str) -> AsyncIterator[_Opened]:
    after: str | None = ""
    while after is not None:
        batch = await site.store.read(partial(_open_batch, site, doctype, field, after))
        after = batch.last
        yield batch


def _open_batch(site: Site, doctype: str, field: str, after: str, tx: Tx) -> _Opened:
    c = site.registry.tables[doctype].table.c
    page = (
        sa.select(c.name, c[ROW_ID], c[field])
        .where(c[field].is_not(None), c.name > after)
        .order_by(c.name)
        .limit(BATCH)
    )
    rows = tx.rows(page)
    faults = Counter[Place]()
    for _, row_id, sealed in rows:
        try:
            site.vault.open(sealed, doctype, field, row_id)
        except UnreadableError as error:
            faults[doctype, field, str(error)] += 1
    return _Opened(len(rows), faults, rows[-1][0] if len(rows) == BATCH else None)
