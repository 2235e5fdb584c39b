"""Documents over HTTP (D-10 to D-16); what documents do is tested with them."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from fw_actors.documents import rest
from fw_actors.errors import ConflictError
from tests.web.client import AppClient
from tests.web.fakes import EXPIRES, SID, FakeDocuments, FakeGateway

ORDERS = "/api/resource/Sales%20Order"
SHOWN = {"doctype": "Sales Order", "owner": "ann", "name": "a", "qty": 1}


@pytest.fixture(autouse=True)
def one_order(documents: FakeDocuments) -> None:
    documents.held["a"] = dict(SHOWN)


async def test_insert_returns_201_with_the_document(
    client: AppClient, documents: FakeDocuments
) -> None:
    body = {"name": "b", "lines": [{"item": "x\ny"}], "submit": True}
    reply = await client.ask("POST", ORDERS, body, sid=SID)
    assert reply.status == 201
    assert reply.json == {"data": {"doctype": "Sales Order", "owner": "ann", **body}}
    assert documents.calls == [("Sales Order", body)]


@pytest.mark.parametrize(
    ("method", "path", "body", "shown"),
    [
        ("GET", "/a", None, {"data": SHOWN}),
        ("PUT", "/a", {"qty": 2}, {"data": {**SHOWN, "qty": 2}}),
        ("DELETE", "/a", None, {"ok": True}),
        ("POST", "/a/submit", None, {"data": {**SHOWN, "docstatus": 1}}),
        ("POST", "/a/submit", {}, {"data": {**SHOWN, "docstatus": 1}}),
        ("POST", "/a/cancel", {}, {"data": {**SHOWN, "docstatus": 2}}),
        ("POST", "/a/rename", {"name": "b"}, {"data": {**SHOWN, "name": "b"}}),
        ("GET", "/a/export", None, SHOWN),
    ],
)
async def test_resource_verbs_respond_as_the_contract_says(
    client: AppClient, method: str, path: str, body: object, shown: object
) -> None:
    reply = await client.ask(method, ORDERS + path, body, sid=SID)
    assert (reply.status, reply.json) == (200, shown)


@pytest.mark.parametrize("query", ["start=-1", "limit=x", "limit=1.0"])
async def test_resource_list_states_the_rule_of_a_number(client: AppClient, query: str) -> None:
    """-1 is a whole number too, so the refusal states the limit (H-50)."""
    reply = await client.ask("GET", f"{ORDERS}?{query}", sid=SID)
    name = query.partition("=")[0]
    assert reply.json["error"]["message"] == f"{name} must be a whole number, 0 or more."


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/no"),
        ("PUT", "/no"),
        ("DELETE", "/no"),
        ("POST", "/no/submit"),
        ("POST", "/no/cancel"),
        ("POST", "/no/rename"),
        ("GET", "/no/export"),
    ],
)
async def test_resource_is_404_without_the_document(
    client: AppClient, method: str, path: str
) -> None:
    body: object = {} if method in ("PUT", "POST") else None
    body = {"name": "b"} if path.endswith("rename") else body
    reply = await client.ask(method, ORDERS + path, body, sid=SID)
    assert (reply.status, reply.error["type"]) == (404, "NotFoundError")


async def test_submit_and_cancel_accept_an_empty_body(client: AppClient) -> None:
    for verb in ("submit", "cancel"):
        reply = await client.ask("POST", f"{ORDERS}/a/{verb}", {"qty": 1}, sid=SID)
        assert (reply.status, reply.error["extra"]) == (400, {"field": "qty"})


READ = "2026-02-28T12:00:00.000Z"
WITH_VERSION: list[tuple[str, str, Any]] = [
    ("POST", "/a/submit", {"modified": READ}),
    ("POST", "/a/cancel", {"modified": READ}),
    ("POST", "/a/rename", {"name": "b", "modified": READ}),
    ("DELETE", f"/a?modified={READ}", None),
]


@pytest.mark.parametrize(("method", "path", "body"), WITH_VERSION)
async def test_resource_verbs_take_the_version_that_was_read(
    client: AppClient, documents: FakeDocuments, method: str, path: str, body: Any
) -> None:
    """The body of submit, cancel and rename has `modified`, the query of DELETE (D-13, D-15)."""
    assert (await client.ask(method, ORDERS + path, body, sid=SID)).status == 200
    assert documents.versions == [EXPIRES]


@pytest.mark.parametrize("modified", [5, None, True, {}, [READ], "", "yesterday", "x" * 400])
async def test_resource_refuses_a_version_that_is_no_time(
    client: AppClient, documents: FakeDocuments, modified: Any
) -> None:
    for act in ("submit", "cancel", "rename"):
        body = {"modified": modified, **({"name": "b"} if act == "rename" else {})}
        reply = await client.ask("POST", f"{ORDERS}/a/{act}", body, sid=SID)
        assert (reply.status, reply.error["extra"]) == (400, {"field": "modified"})
    assert documents.versions == []


@pytest.mark.parametrize(
    "query", ["modified=", "modified=1", "modified=2026-02-28T12:00:00.000+00:00", "version=1"]
)
async def test_delete_refuses_another_query(
    client: AppClient, documents: FakeDocuments, query: str
) -> None:
    """A plus sign in a query is a blank unless it is escaped."""
    reply = await client.ask("DELETE", f"{ORDERS}/a?{query}", sid=SID)
    assert (reply.status, reply.error["extra"]) == (400, {"field": query.partition("=")[0]})
    assert documents.versions == []


async def test_delete_accepts_an_empty_body(client: AppClient, documents: FakeDocuments) -> None:
    """A version in the body must not be ignored: the document would be deleted unseen (D-13)."""
    reply = await client.ask("DELETE", f"{ORDERS}/a", {"modified": READ}, sid=SID)
    assert (reply.status, reply.error["extra"]) == (400, {"field": "modified"})
    assert "a" in documents.held
    assert (await client.ask("DELETE", f"{ORDERS}/a", {}, sid=SID)).status == 200


async def test_export_is_an_attachment(client: AppClient, documents: FakeDocuments) -> None:
    """An export is the bare document as an attachment (D-16); RFC 8187 for its name."""
    name = 'ü "1"'
    documents.held[name] = {}
    reply = await client.ask("GET", f"{ORDERS}/{quote(name)}/export", sid=SID)
    named = "attachment; filename*=UTF-8''Sales%20Order%20%C3%BC%20%221%22.json"
    assert reply.header("content-disposition") == named


async def test_write_requires_a_body(client: AppClient) -> None:
    for method, path in (("POST", ""), ("PUT", "/a")):
        assert (await client.ask(method, ORDERS + path, sid=SID)).status == 400


async def test_list_parameters_have_their_types(
    client: AppClient, documents: FakeDocuments
) -> None:
    listing: dict[str, Any] = {
        "filters": [["qty", ">", 1], ["name", "like", "a%"]],
        "fields": ["name", "qty"],
        "order_by": "qty desc, name",
        "limit": 5,
        "start": 0,
    }
    query = "&".join(
        f"{name}={quote(value if isinstance(value, str) else json.dumps(value))}"
        for name, value in listing.items()
    )
    reply = await client.ask("GET", f"{ORDERS}?{query}", sid=SID)
    assert reply.json == {"data": [SHOWN], "total": 1}
    await client.ask("GET", ORDERS, sid=SID)
    assert documents.calls == [("Sales Order", listing), ("Sales Order", {})]


@pytest.mark.parametrize("limit", ["", "x", "-1", "1.5", "٣", "9" * 30, "+1", "1e3", "0x1"])
async def test_list_limit_must_be_a_whole_number(client: AppClient, limit: str) -> None:
    reply = await client.ask("GET", f"{ORDERS}?limit={quote(limit)}", sid=SID)
    assert (reply.status, reply.error["extra"]) == (400, {"field": "limit"})


@pytest.mark.parametrize("filters", ["", "[", "[NaN]", "[" * 40 + "]" * 40, '["\\u0000"]'])
async def test_list_filters_are_read_as_strictly_as_a_body(client: AppClient, filters: str) -> None:
    reply = await client.ask("GET", f"{ORDERS}?filters={quote(filters)}", sid=SID)
    assert (reply.status, reply.error["extra"]) == (400, {"field": "filters"})


async def test_write_prepares_passwords_before_the_transaction(
    client: AppClient, gateway: FakeGateway, documents: FakeDocuments
) -> None:
    """A `new_password` over HTTP is hashed before the transaction (A-295)."""
    body = {"name": "b", "new_password": "plain"}
    await client.ask("POST", ORDERS, body, sid=SID)
    reply = await client.ask("PUT", f"{ORDERS}/a", {"new_password": "plain"}, sid=SID)
    expected = ("prepare", "ann", "Sales Order")
    assert [row for row in gateway.calls if row[0] == "prepare"] == [
        (*expected, None),
        (*expected, "a"),
    ]
    assert documents.held["b"]["new_password"] == "hashed"
    assert reply.json["data"]["new_password"] == "hashed"


async def test_write_allows_controls_in_passwords_only(
    client: AppClient,
) -> None:
    body = {"name": "b", "new_password": "\0\x1b"}
    assert (await client.ask("POST", ORDERS, body, sid=SID)).status == 201
    reply = await client.ask("POST", ORDERS, {"name": "b", "title": "\x1b"}, sid=SID)
    assert (reply.status, reply.error["extra"]) == (400, {"field": "title"})


async def test_resource_passes_on_errors_and_the_request_id(
    client: AppClient, gateway: FakeGateway
) -> None:
    await client.ask("GET", ORDERS, sid=SID, headers=[("X-Request-Id", "r-1")])
    assert gateway.request_ids == ["r-1"]
    gateway.refuse = ConflictError("It was changed meanwhile.")
    reply = await client.ask("PUT", f"{ORDERS}/a", {"qty": 1}, sid=SID)
    assert (reply.status, reply.error["type"]) == (409, "ConflictError")


async def test_write_is_undone_for_a_value_without_a_json_form(
    client: AppClient,
    gateway: FakeGateway,
    documents: FakeDocuments,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hook may put anything on its document: 500, and nothing was written."""
    undone: list[type[Exception]] = []

    async def write(caller: Any, fn: Any, request_id: str = "") -> Any:
        try:
            return fn(None)
        except Exception as error:
            undone.append(type(error))
            raise

    monkeypatch.setattr(gateway, "write", write)
    for verb in ("insert", "save", "submit", "cancel", "rename"):
        monkeypatch.setattr(rest, verb, lambda *args: {"value": object()})
    for method, path, body in (
        ("POST", "", {"name": "b"}), ("PUT", "/a", {}), ("POST", "/a/submit", None),
        ("POST", "/a/cancel", None), ("POST", "/a/rename", {"name": "c"}),
    ):  # fmt: skip
        reply = await client.ask(method, ORDERS + path, body, sid=SID)
        assert (reply.status, reply.error["type"]) == (500, "InternalError")
    assert undone == [TypeError] * 5
