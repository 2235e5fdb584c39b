"""A table for tests of transactions."""

from __future__ import annotations

from functools import partial
from typing import Final

import trio
from sqlalchemy import Column, Integer, MetaData, Table, Text, UniqueConstraint, insert, select
from sqlalchemy.schema import CreateTable
from sqlalchemy.sql import bindparam

from fw_actors.store import Statement, Store, Tx

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


class NoteRefused(Exception):
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
    raise NoteRefused


def texts(tx: Tx) -> list[str]:
    return [text for (text,) in tx.rows(ALL)]


async def answers_of_callers(store: Store, count: int) -> dict[int, int]:
    """Let so many tasks write a note and a number concurrently; return the answer of each."""
    answers: dict[int, int] = {}

    async def caller(number: int) -> None:
        await store.write(add(str(number)))
        answers[number] = await store.write(lambda tx: number)

    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(caller, number)
    return answers
