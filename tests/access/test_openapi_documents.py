"""The fields of each DocType in /api/openapi.json (H-105).

The document and the behaviour of the service are compared in both directions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from tests.access.schema_check import SchemaChecker
from tests.http_site import HttpSite, http_site

APPS = Path(__file__).parent.parent / "fw_actors" / "documents" / "apps"
ORDER = "/api/resource/Sales%20Order"
SAMPLE = "/api/resource/Sample"
JSON = "application/json"


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpSite]:
    monkeypatch.syspath_prepend(APPS)
    async with http_site(tmp_path, apps=("shop",)) as made:
        yield made


class Reader:
    """A user with the document as that user gets it."""

    def __init__(self, site: HttpSite, sid: str, document: dict[str, Any]) -> None:
        self.site, self.sid, self.document = site, sid, document
        self.checker = SchemaChecker(document)

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        return await self.site.ask(method, path, body, sid=self.sid)

    def operation(self, method: str, path: str) -> dict[str, Any]:
        found: dict[str, Any] = self.document["paths"][path][method.lower()]
        return found

    def refused(self, method: str, path: str, body: object) -> list[str]:
        """Return the faults that the document's schema finds in a body."""
        content = self.operation(method, path)["requestBody"]["content"]
        return self.checker.problems(content[JSON]["schema"], body)

    def unlike(self, method: str, path: str, status: int, answer: object) -> list[str]:
        """Return the parts of an answer that the document does not describe."""
        content = self.operation(method, path)["responses"][str(status)]["content"]
        return self.checker.problems(content[JSON]["schema"], answer)


async def reader(site: HttpSite, *roles: str, name: str = "boss") -> Reader:
    sid = await site.sid(await site.add_account(name, *roles))
    reply = await site.ask("GET", "/api/openapi.json", sid=sid)
    assert reply.status == 200
    return Reader(site, sid, reply.json)


FULL_SAMPLE = {
    "name": "full", "data": "0123456789", "text": "a\nb", "count": -5, "ratio": 0.5, "done": True,
    "day": "2024-02-29", "moment": "2024-02-29T12:00:00Z", "kind": "a", "link": "Ada",
    "extra": {"a": [1, None]}, "pin": "1", "token": "t",
}  # fmt: skip
GOOD: list[tuple[str, dict[str, Any]]] = [
    (SAMPLE, FULL_SAMPLE),
    (SAMPLE, {}),
    (SAMPLE, {**dict.fromkeys(FULL_SAMPLE), "name": "nulls"}),
    (SAMPLE, {"doctype": "Sample", "kind": "", "done": 0, "count": 2**53, "extra": [1]}),
    (ORDER, {"title": "t"}),
    (ORDER, {"title": "t", "lines": [{"item": "x", "cost": 1.5, "token": "s"}], "submit": True}),
    (ORDER, {"title": "t", "lines": None, "customer": "Ada", "margin": 2}),
    ("/api/resource/Customer", {"title": "Bob"}),
    ("/api/resource/Webhook", {"url": "https://x.test", "event_type": "Custom",
                               "custom_event": "a.b", "secret": "s", "timeout": 60}),
    ("/api/resource/User", {"name": "ida", "email": "ida@x.test", "roles": [{"role": "Seller"}],
                            "new_password": "correct horse battery"}),
]  # fmt: skip
BAD: list[tuple[str, dict[str, Any]]] = [
    *((SAMPLE, {name: value}) for name, value in (
        ("name", ""), ("name", "x" * 141), ("data", "x" * 11), ("data", 5), ("text", ["a"]),
        ("count", 1.5), ("count", "1"), ("count", True), ("count", 2**53 + 1), ("ratio", "1"),
        ("done", 2), ("done", "1"), ("day", 20240229), ("moment", 0), ("kind", "c"), ("kind", 1),
        ("link", "x" * 141), ("link", {}), ("pin", 1), ("token", {"configured": False}),
        ("token", 1), ("nothing", 1), ("owner", "x"), ("creation", "2024-01-01"), ("idx", 1),
        ("docstatus", 1), ("doctype", "Other"), ("modified", "2024-01-01"), ("submit", True),
    )),
    *((ORDER, body) for body in (
        {}, {"title": ""}, {"title": None}, {"title": "t", "name": "x"},
        {"title": "t", "lines": [{}]}, {"title": "t", "lines": [5]}, {"title": "t", "lines": {}},
        {"title": "t", "lines": [{"item": "x", "no": 1}]},
        {"title": "t", "lines": [{"item": "x", "name": 5}]}, {"title": "t", "submit": 1},
    )),
    ("/api/resource/Customer", {"title": "a", "name": "b"}),
    *(("/api/resource/Webhook", {"url": "https://x.test", "event_type": "Custom",
                                 "custom_event": "a.b", "secret": "s", **wrong})
      for wrong in ({"timeout": 0}, {"timeout": 61}, {"max_attempts": 11}, {"event_type": ""},
                    {"url": ""}, {"event_type": "Both"}, {"url": "https://x.test/" + "x" * 2048})),
]  # fmt: skip


