"""A table for tests of transactions."""

from __future__ import annotations

from functools import partial
from typing import Final

from sqlalchemy import Column, Integer, MetaData, Table, Text, UniqueConstraint, insert, select
from sqlalchemy.schema import CreateTable
from sqlalchemy.sql import bindparam

from fw_actors.store import Statement, Tx

NOTES: Final = Table(
    "notes",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("text", Text, nullable=False),
    UniqueConstraint("owner", "text"),
)
ADD: Final = Statement(insert(NOTES).values(owner=bindparam("owner"), text=bindparam("text")))
ALL: Final = Statement(select(NOTES.c.text).order_by(NOTES.c.id))


class Refused(Exception):
    """Raised by a test's function."""


def create_notes(tx: Tx) -> None:
    tx.run(CreateTable(NOTES, if_not_exists=True))


def add(text: str) -> partial[int]:
    """A transaction that adds one note."""
    return partial(_add, text=text)


def _add(tx: Tx, text: str) -> int:
    return tx.run(ADD, owner="ada", text=text)


def add_then_refuse(tx: Tx) -> None:
    """A transaction that adds a note and then fails."""
    tx.run(ADD, owner="ada", text="undone")
    raise Refused


def texts(tx: Tx) -> list[str]:
    return [text for (text,) in tx.rows(ALL)]
