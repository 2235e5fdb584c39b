"""Counts the stored secrets of a site, and those that its key does not decrypt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import sqlalchemy as sa

from fw_actors.documents.doctype import ROW_ID
from fw_actors.documents.fields import Vault as VaultField
from fw_actors.documents.vault import UnreadableError
from fw_actors.ops.site import Site
from fw_actors.store import Tx

BATCH: Final = 500
"""How many values one transaction decrypts, and how many of each field a start looks at."""

Place = tuple[str, str, str]
"""DocType, field, and the reason why values cannot be decrypted."""


class _Opened(NamedTuple):
    number: int
    faults: Counter[Place]
    last: str | None  # continue after this row; None at the end


@dataclass(frozen=True)
class SecretFacts:
    """The number of stored values, and the unreadable ones by place."""

    stored: int
    unreadable: Mapping[Place, int]

    def complaints(self) -> Iterator[str]:
        """Return a sentence for each place with unreadable values."""
        for (doctype, field, reason), count in sorted(self.unreadable.items()):
            yield (
                f"{count} of the values in {doctype}, field {field}, cannot be decrypted: {reason}"
            )


async def secret_facts(site: Site, *, first_batches: bool = False) -> SecretFacts:
    """Decrypt every stored value, one batch per transaction.

    `first_batches`: only the first batch of each field, which tells a wrong key in milliseconds.
    """
    stored, unreadable = 0, Counter[Place]()
    for table in site.registry.tables.values():
        for field in table.fields if table.has_vault else ():
            after: str | None = "" if isinstance(field, VaultField) else None
            while after is not None:
                open_batch = partial(_open_batch, site, table.meta.name, field.name, after)
                batch = await site.store.read(open_batch)
                stored += batch.number
                unreadable.update(batch.faults)
                after = None if first_batches else batch.last
    return SecretFacts(stored, dict(unreadable))


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