async def test_openapi_schemas_accept_what_the_service_accepts(
    site: HttpSite,
) -> None:
    boss = await reader(site, "System Manager")
    await boss.ask("POST", "/api/resource/Customer", {"title": "Ada"})
    for path, body in GOOD:
        assert boss.refused("POST", path, body) == []
        reply = await boss.ask("POST", path, body)
        assert reply.status == 201, reply.body
        assert boss.unlike("POST", path, 201, reply.json) == []
        await assert_the_rest_is_as_told(boss, path, reply.json["data"])


async def assert_the_rest_is_as_told(boss: Reader, path: str, doc: dict[str, Any]) -> None:
    """Read, list, save, export: of a document that is there."""
    one, where = f"{path}/{quote(doc['name'])}", path + "/{name}"
    change = {"modified": doc["modified"], "name": doc["name"], "doctype": doc["doctype"]}
    assert boss.refused("PUT", where, change) == []
    for method, url, schema, body in (
        ("GET", one, where, None),
        ("GET", path, path, None),
        ("PUT", one, where, change),
    ):
        reply = await boss.ask(method, url, body)
        assert reply.status == 200, reply.body
        assert boss.unlike(method, schema, 200, reply.json) == []


@pytest.mark.parametrize("bad", range(0, len(BAD), 12))
async def test_openapi_schemas_reject_what_the_service_rejects(site: HttpSite, bad: int) -> None:
    boss = await reader(site, "System Manager")
    for path, body in BAD[bad : bad + 12]:
        assert boss.refused("POST", path, body), body
        reply = await boss.ask("POST", path, body)
        assert reply.status in (400, 422), (body, reply.body)


async def test_openapi_allows_sending_a_read_document_back(
    site: HttpSite,
) -> None:
    boss = await reader(site, "System Manager")
    body = {"title": "t", "lines": [{"item": "x", "token": "s", "pin": "1"}]}
    doc = (await boss.ask("POST", ORDER, body)).json["data"]
    for key in ("docstatus", "owner", "creation", "modified_by", "idx"):
        del doc[key]
    assert boss.refused("PUT", ORDER + "/{name}", doc) == []
    assert (await boss.ask("PUT", f"{ORDER}/{doc['name']}", doc)).status == 200


async def test_openapi_shows_the_callers_doctypes_and_levels(site: HttpSite) -> None:
    """A field above the own permlevel is absent on read, and 403 on a changed write (D-90)."""
    ann = await reader(site, "Reader", name="ann")
    paths = {path for path in ann.document["paths"] if path.startswith("/api/resource/")}
    generic = {path for path in paths if path.startswith("/api/resource/{doctype}")}
    assert paths - generic == {ORDER, ORDER + "/{name}"}
    assert set(ann.document["paths"][ORDER]) == {"get"}
    assert "margin" not in ann.document["components"]["schemas"]["Sales_Order.shown"]["properties"]
    bob = await reader(site, "Seller", "Boss", name="bob")
    assert set(bob.document["paths"][ORDER]) == {"get", "post"}
    assert ORDER + "/{name}/submit" in bob.document["paths"]
    assert SAMPLE + "/{name}/submit" not in bob.document["paths"]
    for kind in ("shown", "listed", "inserted", "saved"):
        assert (
            "margin" in bob.document["components"]["schemas"][f"Sales_Order.{kind}"]["properties"]
        )


async def test_openapi_names_no_defaults_for_a_save(site: HttpSite) -> None:
    """Generated clients send the defaults of fields that a program leaves out: a save of one field
    would reset the others (D-14, H-105)."""
    boss = await reader(site, "System Manager")
    schemas = boss.document["components"]["schemas"]
    assert schemas["Webhook.inserted"]["properties"]["timeout"]["default"] == 10
    saved = [schema for name, schema in schemas.items() if name.endswith(".saved")]
    assert len(saved) > 3
    for schema in saved:
        assert not [name for name, each in schema["properties"].items() if "default" in each]


async def test_openapi_shows_guests_no_doctype(site: HttpSite) -> None:
    reply = await site.ask("GET", "/api/openapi.json")
    assert not [path for path in reply.json["paths"] if "Sales" in path or "User/" in path]
    assert not [name for name in reply.json["components"]["schemas"] if "." in name]


async def test_openapi_marks_the_services_fields_read_only(site: HttpSite) -> None:
    """Webhook Delivery is read only, but for replay (B-182)."""
    boss = await reader(site, "System Manager")
    path = "/api/resource/Webhook%20Delivery"
    assert {*boss.document["paths"][path], *boss.document["paths"][path + "/{name}"]} == {"get"}
    assert "Has Role" not in str(list(boss.document["paths"]))


