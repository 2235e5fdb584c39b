"""Values that hooks set before the row is written are validated like those of callers (D-143)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from fw_actors.errors import ValidationError
from tests.fw_actors.documents.conftest import ShopSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

ORDER = "Sales Order"
Hook = Callable[[Any, Any], Any]


def order(fw: Any, **fields: Any) -> Any:
    return fw.new_doc(ORDER, **{"title": "t", **fields}).insert()


def setting(field: str, value: Any) -> Hook:
    def hook(doc: Any, fw: Any) -> None:
        setattr(doc, field, value)

    return hook


@pytest.mark.parametrize("hook", ["validate", "before_save"])
@pytest.mark.parametrize(
    ("field", "value"),
    [("number", "abc"), ("title", "x" * 141), ("title", "nul \x00"), ("title", None),
     ("customer", "Nobody"), ("margin", float("nan")), ("lines", [{"item": "x" * 141}]),
     ("lines", [{}]), ("lines", [5]), ("number", datetime(2026, 1, 1, tzinfo=UTC))],
)  # fmt: skip
async def test_hook_value_refused_by_field_rolls_back_insert(
    desk: ShopSite, hook: str, field: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook cannot store a value that its field does not accept (D-143); unchecked, SQLite keeps
    it and PostgreSQL fails with 500."""
    monkeypatch.setattr(desk.shop.Order, hook, setting(field, value))
    with pytest.raises(ValidationError):
        await desk.do(order)
    assert await desk.do(lambda fw: fw.count(ORDER)) == 0


async def test_hook_before_save_value_is_normalised_by_field(
    desk: ShopSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk.shop.Order, "before_save", setting("margin", 2))
    shown = (await desk.do(order)).margin
    assert (type(shown), shown) == (float, 2.0)


@pytest.mark.parametrize("hook", ["validate", "before_save"])
async def test_row_rebuilt_by_hook_keeps_secrets_by_name(
    desk: ShopSite, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that comes back by its name keeps its secrets (D-95)."""
    name = (await desk.do(lambda fw: order(fw, lines=[{"item": "a", "token": "t-1"}]))).name

    def anew(doc: Any, fw: Any) -> None:
        doc.lines = [{"name": row.name, "item": "b"} for row in doc.lines]

    monkeypatch.setattr(desk.shop.Order, hook, anew)
    await desk.do(lambda fw: fw.get_doc(ORDER, name).save())
    [row] = (await desk.do(lambda fw: fw.get_doc(ORDER, name))).lines
    assert (row.item, row.vault("token")) == ("b", "t-1")


async def test_hook_sees_rows_of_earlier_hooks_as_objects(
    desk: ShopSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are objects that are created from dicts (D-195)."""
    seen: list[list[Any]] = []
    hooks = ("before_validate", "validate", "before_save", "on_insert")
    for hook in hooks:

        def adding(doc: Any, fw: Any, item: str = hook) -> None:
            seen.append([row.item for row in doc.lines])
            doc.lines.append({"item": item})

        monkeypatch.setattr(desk.shop.Order, hook, adding)
    await desk.do(lambda fw: order(fw, lines=[{"item": "first"}]))
    assert seen == [["first", *hooks[:place]] for place in range(len(hooks))]


@pytest.mark.parametrize("hook", ["validate", "before_save", "on_update", "on_trash"])
async def test_hook_change_of_document_name_is_refused(
    desk: ShopSite, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook cannot change a stored name (D-144): the row of the other document would be written or
    deleted."""
    mine, other = [(await desk.do(order)).name for _ in range(2)]
    monkeypatch.setattr(desk.shop.Order, hook, setting("name", other))

    def attempt(fw: Any) -> None:
        doc = fw.get_doc(ORDER, mine)
        doc.title = "mine"
        with pytest.raises(ValidationError) as refusal:
            doc.delete() if hook == "on_trash" else doc.save()
        assert refusal.value.extra == {"field": "name"}
        assert doc.name == mine

    await desk.do(attempt)
    stored = await desk.do(lambda fw: fw.get_all(ORDER, [], ["name", "title"], "name"))
    assert stored == [{"name": mine, "title": "t"}, {"name": other, "title": "t"}]


async def test_hook_may_rename_own_document(
    desk: ShopSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk.shop.Order, "on_insert", lambda doc, fw: doc.rename("Mine") and None)
    assert (await desk.do(order)).name == "Mine"


async def test_hook_returning_coroutine_rolls_back_insert(
    desk: ShopSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hooks are plain functions (D-145); an async one hidden by a decorator would never run."""

    async def later() -> None: ...

    monkeypatch.setattr(desk.shop.Order, "validate", lambda doc, fw: later())
    with pytest.raises(RuntimeError, match=r"Sales Order\.validate returned a coroutine"):
        await desk.do(order)
    assert await desk.do(lambda fw: fw.count(ORDER)) == 0
