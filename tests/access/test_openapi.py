"""GET /api/openapi.json: OpenAPI 3.1 of all operations (H-105)."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote

import msgspec
import pytest
import trio

from tests.access.schema_check import SchemaChecker
from tests.accounts_kit import PASSWORD
from tests.http_site import SERVICES, URL, HttpSite
from tests.pages.http import SITE, described_routes
from web.openapi import describe
from web.openapi_examples import BODIES, DOCUMENTS
from web.openapi_fields import COMMON, FIELDS
from web.operations import Route

OTHER = "another decent passphrase"
SECONDS: Final = 20.0  # for a step of another thread


async def document_of(site: HttpSite) -> dict[str, Any]:
    reply = await site.ask("GET", "/api/openapi.json")
    assert (reply.status, reply.header("content-type")) == (200, "application/json; charset=utf-8")
    found: dict[str, Any] = reply.json
    return found


def assert_fits(document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    """Assert that a value has the schema's required and allowed keys at every level."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        if value is None:
            assert {"type": "null"} in schema["anyOf"]
            return
        (schema,) = (each for each in schema["anyOf"] if each != {"type": "null"})
        assert_fits(document, schema, value)
    elif schema.get("type") == "object" and "properties" in schema:
        assert set(schema["required"]) <= set(value) <= set(schema["properties"])
        for key, under in value.items():
            assert_fits(document, schema["properties"][key], under)
    elif schema.get("type") == "array":
        for each in value:
            assert_fits(document, schema["items"], each)
    else:
        kinds = {"string": str, "integer": int, "boolean": bool, "object": dict, "null": type(None)}
        assert isinstance(value, kinds[schema["type"]])


async def test_openapi_has_every_path_of_the_contract(site: HttpSite) -> None:
    document = await document_of(site)
    assert document["openapi"].startswith("3.1")
    paths = document["paths"]
    served = {
        rule.rule.replace("<", "{").replace(">", "}")
        for rule in site.app.url_map.iter_rules()
        if rule.rule.startswith(("/api/", "/metrics"))
    }
    assert set(paths) == served
    assert set(paths["/api/login"]) == {"post"}
    assert set(paths[SERVICES + "sessions.listMySessions"]) == {"get", "post"}
    names = [each["operationId"] for path in paths.values() for each in path.values()]
    assert len(set(names)) == len(names)
    assert all(each["summary"] for path in paths.values() for each in path.values())


