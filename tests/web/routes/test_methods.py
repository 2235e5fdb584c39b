"""webhooks.emit (B-71), and the functions that apps have whitelisted (D-180)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from fw_actors.access.sessions import Caller
from fw_actors.documents.registry import Whitelisted
from tests.web.client import AppClient
from tests.web.fakes import SID, FakeGateway
from web.routes.webhooks import CONCURRENT_BATCHES, WAITING_BATCHES

EMIT = "/api/method/core.services.webhooks.emit"
EVENT = {"name": "invoice.paid", "data": {"total": 12, "note": "a\nb"}}


def close_order(fw: Any, name: str, note: str = "") -> dict[str, Any]:
    return {"closed": name, "note": note, "by": fw.user, "writes": fw.writes}


def no_json(fw: Any) -> object:
    return object()


@pytest.fixture
def publisher(gateway: FakeGateway) -> FakeGateway:
    gateway.roles = frozenset({"Event Publisher"})
    return gateway


@pytest.fixture(autouse=True)
def app_functions(gateway: FakeGateway) -> None:
    gateway.functions["shop.close_order"] = Whitelisted(close_order, ["Sales User"])
    gateway.functions["shop.open_order"] = Whitelisted(close_order, [])
    gateway.functions["shop.no_json"] = Whitelisted(no_json, [])


async def test_emit_queues_the_event_and_returns_the_deliveries(
    client: AppClient, publisher: FakeGateway
) -> None:
    assert (await client.ask("POST", EMIT, EVENT, sid=SID)).json == {"deliveries": ["msg_1"]}
    options = {"reference": {"doctype": "Invoice", "name": "I-1"}, "key": "k"}
    await client.ask("POST", EMIT, {**EVENT, "options": options}, sid=SID)
    assert publisher.webhooks.emitted == [
        (EVENT["name"], EVENT["data"], None, None),
        (EVENT["name"], EVENT["data"], {"doctype": "Invoice", "name": "I-1"}, "k"),
    ]


@pytest.mark.parametrize(
    ("roles", "status"),
    [(["Event Publisher"], 200), (["System Manager"], 200), (["Sales User"], 403), ([], 403)],
)
async def test_emit_requires_a_publisher(
    client: AppClient, gateway: FakeGateway, roles: list[str], status: int
) -> None:
    gateway.roles = frozenset(roles)
    assert (await client.ask("POST", EMIT, EVENT, sid=SID)).status == status
    assert len(gateway.webhooks.emitted) == (1 if status == 200 else 0)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": 1}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"data": []}, "data"),
        ({"data": {"a": "\0"}}, "data"),
        ({"options": {"key": 1}}, "options"),
        ({"options": {"ref": 1}}, "ref"),
        ({"options": {"reference": {"doctype": "A"}}}, "name"),
        ({"extra": 1}, "extra"),
    ],
)
async def test_emit_validates_the_body_before_roles(
    client: AppClient, gateway: FakeGateway, change: dict[str, object], field: str
) -> None:
    """Body 400 comes before role 403 (H-21)."""
    reply = await client.ask("POST", EMIT, {**EVENT, **change}, sid=SID)
    assert (reply.status, reply.error["extra"]) == (400, {"field": field})
    assert not gateway.webhooks.emitted


MANY = f"{EMIT}Many"


async def test_emit_many_passes_all_events_in_one_call(
    client: AppClient, publisher: FakeGateway
) -> None:
    """A batch is one transaction, each event of it with the arguments of emit (B-87)."""
    reference = {"doctype": "Invoice", "name": "I-1"}
    options = {"reference": reference, "key": "k"}
    body = {"events": [EVENT, {**EVENT, "options": options}]}
    reply = await client.ask("POST", MANY, body, sid=SID)
    assert reply.json == {"events": [{"deliveries": ["msg_1"]}] * 2}
    await client.ask("POST", MANY, {"all": True, "events": [EVENT]}, sid=SID)
    plain = {**EVENT, "reference": None, "key": None}
    assert publisher.webhooks.batches == [
        ([plain, {**plain, "reference": reference, "key": "k"}], False),
        ([plain], True),
    ]


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({"name": 1, "data": {}}, "name"),
        ({"name": "a.b", "data": {"a": "\0"}}, "data"),
        ({"name": "a.b", "data": {"a": 2**60}}, "data"),
        ({"name": "a.b", "data": {}, "key": "k"}, "key"),
        ({"data": {}}, "name"),
        (1, None),
    ],
)
async def test_emit_many_passes_a_malformed_event_as_its_refusal(
    client: AppClient, publisher: FakeGateway, event: object, field: str | None
) -> None:
    """An event of a wrong shape is refused by itself (B-83)."""
    assert (await client.ask("POST", MANY, {"events": [EVENT, event]}, sid=SID)).status == 200
    (((_, refusal), _),) = publisher.webhooks.batches
    assert refusal.details["type"] == "BadRequestError"
    assert refusal.extra.get("field") == field


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 400, "events"),
        ({"events": {}}, 400, "events"),
        ({"events": [EVENT], "all": 1}, 400, "all"),
        ({"events": [EVENT], "more": 1}, 400, "more"),
        ({"events": [EVENT] * 1001}, 422, "events"),
        ([EVENT], 400, None),
    ],
)
async def test_emit_many_refuses_a_malformed_body_before_roles(
    client: AppClient, gateway: FakeGateway, body: object, status: int, field: str | None
) -> None:
    """Body 400 comes before role 403 (H-21)."""
    reply = await client.ask("POST", MANY, body, sid=SID)
    assert (reply.status, reply.error.get("extra", {}).get("field")) == (status, field)
    assert not gateway.webhooks.batches


async def test_emit_many_requires_a_publisher(client: AppClient, gateway: FakeGateway) -> None:
    """A batch is refused like an emit (B-71, B-87)."""
    reply = await client.ask("POST", MANY, {"events": [EVENT]}, sid=SID)
    assert (reply.status, gateway.webhooks.batches) == (403, [])


async def test_emit_many_takes_4_mib(client: AppClient, publisher: FakeGateway) -> None:
    """A batch has at most 4 MiB (H-11)."""
    filled = {"name": "a.b", "data": {"text": "x" * 4100}}
    assert (await client.ask("POST", MANY, {"events": [filled] * 1000}, sid=SID)).status == 200
    ((events, _),) = publisher.webhooks.batches
    assert len(events) == 1000
    larger = {"name": "a.b", "data": {"text": "x" * 4200}}
    reply = await client.ask("POST", MANY, {"events": [larger] * 1000}, sid=SID)
    assert (reply.status, reply.error["type"]) == (413, "PayloadTooLargeError")
    assert "4096 KiB" in reply.error["message"]


async def test_function_gets_the_body_as_arguments_and_may_write(
    client: AppClient,
) -> None:
    reply = await client.ask(
        "POST", "/api/method/shop.close_order", {"name": "a", "note": "b\n"}, sid=SID
    )
    assert reply.status == 200
    assert reply.json == {"closed": "a", "note": "b\n", "by": "ann", "writes": True}


@pytest.mark.parametrize(
    ("body", "field"), [({}, "name"), ({"name": "a", "x": 1}, "x"), (None, "name")]
)
async def test_function_answers_400_for_unknown_arguments(
    client: AppClient, gateway: FakeGateway, body: object, field: str
) -> None:
    gateway.roles = frozenset()
    reply = await client.ask("POST", "/api/method/shop.close_order", body, sid=SID)
    assert (reply.status, reply.error["extra"]) == (400, {"field": field})


@pytest.mark.parametrize(
    ("function", "roles", "status"),
    [
        ("close_order", ["Sales User"], 200),
        ("close_order", ["System Manager"], 200),
        ("close_order", ["Other"], 403),
        ("open_order", [], 200),
    ],
)
async def test_function_requires_its_roles_or_any_user(
    client: AppClient, gateway: FakeGateway, function: str, roles: list[str], status: int
) -> None:
    gateway.roles = frozenset(roles)
    path = f"/api/method/shop.{function}"
    assert (await client.ask("POST", path, {"name": "a"}, sid=SID)).status == status


async def test_function_requires_a_session_and_post(client: AppClient) -> None:
    path = "/api/method/shop.close_order"
    assert (await client.ask("POST", path, {"name": "a"})).status == 401
    assert (await client.ask("GET", path, sid=SID)).status == 405
    assert (await client.ask("POST", "/api/method/shop.other", {}, sid=SID)).status == 404


async def test_function_result_without_a_json_form_undoes_its_writes(
    client: AppClient, gateway: FakeGateway
) -> None:
    """`FakeGateway.write` lets through what `fn` raises: a real one rolls back for it."""
    reply = await client.ask("POST", "/api/method/shop.no_json", {}, sid=SID)
    assert (reply.status, reply.error["type"]) == (500, "InternalError")


async def test_function_result_without_a_json_form_names_the_function(
    client: AppClient, gateway: FakeGateway
) -> None:
    """The traceback ends in the service and has no line of the app (D-181)."""
    await client.ask("POST", "/api/method/shop.no_json", {}, sid=SID)
    ((_, error, _),) = gateway.defects
    assert str(error).startswith(f"{__name__}.no_json returned a value that is not JSON (")


async def test_function_result_has_null_for_numbers_that_json_lacks(
    client: AppClient, gateway: FakeGateway
) -> None:
    """As in JavaScript (D-181)."""

    def share(fw: Any) -> list[float]:
        return [0.5, float("nan"), float("inf"), -float("inf")]

    gateway.functions["shop.share"] = Whitelisted(share, [])
    reply = await client.ask("POST", "/api/method/shop.share", {}, sid=SID)
    assert reply.json == [0.5, None, None, None]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (EMIT, EVENT),
        ("/api/method/core.services.webhooks.emitMany", {"events": [EVENT]}),
        ("/api/method/shop.close_order", {"name": "SO-1"}),
    ],
)
async def test_role_removed_before_write_is_ineffective(
    client: AppClient, publisher: FakeGateway, path: str, body: dict[str, Any]
) -> None:
    """The transaction decides, and not the request's authentication."""
    called = Whitelisted(close_order, ["Event Publisher"])
    publisher.functions["shop.close_order"] = called
    publisher.roles_by_then = frozenset()
    assert (await client.ask("POST", path, body, sid=SID)).status == 403
    assert (publisher.webhooks.emitted, publisher.webhooks.batches) == ([], [])
    publisher.roles_by_then = publisher.roles
    assert (await client.ask("POST", path, body, sid=SID)).status == 200


