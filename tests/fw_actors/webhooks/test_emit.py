"""Custom events: `fw.webhooks.emit` (B-90 to B-106)."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import msgspec
import pytest

from fw_actors.errors import DuplicateError, ValidationError
from tests.forwarding_tx import ForwardingTx
from tests.fw_actors.virtual_site_kit import VirtualSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

NOW = "2027-01-15T08:00:00.000Z"


class CountingTx(ForwardingTx):
    """A transaction that counts its statements."""

    statements = 0

    def before_statement(self, params: Mapping[str, Any]) -> None:
        self.statements += 1


async def test_emit_runs_minimal_number_of_statements(
    site: VirtualSite,
) -> None:
    """One statement writes delivery and job and checks the Webhook's name; SQLite needs two."""
    name = await site.subscribe("a.b")

    def emit(fw: Any) -> CountingTx:
        fw.tx = CountingTx(fw.tx)
        fw.webhooks.emit("a.b", {"n": 1}, key="k")
        return fw.tx  # type: ignore[no-any-return]

    tx = await site.do(emit)
    assert tx.statements == (1 if tx.inserts_in_queries else 2)
    [delivery] = await site.deliveries()
    jobs = await site.sql("SELECT queue, partition, subject, next_at = created FROM fw_job")
    assert jobs == [("webhook", name, delivery["name"], True)]
    assert (delivery["webhook"], delivery["status"], delivery["key"]) == (name, "Queued", "k")


async def test_emit_returns_ids_of_its_deliveries(site: VirtualSite) -> None:
    """`emit` returns the ids of its deliveries (B-70)."""
    hooks = [await site.subscribe() for _ in range(2)]
    await site.subscribe("other.event")
    emitted = await site.do(lambda fw: fw.webhooks.emit("note.shared", {"a": [1, None]}))
    rows = await site.deliveries()
    assert sorted(emitted["deliveries"]) == [row["name"] for row in rows]
    assert sorted(row["webhook"] for row in rows) == sorted(hooks)
    assert rows[0]["payload"] == {"type": "note.shared", "timestamp": NOW, "data": {"a": [1, None]}}


async def test_emit_without_subscription_writes_nothing(site: VirtualSite) -> None:
    """An emit without a subscription writes nothing and returns an empty list (B-75)."""
    for _ in range(2):
        emitted = await site.do(lambda fw: fw.webhooks.emit("note.shared", {}, key="k"))
        assert emitted == {"deliveries": []}
    assert await site.counts() == (0, 0)


async def test_emit_copies_data_at_call(site: VirtualSite) -> None:
    """`data` is copied at the call (B-76)."""

    def work(fw: Any) -> None:
        data = {"list": [1]}
        fw.webhooks.emit("note.shared", data)
        data["list"].append(2)

    await site.subscribe()
    await site.do(work)
    assert (await site.deliveries())[0]["payload"]["data"] == {"list": [1]}


async def test_emit_does_not_redact_custom_data(site: VirtualSite) -> None:
    """`data` is an object, and not redacted (B-76, B-103)."""
    await site.subscribe()
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {"password": "x"}))
    assert (await site.deliveries())[0]["payload"]["data"] == {"password": "x"}


@pytest.mark.parametrize("part", ["doctype", "name"])
async def test_too_long_reference_is_refused_with_its_limit(site: VirtualSite, part: str) -> None:
    """A reference is stored in fields of 140 characters (B-77, B-183)."""
    longest = {"doctype": "Note", "name": "x"} | {part: "x" * 140}
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}, reference=longest))
    there = longest | {part: "x" * 141}
    with pytest.raises(ValidationError, match="1 to 140 characters") as refusal:
        await site.do(lambda fw: fw.webhooks.emit("note.shared", {}, reference=there))
    assert refusal.value.extra == {"field": "reference"}


async def test_emit_records_reference_without_lookup(site: VirtualSite) -> None:
    """`reference` is not looked up (B-77)."""
    await site.subscribe()
    there = {"doctype": "Nothing", "name": "nowhere"}
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}, reference=there))
    (row,) = await site.deliveries()
    assert (row["reference_doctype"], row["reference_name"]) == ("Nothing", "nowhere")


RING: list[Any] = []


RING.append(RING)


DEEP: dict[str, Any] = {}


for _ in range(100_000):
    DEEP = {"a": DEEP}


class AppEventName(str, Enum):  # noqa: UP042  (StrEnum would hide the fault)
    """Event names as an enum, whose `format` gives no value since Python 3.11."""

    SHARED = "note.shared"