async def test_openapi_is_made_while_other_requests_are_answered(
    site: HttpSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a few tenths of a second, for which all others would wait."""
    begun, answered = threading.Event(), threading.Event()

    def held(routes: Iterable[Route], name: str, url: str) -> dict[str, Any]:
        begun.set()
        assert answered.wait(SECONDS), "no other request was answered"
        return describe(routes, name, url)

    monkeypatch.setattr("web.openapi.describe", held)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(document_of, site)
        assert await trio.to_thread.run_sync(begun.wait, SECONDS)
        assert (await site.ask("GET", "/api/boot")).status == 200
        answered.set()


async def test_openapi_names_the_server_and_how_each_operation_is_authenticated(
    site: HttpSite,
) -> None:
    """Generated clients begin with the address, and linters refuse what is left open (H-105)."""
    document = await document_of(site)
    assert document["servers"] == [{"url": URL}]
    operations = [each for path in document["paths"].values() for each in path.values()]
    assert [each["operationId"] for each in operations if "security" not in each] == []


async def test_openapi_names_operations_by_area_and_act(site: HttpSite) -> None:
    """Generators name functions and modules by `area.name`, whose tag is the area (H-105)."""
    document = await document_of(site)
    found = {
        (verb, path): (each["operationId"], each["tags"])
        for path, verbs in document["paths"].items()
        for verb, each in verbs.items()
    }
    assert found["post", "/api/login"] == ("auth.login", ["auth"])
    assert found["post", "/api/auth/forgot-password"] == ("auth.forgotPassword", ["auth"])
    assert found["post", SERVICES + "webhooks.emit"] == ("webhooks.emit", ["webhooks"])
    assert found["get", SERVICES + "sessions.listMySessions"][0] == "sessions.listMySessions.get"
    assert found["put", "/api/resource/{doctype}/{name}"][0] == "documents.save"
    assert all(re.fullmatch(r"[a-z_]+(\.[a-zA-Z]+){1,2}", name) for name, _ in found.values())
    parameters = [
        each
        for verbs in document["paths"].values()
        for operation in verbs.values()
        for each in operation["parameters"]
    ]
    assert [each["name"] for each in parameters if not each.get("description")] == []
    (limit,) = {each["schema"]["type"] for each in parameters if each["name"] == "limit"}
    assert limit == "integer"


async def test_openapi_describes_requests(site: HttpSite) -> None:
    document = await document_of(site)
    login = document["paths"]["/api/login"]["post"]
    body = login["requestBody"]
    assert body["required"] is True
    assert_fits(document, body["content"]["application/json"]["schema"], {"usr": "", "pwd": ""})
    assert [each["name"] for each in login["parameters"]] == ["X-FW-CSRF"]
    assert login["security"] == []
    assert document["paths"]["/api/auth/token"]["post"]["parameters"] == []
    listing = document["paths"]["/api/resource/{doctype}"]["get"]
    assert {each["name"] for each in listing["parameters"]} == {
        "doctype", "fields", "filters", "limit", "order_by", "start",
    }  # fmt: skip
    assert listing["security"] == [{"session": []}, {"key": []}]


async def test_openapi_names_the_parameters_of_a_query_that_are_required(site: HttpSite) -> None:
    """A client generated from it cannot leave them out (H-106)."""
    document = await document_of(site)
    required = {
        (operation["operationId"], each["name"])
        for verbs in document["paths"].values()
        for operation in verbs.values()
        for each in operation["parameters"]
        if each["in"] == "query" and each.get("required")
    }
    assert required == {("webhooks.explain.get", "delivery")}
    await site.add_account("boss", "System Manager")
    reply = await site.ask(
        "GET", SERVICES + "webhooks.explain", sid=await site.sid("boss"), body=None
    )
    assert (reply.status, reply.json["error"]["extra"]) == (400, {"field": "delivery"})


async def test_openapi_requires_the_csrf_header_where_no_key_is_read(site: HttpSite) -> None:
    """Elsewhere a request by API key needs none (H-81), so that it is optional. The operations on
    the account's own password, sessions and keys refuse a key (A-264)."""
    document = await document_of(site)
    required = {
        path: bool(each.get("required"))
        for path, verbs in document["paths"].items()
        for operation in verbs.values()
        for each in operation["parameters"]
        if each["name"] == "X-FW-CSRF"
    }
    own = (
        "profile.changeMyPassword", "sessions.listMySessions", "sessions.revokeMySession",
        "sessions.revokeMyOtherSessions", "api_keys.listMyAPIKeys", "api_keys.createMyAPIKey",
        "api_keys.revokeMyAPIKey", "api_keys.revokeAllMyAPIKeys",
    )  # fmt: skip
    assert {path for path, is_required in required.items() if is_required} == {
        "/api/login", "/api/logout", *(SERVICES + name for name in own),
    }  # fmt: skip


async def test_openapi_describes_each_answer_and_shows_each_request(site: HttpSite) -> None:
    """An operation without an example gets one in web/openapi_examples.py (H-107)."""
    document = await document_of(site)
    operations = [each for verbs in document["paths"].values() for each in verbs.values()]
    without = [
        each["operationId"]
        for each in operations
        if not all("content" in response for response in each["responses"].values())
    ]
    assert without == []
    bodies = {each["operationId"]: each.get("requestBody") for each in operations}
    contents = {name: body["content"]["application/json"] for name, body in bodies.items() if body}
    free = {"documents.create", "documents.save", "functions.call"}
    assert {name for name, content in contents.items() if "example" not in content} == free
    checker = SchemaChecker(document)
    for name in contents.keys() - free:
        assert checker.problems(contents[name]["schema"], contents[name]["example"]) == []
    parameters = [each for operation in operations for each in operation["parameters"]]
    assert {each["name"] for each in parameters if "example" not in each} == {"X-FW-CSRF"}


async def test_openapi_says_what_each_field_means(site: HttpSite) -> None:
    """A new field gets its meaning in web/openapi_fields.py; references have that of their schema
    (H-107)."""
    document = await document_of(site)
    schemas = document["components"]["schemas"]
    found = {name: each.get("properties", {}) for name, each in schemas.items()}
    missing = [
        f"{name}.{field}"
        for name, fields in found.items()
        for field, each in fields.items()
        if "$ref" not in each and "description" not in each
    ]
    assert missing == []
    known = FIELDS.keys() - {"ActorRequest"}  # of the console, which this site does not have
    assert [(name, FIELDS[name].keys() - found[name].keys()) for name in known] == [
        (name, set()) for name in known
    ]
    assert set(COMMON) <= {field for fields in found.values() for field in fields}
    login = document["paths"]["/api/login"]["post"]["requestBody"]["content"]["application/json"]
    assert login["schema"]["properties"]["pwd"]["description"] == "The password."


async def test_openapi_names_no_rule_of_the_contract(site: HttpSite) -> None:
    """Docstrings cite rules for readers of the code; callers do not have them."""
    text = json.dumps(await document_of(site))
    assert re.findall(r"\b[A-Z]-\d+\b", text) == []
    assert "\\n  " not in text


@pytest.mark.parametrize("act", ["pause", "resume", "restart", "trace", "unlock"])
def test_openapi_describes_action_of_console_like_other_operations(act: str) -> None:
    """The sites of other tests have no console (H-107, H-171)."""
    document = describe(described_routes(), SITE.name, SITE.url)
    operation = document["paths"][SERVICES + f"console.{act}"]["post"]
    assert operation["summary"]
    response, body = (
        each["content"]["application/json"]
        for each in (operation["responses"]["200"], operation["requestBody"])
    )
    checker = SchemaChecker(document)
    assert checker.problems(response["schema"], {"ok": True}) == []
    assert checker.problems(response["schema"], {"ok": 1}) != []
    assert checker.problems(body["schema"], body["example"]) == []


def test_request_examples_are_decoded_by_their_structs() -> None:
    """The decoder of the service reads them; each belongs to an existing struct."""
    structs = {
        rule.kind.__name__: rule
        for route in described_routes()
        for operation in route.operations.values()
        if (rule := operation.body) is not None and rule.kind is not None
    }
    assert set(BODIES) == set(structs)
    for name, example in BODIES.items():
        kind = structs[name].kind
        assert kind is not None
        assert msgspec.convert(example, kind) is not None


@pytest.mark.parametrize("doctype", DOCUMENTS)
async def test_document_examples_can_be_inserted(site: HttpSite, doctype: str) -> None:
    sid = await site.sid(await site.add_account("boss", "System Manager"))
    document = (await site.ask("GET", "/api/openapi.json", sid=sid)).json
    path = f"/api/resource/{quote(doctype)}"
    content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    example = content["example"]
    assert SchemaChecker(document).problems(content["schema"], example) == []
    reply = await site.ask("POST", path, example, sid=sid)
    assert reply.status == 201, reply.body


async def test_openapi_describes_responses(site: HttpSite) -> None:
    """Each answer of the access operations fits the document."""
    document = await document_of(site)
    await site.add_account("boss", "System Manager")
    sid = await site.sid("boss")

    async def tour(path: str, body: object = None, verb: str = "POST", status: int = 200) -> Any:
        reply = await site.ask(verb, path, body, sid=sid)
        assert reply.status == status, reply.body
        where = path
        if path.startswith("/api/resource/"):
            where = "/api/resource/{doctype}" + ("/{name}" if path.count("/") > 3 else "")
        described = document["paths"][where][verb.lower()]["responses"][str(status)]
        assert_fits(document, described["content"]["application/json"]["schema"], reply.json)
        return reply.json

    await tour("/api/boot", verb="GET")
    await tour("/api/health", verb="GET")
    await tour("/api/auth/forgot-password", {"usr": "nobody"})
    invited = await tour(SERVICES + "users.invite", {"email": "ida@example.test"})
    again = await tour(SERVICES + "users.resendInvite", {"user": invited["user"]})
    token = again["link"].partition("#token=")[2]
    await tour("/api/auth/token", {"token": token})
    await tour("/api/auth/accept-invite", {"token": token, "password": OTHER})
    await tour(SERVICES + "users.sendPasswordReset", {"user": invited["user"]})
    await tour(SERVICES + "users.unlockUser", {"user": invited["user"]})
    await tour(SERVICES + "users.revokeUserSessions", {"user": invited["user"]})
    for name in ("profile.getMyProfile", "sessions.listMySessions", "api_keys.listMyAPIKeys"):
        await tour(SERVICES + name)
        await tour(SERVICES + name, verb="GET")
    await tour(SERVICES + "profile.updateMyProfile", {"language": "de"})
    await tour(SERVICES + "api_keys.createMyAPIKey", {"label": "x", "days": 1})
    keys = await tour(SERVICES + "api_keys.listMyAPIKeys")
    await tour(SERVICES + "api_keys.revokeMyAPIKey", {"name": keys["keys"][0]["name"]})
    await tour(SERVICES + "sessions.revokeMyOtherSessions")
    change = {"current": PASSWORD, "password": OTHER}
    await tour(SERVICES + "profile.changeMyPassword", change)
    await tour("/api/resource/Role", {"name": "Clerk"}, status=201)
    await tour("/api/resource/Role", verb="GET")
    await tour("/api/resource/Role/Clerk", verb="GET")
    await tour("/api/resource/Role/Clerk", verb="DELETE")
    await tour("/api/login", {"usr": "boss", "pwd": OTHER})


@pytest.mark.parametrize(("method", "path"), [("GET", "/api/nowhere"), ("POST", "/api/login")])
async def test_openapi_describes_errors(site: HttpSite, method: str, path: str) -> None:
    document = await document_of(site)
    reply = await site.ask(method, path, {})
    refusal = document["paths"]["/api/login"]["post"]["responses"]["default"]
    assert_fits(document, refusal["content"]["application/json"]["schema"], reply.json)


async def test_metrics_are_open_to_a_managers_key(site: HttpSite) -> None:
    """The numbers are open to a System Manager's key, and 403 for others (H-104)."""
    await site.add_account("boss", "System Manager")
    await site.add_account("ann")
    boss, ann = await site.sid("boss"), await site.sid("ann")
    by_key = [(await site.key(sid))["key"] for sid in (boss, ann)]
    assert [(await site.ask("GET", "/metrics", key=key)).status for key in by_key] == [200, 403]
    assert (await site.ask("GET", "/metrics", sid=boss)).status == 403
    assert (await site.ask("GET", "/metrics", peer="127.0.0.1")).status == 200
    assert (await site.ask("GET", "/metrics", key="fwk_x", peer="127.0.0.1")).status == 401
