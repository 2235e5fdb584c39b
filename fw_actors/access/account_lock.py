"""The row lock of an account, which serialises the transactions that change it.

Passwords, sessions and links depend on the account's state but are stored in tables of their own:
a session must not be created while the password is being replaced. Every transaction that changes
one of them therefore locks the account's row first and touches the other tables afterwards.
SQLite has a single writer and needs no lock.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from fw_actors.documents.doctype import table_name
from fw_actors.store import Statement, Tx

_USERS: Final = sa.table(table_name("User"), sa.column("name"))
_LOCK: Final = Statement(
    sa.select(_USERS.c.name)
    .where(_USERS.c.name == sa.bindparam("user"))
    .with_for_update(key_share=True)
)


def lock_account(tx: Tx, user: str) -> None:
    """Lock the account row until the transaction ends.

    A missing account is not an error. Later reads see what earlier lock holders committed.
    """
    if tx.locks_rows:
        tx.run(_LOCK, user=user)