class MassUnit(Enum):
    """An Enum whose members are no text, although their values are."""

    GRAM = "g"


class Severity(IntEnum):
    """An Enum whose members are numbers."""

    HIGH = 3


class OwnText(str):
    """Text of an app's own class."""

    __slots__ = ()


@dataclass
class Grams:
    """An object that some encoders write as JSON."""

    grams: int


ENCODED: list[tuple[Any, Any]] = [  # a value in `data`, and the decoded one
    ((1, [2, (3,)]), [1, [2, [3]]]),
    (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    (defaultdict(list, a=[None, True, False]), {"a": [None, True, False]}),
    (AppEventName.SHARED, "note.shared"),
    ({AppEventName.SHARED: Severity.HIGH}, {"note.shared": 3}),
    (OwnText("t"), "t"),
    ([1e16, 1e-7, -0.0, 0.1, 2**70, -(2**63)], [1e16, 1e-7, -0.0, 0.1, 2**70, -(2**63)]),
    ('\x00\x1f\x7f\u2028\N{GRINNING FACE}"\\/', '\x00\x1f\x7f\u2028\N{GRINNING FACE}"\\/'),
]


@pytest.mark.parametrize(("given", "decoded"), ENCODED)
async def test_emit_encodes_data_as_json(site: VirtualSite, given: Any, decoded: Any) -> None:
    """`data` is any object that JSON can express (B-76)."""
    await site.subscribe()
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {"a": given}))
    assert (await site.deliveries())[0]["payload"]["data"] == {"a": decoded}


REFUSED: list[tuple[dict[str, Any], str]] = [  # arguments of emit, the field of the refusal
    ({"name": "doc.on_insert"}, "name"),
    ({"name": "doc.mine"}, "name"),
    ({"name": "Note.Shared"}, "name"),
    ({"name": ""}, "name"),
    ({"name": None}, "name"),
    ({"name": "a" * 141}, "name"),
    ({"data": None}, "data"),
    ({"data": [1]}, "data"),
    ({"data": "text"}, "data"),
    ({"data": {"a": float("nan")}}, "data"),
    ({"data": {"a": {1}}}, "data"),
    ({"data": {"a": "\ud800"}}, "data"),
    ({"data": {"a": RING}}, "data"),
    ({"data": DEEP}, "data"),
    ({"data": {"a": datetime(2026, 1, 1, tzinfo=UTC)}}, "data"),
    ({"data": {"a": Decimal("1.5")}}, "data"),
    ({"data": {"a": b"bytes"}}, "data"),
    ({"data": {"a": date(2026, 1, 1)}}, "data"),
    ({"data": {"a": timedelta(1)}}, "data"),
    ({"data": {"a": UUID(int=1)}}, "data"),
    ({"data": {"a": MassUnit.GRAM}}, "data"),
    ({"data": {"a": Grams(1)}}, "data"),
    ({"data": {"a": msgspec.Raw(b"1")}}, "data"),
    ({"data": {"a": float("inf")}}, "data"),
    ({"data": {"a": {1.5: 1}}}, "data"),
    ({"data": {True: 1}}, "data"),
    ({"data": {"a": 10**5000}}, "data"),
    ({"data": {1: "a", "1": "b"}}, "data"),
    ({"data": {"a": [({None: 1},)]}}, "data"),
    ({"reference": "SO-1"}, "reference"),
    ({"reference": 5}, "reference"),
    ({"reference": ["doctype", "name"]}, "reference"),
    ({"reference": {"doctype": "X"}}, "reference"),
    ({"reference": {"doctype": "X\n", "name": "y"}}, "reference"),
    ({"reference": {"doctype": 5, "name": "y"}}, "reference"),
    ({"reference": {"doctype": "X", "name": ""}}, "reference"),
    ({"reference": {"doctype": "X", "name": "y", "z": 1}}, "reference"),
    ({"reference": {"doctype": "X", "name": "y" * 141}}, "reference"),
    ({"reference": {"doctype": "X", "name": "y\x00"}}, "reference"),
    ({"reference": {"doctype": "X", "name": "y\ud800"}}, "reference"),
    ({"key": ""}, "key"),
    ({"key": 5}, "key"),
    ({"key": "k" * 141}, "key"),
    ({"key": "a\nb"}, "key"),
]


