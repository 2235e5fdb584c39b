"""The tables of document events (B-50, B-51, B-52, B-53, B-54) and of
redaction (B-90, B-91, B-92), row by row."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from fw_actors.documents import rest
from fw_actors.errors import ValidationError
from tests.fw_actors.virtual_site_kit import VirtualSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

ALL = ("on_insert", "on_update", "on_submit", "on_cancel", "on_trash")
ORDER = "Sales Order"
NAME = "SO-00001"


def make(fw: Any, *, submit: bool = False) -> Any:
    body = {"title": "t", "lines": [{"item": "a"}], "submit": submit}
    return rest.insert(fw, ORDER, body)


def nothing(fw: Any) -> None:
    """A precondition: there is no order yet."""


def draft(fw: Any) -> None:
    make(fw)


def submitted(fw: Any) -> None:
    make(fw, submit=True)


def change_row(fw: Any) -> None:
    lines = rest.read(fw, ORDER, NAME)["lines"]
    rest.save(fw, ORDER, NAME, {"lines": [{**lines[0], "item": "other"}]})


def throw(field: str) -> Callable[[Any], None]:
    def fn(fw: Any) -> None:
        with suppress(ValidationError):
            rest.insert(fw, ORDER, {"title": field})

    return fn


# the rule's row, what was there before, what happens, the events of it
EVENTS: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any], list[str]]] = [
    ("doc.on_insert: a document is inserted", nothing, make, ["on_insert"]),
    ("doc.on_update: a draft is saved", draft,
     lambda fw: rest.save(fw, ORDER, NAME, {"title": "u"}), ["on_update"]),
    ("doc.on_update: a draft is saved (without a change)", draft,
     lambda fw: rest.save(fw, ORDER, NAME, {}), ["on_update"]),
    ("doc.on_update: an allowOnSubmit field of a submitted document changes", submitted,
     lambda fw: rest.save(fw, ORDER, NAME, {"remark": "r"}), ["on_update"]),
    ("doc.on_submit: a document is submitted", draft,
     lambda fw: rest.submit(fw, ORDER, NAME), ["on_submit"]),
    ("doc.on_submit: an insert that submits sends on_insert and on_submit", nothing,
     submitted, ["on_insert", "on_submit"]),
    ("doc.on_cancel: cancelled", submitted,
     lambda fw: rest.cancel(fw, ORDER, NAME), ["on_cancel"]),
    ("doc.on_trash: deleted", draft, lambda fw: rest.delete(fw, ORDER, NAME), ["on_trash"]),
    ("rule 1: a hook that throws removes the event with the write", nothing,
     throw("refuse"), []),
    ("rule 1: a hook that throws after the row was written", nothing,
     throw("refuse late"), []),
    ("rule 2: dbSet is no event", draft,
     lambda fw: fw.get_doc(ORDER, NAME).db_set("title", "u"), []),
    ("rule 2: rename is no event", draft,
     lambda fw: rest.rename(fw, ORDER, NAME, {"name": "other"}), []),
    ("Webhook rule 1: a child row change is an update of its parent", draft,
     change_row, ["on_update"]),
]  # fmt: skip


@pytest.mark.parametrize(("row", "before", "fn", "events"), EVENTS, ids=[e[0] for e in EVENTS])
async def test_document_events_match_contract_table(
    site: VirtualSite,
    row: str,
    before: Callable[[Any], Any],
    fn: Callable[[Any], Any],
    events: list[str],
) -> None:
    await site.do(before)
    await site.watch(ORDER, *ALL)
    await site.watch("Customer", *ALL)  # is not subscribed to orders
    await site.do(fn)
    rows = await site.deliveries()
    assert [each["payload"]["type"] for each in rows] == [f"doc.{event}" for event in events], row
    assert {each["reference_doctype"] for each in rows} <= {ORDER}


SECRETS = {
    "pin": "s-1", "password": "s-2", "password_hash": "s-3", "new_password": "s-4",
    "api_secret": "s-5", "secret": "s-6", "wifi_password": "s-7", "client_secret": "s-8",
    "vault": "s-9", "vault_secret": "s-10", "margin": 7.2519, "hidden_pin": "s-11",
    "hidden_vault": "s-12", "secretary": "Ann", "passwords": "three", "secret_santa": "Bob",
    "api_key": "public",
}  # fmt: skip
ROW = {k: SECRETS[k] for k in ("pin", "password", "wifi_password", "vault", "margin", "secretary")}
BODY = {"name": "box", **SECRETS, "rows": [ROW, {}], "hidden_rows": [ROW]}

# the rule, the field, what data.doc has of it; ABSENT where it is removed
ABSENT = object()
REDACTION: list[tuple[str, str, object]] = [
    ("1: a Password field", "pin", None),
    ("1: by name", "password", None),
    ("1: by name", "password_hash", None),
    ("1: by name", "new_password", None),
    ("1: by name", "api_secret", None),
    ("1: by name", "secret", None),
    ("1: ending in _password", "wifi_password", None),
    ("1: ending in _secret", "client_secret", None),
    ("2: a Vault field with a secret stored", "vault", {"configured": True}),
    ("2: a Vault field without one", "unset_vault", None),
    ("2: a Vault field named like a secret", "vault_secret", {"configured": True}),
    ("3: a field above permission level 0", "margin", ABSENT),
    ("3: a Password above permission level 0", "hidden_pin", ABSENT),
    ("3: a Vault above permission level 0", "hidden_vault", ABSENT),
    ("3: a table above permission level 0", "hidden_rows", ABSENT),
    ("4: no other field", "secretary", "Ann"),
    ("4: no other field", "passwords", "three"),
    ("4: no other field", "secret_santa", "Bob"),
    ("4: no other field", "api_key", "public"),
]
IN_ROWS = ("pin", "password", "wifi_password", "vault", "unset_vault", "margin", "secretary")


@pytest.mark.parametrize("user", ["Administrator", "boss"])
async def test_event_redaction_matches_contract_table(site: VirtualSite, user: str) -> None:
    """The rules hold for the document and its child rows (B-94), and for every user."""
    await site.add_account("boss", "Seller", "Boss", "System Manager", password=None)
    await site.watch("Strongbox", "on_insert", "on_update", "on_trash")

    def live(fw: Any) -> None:
        rest.insert(fw, "Strongbox", BODY)
        rest.save(fw, "Strongbox", "box", {"secretary": "Ann"})
        rest.delete(fw, "Strongbox", "box")

    await site.do(live, user)
    rows = await site.deliveries()
    assert len(rows) == 3
    for each in rows:
        doc = each["payload"]["data"]["doc"]
        for rule, field, shown in REDACTION:
            assert doc.get(field, ABSENT) == shown, (rule, field)
            if field in IN_ROWS:
                assert doc["rows"][0].get(field, ABSENT) == shown, (rule, field, "in a row")
    text = str(await site.sql("SELECT payload FROM doc_webhook_delivery"))
    assert "s-" not in text
    assert "7.2519" not in text