EMIT_MANY = "/api/method/core.services.webhooks.emitMany"


async def test_emit_many_is_refused_beyond_the_batches_that_may_wait(
    client: AppClient, publisher: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of decoded batches is bounded (B-89)."""
    release = trio.Event()
    write = publisher.write

    async def held(*arguments: Any) -> Any:
        await release.wait()
        return await write(*arguments)

    monkeypatch.setattr(publisher, "write", held)
    replies = []

    async def emit() -> None:
        replies.append((await client.ask("POST", EMIT_MANY, {"events": [EVENT]}, sid=SID)).status)

    async with trio.open_nursery() as nursery:
        for _ in range(CONCURRENT_BATCHES + WAITING_BATCHES):
            nursery.start_soon(emit)
        await trio.testing.wait_all_tasks_blocked()
        assert replies == []
        reply = await client.ask("POST", EMIT_MANY, {"events": [EVENT]}, sid=SID)
        assert (reply.status, reply.error["type"]) == (503, "OverloadedError")
        release.set()
    assert replies == [200] * (CONCURRENT_BATCHES + WAITING_BATCHES)


async def test_emit_many_without_the_role_takes_no_batch_of_a_publisher(
    client: AppClient, publisher: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its body is decoded all the same, because 400 comes before 403 (H-21, B-89)."""
    long = {"events": [{"name": "a.b", "data": {"text": "a" * 4096}}] * 200}
    authenticate = publisher.authenticate

    async def authenticated(sid: str) -> Caller:
        caller = await authenticate(SID)
        return caller if sid == SID else replace(caller, roles=frozenset())

    monkeypatch.setattr(publisher, "authenticate", authenticated)
    refused: list[int] = []
    emitted: list[int] = []

    async def flood() -> None:
        refused.append((await client.ask("POST", EMIT_MANY, long, sid="other")).status)

    async with trio.open_nursery() as nursery:
        for _ in range(CONCURRENT_BATCHES + WAITING_BATCHES):
            nursery.start_soon(flood)
        while len(refused) < CONCURRENT_BATCHES + WAITING_BATCHES:
            reply = await client.ask("POST", EMIT_MANY, {"events": [EVENT]}, sid=SID)
            emitted.append(reply.status)
    assert set(emitted) == {200}
    assert set(refused) <= {403, 503}