@pytest.mark.parametrize("heard", [True, False])
async def test_emit_refuses_invalid_arguments_regardless_of_subscriptions(
    site: VirtualSite, heard: bool
) -> None:
    """An emit with a reserved `doc.` name is refused with 422 (B-73, B-72)."""
    if heard:
        await site.subscribe()

    def work(fw: Any) -> None:
        for given, field in REFUSED:
            with pytest.raises(ValidationError) as refusal:
                fw.webhooks.emit(**{"name": "note.shared", "data": {}, **given})
            assert refusal.value.extra == {"field": field}, given

    await site.do(work)
    assert await site.counts() == (0, 0)


async def test_emit_refusal_states_what_json_lacks(site: VirtualSite) -> None:
    """A time or a document in `data` is a common mistake (B-76)."""
    for value, cause in (
        (datetime(2026, 1, 1, tzinfo=UTC), "Object of type datetime is not JSON serializable"),
        (float("nan"), "Out of range float values are not JSON compliant"),
        (RING, "Circular reference detected"),
    ):
        with pytest.raises(ValidationError, match=f"^data must be JSON: {cause}"):
            await site.do(lambda fw, v=value: fw.webhooks.emit("note.shared", {"a": v}))  # type: ignore[misc]


async def test_emit_refuses_repeated_key(site: VirtualSite) -> None:
    """A second emit with the same key is refused (B-78)."""
    await site.subscribe()
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}, key="k"))
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}, key="other"))
    with pytest.raises(DuplicateError) as refusal:
        await site.do(lambda fw: fw.webhooks.emit("note.shared", {}, key="k"))
    assert refusal.value.extra == {"field": "key"}
    assert await site.counts() == (2, 2)


@pytest.mark.parametrize("undone", ["the transaction", "a part of it"])
async def test_emit_key_is_free_after_rollback(site: VirtualSite, undone: str) -> None:
    """A key whose emit was rolled back is free (B-81)."""
    await site.subscribe()

    def emit(fw: Any) -> Any:
        return fw.webhooks.emit("note.shared", {}, key="k")

    def part(fw: Any) -> None:
        with suppress(ZeroDivisionError), fw.tx.savepoint():
            emit(fw)
            raise ZeroDivisionError

    if undone == "the transaction":
        await site.site.rollback("Administrator", emit)
    else:
        await site.do(part)
    assert len((await site.do(emit))["deliveries"]) == 1
    assert await site.counts() == (1, 1)


async def test_emit_stores_value_of_enum_name(site: VirtualSite) -> None:
    """`type` is the event type (B-100); what is stored is sent (B-106)."""
    await site.subscribe()
    await site.do(lambda fw: fw.webhooks.emit(AppEventName.SHARED, {"to": AppEventName.SHARED}))
    (delivery,) = await site.deliveries()
    assert (delivery["event"], delivery["payload"]["type"]) == ("note.shared", "note.shared")
    assert delivery["payload"]["data"] == {"to": "note.shared"}


@pytest.mark.parametrize(
    "key", ["\u00a0", "a\u200db", " k ", "k" * 140, "\U0001f469\u200d\U0001f4bb"]
)
async def test_emit_accepts_any_key_without_control_characters(site: VirtualSite, key: str) -> None:
    """A key is any text without control characters (B-78, H-12)."""
    await site.subscribe()
    emitted = await site.do(lambda fw: fw.webhooks.emit("note.shared", {}, key=key))
    with pytest.raises(DuplicateError):
        await site.do(lambda fw: fw.webhooks.emit("note.shared", {}, key=key))
    assert [(d["name"], d["key"]) for d in await site.deliveries()] == [
        (emitted["deliveries"][0], key)
    ]


async def test_emits_without_key_are_separate_events(site: VirtualSite) -> None:
    """Two emits without a key are two events (B-80)."""
    await site.subscribe()
    for _ in range(2):
        await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    assert await site.counts() == (2, 2)


async def test_emit_queues_none_if_any_webhook_used_key(site: VirtualSite) -> None:
    """No event is queued, and the caller's transaction stays usable (B-79)."""
    await site.subscribe()
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}, key="k"))
    await site.subscribe()
    await site.subscribe()

    def work(fw: Any) -> int:
        with pytest.raises(DuplicateError):
            fw.webhooks.emit("note.shared", {}, key="k")
        return len(fw.webhooks.emit("note.shared", {}, key="k2")["deliveries"])

    assert await site.do(work) == 3
    assert await site.counts() == (4, 4)
