"""A site with everything that an upgrade must keep, made by an older build, and its rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import psycopg

from fw_actors.store.statement import POSTGRESQL
from tests.releases.upgrade_kit import Installed

PASSWORD: Final = "correct horse battery staple"
KEY: Final = "k" * 40
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
APP: Final = '''
from fw_actors.app import Data, DocType, Int, Vault, migration, whitelist


class Note(DocType, naming="given", permissions={"Clerk": "list read create write"}):
    """A note."""

    title = Data(required=True)
    n = Int()
    token = Vault()


@whitelist()
def defect(fw):
    raise RuntimeError("a defect")


def refuse(fw, text):
    raise ValueError(text)


@migration(1)
def rename(fw):
    fw.db.sql("UPDATE doc_note SET title = 'migrated' WHERE title = 'old'")
'''
LEASED_TIMEOUT: Final = 15
"""Seconds of an attempt of the Webhook "leased": it hangs until the service is killed."""
FILL: Final = """
import desk

def user(name, *roles, **fields):
    fw.new_doc("User", name=name, email=name + "@x.test", **fields,
               roles=[{"role": role} for role in roles]).insert()

def webhook(name, **fields):
    fw.new_doc("Webhook", name=name, url=url + "/" + name, secret=secret, **fields).insert()

user("admin", "System Manager", "Event Publisher", new_password=password)
user("ann", "Clerk", new_password=password)
user("dora", "Clerk", new_password=password)
user("invited")
user("gone", enabled=0, new_password=password)
webhook("sent", event_type="Custom", custom_event="a")
webhook("retried", event_type="Custom", custom_event="a", max_attempts=10)
webhook("leased", event_type="Custom", custom_event="a", timeout=leased_timeout)
webhook("paused", event_type="Custom", custom_event="a")
webhook("limited", event_type="Custom", custom_event="a", rate_limit=1)
webhook("ordered", event_type="Document", webhook_doctype="Note", on_insert=1, on_update=1,
        ordering="document", max_attempts=10)
webhook("disabled", event_type="Custom", custom_event="a", enabled=0)
fw.new_doc("User Permission", user="ann", allow="User", for_value="ann").insert()
fw.new_doc("Note", name="old", title="old", token="a token").insert()
for number in range(3):
    fw.enqueue(desk.refuse, text=str(number))
"""


def fill(site: Installed, receiver: str) -> None:
    """Fill the site of a stopped service."""
    values = (receiver, SECRET, PASSWORD, LEASED_TIMEOUT)
    given = f"url, secret, password, leased_timeout = {values!r}"
    (site.site / "fill.py").write_text(f"{given}\n{FILL}")
    site.fw("exec", "fill.py", "--commit")


Rows = Mapping[str, tuple[Sequence[str], set[tuple[Any, ...]]]]
"""Of each table its columns and rows."""


def rows_of(site: Installed) -> Rows:
    """Return all that is stored."""
    url = site.environ.get("FW_DATABASE", "")
    if url.startswith(POSTGRESQL):
        with psycopg.connect(url) as connection:
            names = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
            return _read(connection, names)
    with closing(sqlite3.connect(site.site / "data" / "fw.db")) as file:
        return _read(file, "SELECT name FROM sqlite_schema WHERE type = 'table'")


def _read(connection: Any, names: str) -> Rows:
    found = {}
    for (name,) in connection.execute(names).fetchall():
        rows = connection.execute(f'SELECT * FROM "{name}"')
        found[name] = ([each[0] for each in rows.description], set(rows.fetchall()))
    return found


def changed(before: Rows, after: Rows, *, but: Iterable[str] = ()) -> dict[str, Any]:
    """Return the rows that only one of them has, in the columns of both, by table."""
    found = {}
    for table, (columns, rows) in before.items():
        if table in but:
            continue
        later, kept = after[table]
        both = [name for name in columns if name in later]
        old = {tuple(row[columns.index(name)] for name in both) for row in rows}
        new = {tuple(row[later.index(name)] for name in both) for row in kept}
        if old != new:
            found[table] = old ^ new
    return found
