"""Rows of the DocTypes that the service alone writes: its own records, without hooks or events."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from fw_actors.documents.doctype import ROW_ID
from fw_actors.documents.naming import random_name
from fw_actors.documents.registry import Registry
from fw_actors.runtime import Entropy
from fw_actors.store import Statement, Tx


class Records:
    """Adds rows to the table of one DocType."""

    def __init__(self, registry: Registry, doctype: str, entropy: Entropy) -> None:
        table = registry.tables[doctype]
        self._entropy = entropy
        self._fields = table.fields
        self._insert = Statement(
            sa.insert(table.table).values({n: sa.bindparam(n) for n in table.names if n != ROW_ID})
        )

    def add(self, tx: Tx, owner: str, **values: Any) -> str:
        """Write a row with a random name; return the name.

        `owner` is whose doing it is. `values` are the fields as a document holds them; those
        that are left out are null.
        """
        name, now = random_name(self._entropy), tx.now
        tx.run(
            self._insert,
            name=name,
            owner=owner,
            creation=now,
            modified=now,
            modified_by=owner,
            docstatus=0,
            idx=0,
            **{f.name: f.to_store(values.get(f.name)) for f in self._fields},
        )
        return name
