"""Events in batches: `fw.webhooks.emit_many` (B-82 to B-87)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.documents import rest
from fw_actors.errors import (
    BadRequestError,
    DuplicateError,
    FwError,
    InvalidTokenError,
    PermissionDeniedError,
    TooManyRequestsError,
    ValidationError,
)
from tests.fw_actors.virtual_site_kit import VirtualSite, open_virtual_site

pytestmark = pytest.mark.usefixtures("on_both_stores")


def events(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": "note.shared", "data": {"n": n}, **fields} for n in range(count)]


async def jobs(site: VirtualSite) -> list[tuple[str, str]]:
    return [
        (str(partition), str(subject))
        for partition, subject in await site.sql(
            "SELECT partition, subject FROM fw_job ORDER BY subject"
        )
    ]


async def test_emit_many_queues_events_per_webhook_in_order(site: VirtualSite) -> None:
    """Each event gets the ids of its own deliveries, in the order of the list (B-82)."""
    hooks = sorted([await site.subscribe(), await site.subscribe()])
    results = await site.do(lambda fw: fw.webhooks.emit_many(events(300)))
    stored = {each["name"]: each for each in await site.deliveries()}
    assert len(stored) == 600
    for n, result in enumerate(results):
        mine = [stored[delivery] for delivery in result["deliveries"]]
        assert [each["webhook"] for each in mine] == hooks
        assert [each["payload"]["data"] for each in mine] == [{"n": n}] * 2
    assert await jobs(site) == sorted(
        ((each["webhook"], each["name"]) for each in stored.values()), key=lambda job: job[1]
    )


async def test_emit_many_stores_same_fields_as_emit(site: VirtualSite) -> None:
    """A delivery of a batch differs from one of `emit` in nothing but its id and key (B-82)."""
    await site.subscribe()
    event: dict[str, Any] = {
        "name": "note.shared",
        "data": {"a": ["ü", None, 1.5], "password": "x"},
        "reference": {"doctype": "Note", "name": "N-1"},
    }
    await site.do(lambda fw: fw.webhooks.emit(**event, key="alone"))
    await site.do(lambda fw: fw.webhooks.emit_many([{**event, "key": "a"}, {**event, "key": "b"}]))
    alone, *batch = [
        {k: v for k, v in each.items() if k not in ("name", "key", "creation", "modified",
                                                   "next_attempt", "payload")}
        | {"data": each["payload"]["data"]}
        for each in await site.deliveries()
    ]  # fmt: skip
    assert batch == [alone, alone]


REFUSED: list[tuple[object, str, str | None]] = [
    ({"name": "doc.on_insert", "data": {}}, "ValidationError", "name"),
    ({"name": "note.shared", "data": []}, "ValidationError", "data"),
    ({"name": "note.shared", "data": {}, "key": ""}, "ValidationError", "key"),
    ({"name": "note.shared", "data": {}, "reference": "N"}, "ValidationError", "reference"),
    ({"name": "note.shared"}, "ValidationError", None),
    ({"name": "note.shared", "data": {}, "more": 1}, "ValidationError", None),
    ("note.shared", "ValidationError", None),
    (BadRequestError("unreadable", field="data"), "BadRequestError", "data"),
    ({"name": "note.shared", "data": {}, "key": "used"}, "DuplicateError", "key"),
]


@pytest.mark.parametrize(("bad", "kind", "field"), REFUSED)
async def test_emit_many_refuses_invalid_event_and_queues_others(
    site: VirtualSite, bad: object, kind: str, field: str | None
) -> None:
    """A refused event leaves the others as they are (B-83)."""
    await site.subscribe()
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}, key="used"))
    first, refused, last = await site.do(
        lambda fw: fw.webhooks.emit_many([*events(1), bad, *events(1)])
    )
    assert refused["error"]["type"] == kind
    assert refused["error"].get("extra", {}).get("field") == field
    assert len(first["deliveries"]) == len(last["deliveries"]) == 1
    assert len(await site.deliveries()) == 3


@pytest.mark.parametrize(("bad", "kind", "field"), REFUSED)
async def test_emit_many_all_raises_first_refusal_and_queues_none(
    site: VirtualSite, bad: object, kind: str, field: str | None
) -> None:
    """With `all` a refusal queues nothing, and the transaction stays usable (B-84)."""
    await site.subscribe()
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}, key="used"))

    def work(fw: Any) -> Any:
        with pytest.raises((ValidationError, BadRequestError, DuplicateError)) as refusal:
            fw.webhooks.emit_many([*events(2), bad, {"name": 1}], all=True)
        assert type(refusal.value).__name__ == kind
        assert refusal.value.message.startswith("events[2]: ")
        assert refusal.value.extra["field"] == (
            "events[2]" if field is None else f"events[2].{field}"
        )
        return fw.webhooks.emit("note.shared", {"after": True})

    await site.do(work)
    assert [each["payload"]["data"] for each in await site.deliveries()] == [{}, {"after": True}]


@pytest.mark.parametrize(
    "refusal",
    [PermissionDeniedError("Not yours."), TooManyRequestsError(7), InvalidTokenError()],
    ids=lambda error: type(error).__name__,
)
async def test_emit_many_all_raises_error_that_app_gave_in_place_of_event(
    site: VirtualSite, refusal: FwError
) -> None:
    """The error keeps its class and values, whatever arguments its class takes (B-84)."""
    with pytest.raises(type(refusal), match=r"^events\[1\]: ") as raised:
        await site.do(lambda fw: fw.webhooks.emit_many([*events(1), refusal], all=True))
    assert raised.value.extra == {**refusal.extra, "field": "events[1]"}
    assert raised.value.retry_after == refusal.retry_after


async def test_emit_many_refuses_repeated_key_in_batch(
    site: VirtualSite,
) -> None:
    """Within a batch a key is unique per Webhook as well (B-85)."""
    await site.subscribe()
    results = await site.do(lambda fw: fw.webhooks.emit_many(events(2, key="k")))
    assert len(results[0]["deliveries"]) == 1
    assert results[1]["error"]["type"] == "DuplicateError"
    assert len(await site.deliveries()) == 1


async def test_emit_many_refuses_key_used_for_any_webhook(
    site: VirtualSite,
) -> None:
    """An event is queued for all of its Webhooks or for none (B-79, B-85)."""
    await site.subscribe()
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}, key="k"))
    await site.subscribe()
    (refused,) = await site.do(lambda fw: fw.webhooks.emit_many(events(1, key="k")))
    assert refused["error"]["type"] == "DuplicateError"
    assert len(await site.deliveries()) == 1


def emit_past_the_look_up(
    fw: Any,
    monkeypatch: pytest.MonkeyPatch,
    given: list[dict[str, Any]],
    misses: int = 1,
    **options: Any,
) -> Any:
    """Emit a batch whose first look-ups of keys find nothing, as if they had come too early."""
    rows = fw.tx.rows
    looked: list[dict[str, Any]] = []

    def blind(statement: Any, /, **params: Any) -> Any:
        if "given" in params and len(looked) < misses:
            looked.append(params)
            return []
        return rows(statement, **params)

    with monkeypatch.context() as patch:
        patch.setattr(fw.tx, "rows", blind)
        results = fw.webhooks.emit_many(given, **options)
    assert looked
    return results


KEYED: list[dict[str, Any]] = [
    {"name": "note.shared", "data": {}, "key": key} for key in ("k0", "k1", "k2")
]


@pytest.mark.parametrize("misses", [1, 9])
async def test_emit_many_refuses_only_event_with_concurrent_key(
    site: VirtualSite, monkeypatch: pytest.MonkeyPatch, misses: int
) -> None:
    """Another transaction may use a key after the batch looked it up (B-85); after several, the
    events are recorded one by one."""
    await site.subscribe()
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}, key="k1"))
    results = await site.do(lambda fw: emit_past_the_look_up(fw, monkeypatch, KEYED, misses))
    assert [next(iter(result)) for result in results] == ["deliveries", "error", "deliveries"]
    assert results[1]["error"]["type"] == "DuplicateError"
    assert sorted(d["key"] for d in await site.deliveries()) == ["k0", "k1", "k2"]


async def test_emit_many_undoes_event_that_one_of_its_webhooks_has_received(
    site: VirtualSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of events recorded one by one: no Webhook receives a refused one (B-85)."""
    first, _ = sorted([await site.subscribe(), await site.subscribe()])
    await site.do(lambda fw: rest.save(fw, "Webhook", first, {"enabled": 0}))
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}, key="k1"))
    await site.do(lambda fw: rest.save(fw, "Webhook", first, {"enabled": 1}))
    results = await site.do(lambda fw: emit_past_the_look_up(fw, monkeypatch, KEYED, 9))
    assert [next(iter(result)) for result in results] == ["deliveries", "error", "deliveries"]
    received = [d["key"] for d in await site.deliveries() if d["webhook"] == first]
    assert sorted(received) == ["k0", "k2"]


