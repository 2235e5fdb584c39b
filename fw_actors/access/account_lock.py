"""Has transactions that change one account wait for each other.

Password, sessions and links are judged by the account's state and rest in tables of their own: a
session must not be made beside a password that is just being replaced. So whoever changes any of
them takes the account's row first, and then the others, in every transaction in this order.
SQLite has one writer, and leaves the lock out.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from fw_actors.documents.doctype import table_name
from fw_actors.store import Statement, Tx

_USERS: Final = sa.table(table_name("User"), sa.column("name"))
_HOLD: Final = Statement(
    sa.select(_USERS.c.name)
    .where(_USERS.c.name == sa.bindparam("user"))
    .with_for_update(key_share=True)
)


def hold(tx: Tx, user: str) -> None:
    """Have others that hold or save this account wait until this transaction ends.

    An account that is not there is no error. What is read of it from here on is what they left.
    """
    tx.run(_HOLD, user=user)