async def test_openapi_says_what_fields_mean(site: HttpSite) -> None:
    """D-171."""
    boss = await reader(site, "System Manager")
    schemas = boss.document["components"]["schemas"]
    meant = "The number of attempts after which a delivery has failed."
    sent = boss.operation("POST", "/api/resource/Webhook")["requestBody"]["content"][JSON]
    request = schemas[sent["schema"]["$ref"].rpartition("/")[2]]
    expected = [request, schemas["Webhook.shown"], schemas["Webhook.listed"]]
    assert [each["properties"]["max_attempts"]["description"] for each in expected] == [meant] * 3
    for kind in ("shown", "listed", "inserted", "saved"):
        fields = schemas[f"Webhook.{kind}"]["properties"]
        assert [name for name in fields if "description" not in fields[name]] == []


async def test_openapi_example_of_each_list_is_answered(site: HttpSite) -> None:
    """H-107: a first trial of an operation sends its example."""
    boss = await reader(site, "System Manager")
    rules = [path for path in boss.document["paths"] if path.startswith("/api/resource/")]
    lists = [path for path in rules if path.count("/") == 3 and "{" not in path]
    assert len(lists) > 10
    for path in lists:
        parameters = boss.operation("GET", path)["parameters"]
        query = urlencode({each["name"]: each["example"] for each in parameters})
        assert (await boss.ask("GET", f"{path}?{query}")).status == 200, path


async def test_openapi_leaves_out_what_no_one_may_do(site: HttpSite) -> None:
    """H-106: an API key is created by its operation, and never changed or renamed."""
    boss = await reader(site, "System Manager")
    keys = "/api/resource/API%20Key"
    offered = {
        path.removeprefix(keys): set(verbs)
        for path, verbs in boss.document["paths"].items()
        if path.startswith(keys)
    }
    assert offered == {"": {"get"}, "/{name}": {"get", "delete"}, "/{name}/export": {"get"}}


async def test_openapi_document_is_complete(site: HttpSite) -> None:
    """Every reference leads to a schema, and no two operations have one id."""
    boss = await reader(site, "System Manager")
    schemas = boss.document["components"]["schemas"]
    operations = [each for path in boss.document["paths"].values() for each in path.values()]
    assert len({each["operationId"] for each in operations}) == len(operations)
    assert {name.rpartition("/")[2] for name in references(boss.document)} <= set(schemas)
    for path, operation in boss.document["paths"].items():
        for each in operation.values():
            in_path = {p["name"] for p in each["parameters"] if p["in"] == "path"}
            assert in_path == {part[1:-1] for part in path.split("/") if part.startswith("{")}


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(references(each) for each in value.values()))
    if isinstance(value, list):
        return set().union(*(references(each) for each in value))
    return set()


async def test_openapi_describes_each_answer_with_a_document_field_by_field(site: HttpSite) -> None:
    """With an open schema any answer would fit, and a client would get dictionaries (H-105)."""
    boss = await reader(site, "System Manager")
    expected = {
        ("GET", SAMPLE, 200): ("listed", "Sample.list"),
        ("POST", SAMPLE, 201): ("shown", "Sample.create"),
        ("GET", SAMPLE + "/{name}", 200): ("shown", "Sample.read"),
        ("PUT", SAMPLE + "/{name}", 200): ("shown", "Sample.save"),
        ("POST", SAMPLE + "/{name}/rename", 200): ("shown", "Sample.rename"),
        ("POST", ORDER + "/{name}/submit", 200): ("shown", "Sales_Order.submit"),
    }
    for (method, path, status), (kind, name) in expected.items():
        operation = boss.operation(method, path)
        schema = operation["responses"][str(status)]["content"][JSON]["schema"]
        component = f"#/components/schemas/{name.partition('.')[0]}.{kind}"
        assert references(schema) == {component}, name
        assert operation["operationId"] == name
    assert boss.unlike("GET", SAMPLE + "/{name}", 200, {"data": {"name": "x"}})


async def test_openapi_has_no_schema_that_generators_of_clients_refuse(site: HttpSite) -> None:
    """Generators omit an operation with an enum of several types, or a list without item type."""
    boss = await reader(site, "System Manager")
    seen = list(schemas_in(boss.document))
    assert len(seen) > 100
    for each in seen:
        kinds = {type(value) for value in each.get("enum", ()) if value is not None}
        assert len(kinds) < 2, each
        assert "items" in each or "array" not in str(each.get("type")), each


def schemas_in(value: Any) -> Iterator[dict[str, Any]]:
    """All objects of the document that have a type or an enum."""
    if isinstance(value, dict):
        if "enum" in value or "type" in value:
            yield value
        for each in value.values():
            yield from schemas_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from schemas_in(each)