async def test_emit_many_all_undoes_batch_on_concurrent_key(
    site: VirtualSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`all` keeps none of the events before the refused one (B-84)."""
    await site.subscribe()
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}, key="k1"))

    def work(fw: Any) -> None:
        with pytest.raises(DuplicateError):
            emit_past_the_look_up(fw, monkeypatch, KEYED, all=True)

    await site.do(work)
    assert [d["key"] for d in await site.deliveries()] == ["k1"]
    assert len(await jobs(site)) == 1


@pytest.mark.parametrize("given", [[], {}, "events", None, [{}] * 1001, events(1)[0]])
async def test_emit_many_requires_1_to_1000_events(site: VirtualSite, given: object) -> None:
    """A batch has 1 to 1,000 events (B-86)."""
    with pytest.raises(ValidationError) as refusal:
        await site.do(lambda fw: fw.webhooks.emit_many(given))
    assert refusal.value.extra == {"field": "events"}


async def test_emit_many_accepts_1000_events(site: VirtualSite) -> None:
    """A batch has 1 to 1,000 events (B-86)."""
    await site.subscribe()
    assert len(await site.do(lambda fw: fw.webhooks.emit_many(events(1_000)))) == 1_000
    assert (await site.counts())[0] == 1_000


@pytest.mark.parametrize("given", [["name", "data"], "name", None, 5, {"name": "note.shared"}])
async def test_emit_many_refuses_event_of_wrong_form_alone(
    site: VirtualSite, given: object
) -> None:
    await site.subscribe()
    sent = [given, *events(1)]
    refused, queued = await site.do(lambda fw: fw.webhooks.emit_many(sent))
    assert refused["error"]["message"] == "An event must be {name, data, reference?, key?}."
    assert len(queued["deliveries"]) == 1


async def test_emit_many_without_subscription_queues_nothing(site: VirtualSite) -> None:
    """An event without a subscription has an empty list of deliveries (B-75)."""
    results = await site.do(lambda fw: fw.webhooks.emit_many(events(2, key="k")))
    assert results == [{"deliveries": []}] * 2


async def test_emit_many_rolled_back_leaves_nothing(site: VirtualSite) -> None:
    """A batch is part of its transaction (B-82, B-81)."""
    await site.subscribe()
    await site.site.rollback("Administrator", lambda fw: fw.webhooks.emit_many(events(2, key=None)))
    assert await site.deliveries() == []
    assert await jobs(site) == []


async def test_emit_many_with_webhooks_off_only_validates(tmp_path: Any) -> None:
    """FW_WEBHOOKS=off queues nothing (B-61, C-59)."""
    async with open_virtual_site(tmp_path, webhooks_off=True) as site:
        await site.subscribe()
        results = await site.do(lambda fw: fw.webhooks.emit_many([*events(1), {"name": "x"}]))
        assert results[0] == {"deliveries": []}
        assert results[1]["error"]["type"] == "ValidationError"
        assert await site.deliveries() == []


async def test_emit_many_refuses_batch_that_records_too_much(
    site: VirtualSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other processes wait for its transaction; the refusal counts the deliveries (B-88)."""
    for _ in range(2):
        await site.subscribe()
    monkeypatch.setattr("fw_actors.webhooks.events.MAX_DELIVERIES", 20)
    assert len(await site.do(lambda fw: fw.webhooks.emit_many(events(10)))) == 10
    with pytest.raises(ValidationError, match="would record 22 deliveries") as refusal:
        await site.do(lambda fw: fw.webhooks.emit_many(events(11)))
    assert refusal.value.extra == {"field": "events"}
    monkeypatch.setattr("fw_actors.webhooks.events.MAX_RECORDED_BYTES", 1000)
    large = [{"name": "note.shared", "data": {"text": "x" * 501}}]
    assert await site.do(lambda fw: fw.webhooks.emit_many(large)), "as by emit"
    with pytest.raises(ValidationError, match="Send fewer events"):
        await site.do(lambda fw: fw.webhooks.emit_many(large * 2))
    assert len(await jobs(site)) == 22


async def test_emit_many_limit_counts_bytes_of_bodies(
    site: VirtualSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A character may be four bytes of a body (B-88)."""
    await site.subscribe()
    monkeypatch.setattr("fw_actors.webhooks.events.MAX_RECORDED_BYTES", 3000)
    batch = [{"name": "note.shared", "data": {"text": "\N{GRINNING FACE}" * 500}}] * 2
    with pytest.raises(ValidationError, match="would record 2 deliveries"):
        await site.do(lambda fw: fw.webhooks.emit_many(batch))
    short = [{"name": "note.shared", "data": {"text": "x" * 500}}] * 2
    assert len(await site.do(lambda fw: fw.webhooks.emit_many(short))) == 2
