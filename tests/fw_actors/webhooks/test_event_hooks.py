"""Events show a document that a hook has changed as it was stored when the event happened
(B-104, B-105), after the hooks (B-56)."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fw_actors.virtual_site_kit import VirtualSite, open_virtual_site

pytestmark = pytest.mark.usefixtures("on_both_stores")

ALL = ("on_insert", "on_update", "on_submit", "on_cancel", "on_trash")
Act = Callable[[Any, Any], object]


class HookSite(VirtualSite):
    """A site in which the hooks of a Box run actions of the test."""

    def in_hook(self, hook: str, act: Act) -> None:
        sys.modules["boxes"].ACTS[hook] = act

    async def data_of(self, event: str) -> dict[str, Any]:
        """The `data` of the one event of a type."""
        (found,) = [d for d in await self.deliveries() if d["event"] == f"doc.{event}"]
        data: dict[str, Any] = found["payload"]["data"]
        return data


@pytest.fixture
async def hook_site(tmp_path: Path) -> AsyncIterator[HookSite]:
    async with open_virtual_site(tmp_path, apps=("boxes",)) as site:
        acts = sys.modules["boxes"].ACTS
        acts.clear()
        hook_site = HookSite(site.site)
        await hook_site.watch("Box", *ALL)
        yield hook_site
        acts.clear()


def live(fw: Any) -> None:
    """One document through all its verbs, each event once."""
    doc = fw.new_doc("Box", name="B-1", stamp="as written", items=[{"item": "i"}]).insert()
    fw.get_doc("Box", doc.name).save()
    fw.get_doc("Box", doc.name).submit()
    fw.get_doc("Box", doc.name).cancel()
    fw.get_doc("Box", doc.name).delete()


@pytest.mark.parametrize("event", ALL)
async def test_event_omits_values_set_only_on_object(hook_site: HookSite, event: str) -> None:
    """Such a value is not stored, so no read of the document returns it."""

    def act(doc: Any, fw: Any) -> None:
        doc.stamp = "never stored"
        doc.items.append({"item": "never stored"})

    hook_site.in_hook(event, act)
    await hook_site.do(live)
    shown = (await hook_site.data_of(event))["doc"]
    assert shown["stamp"] == "as written"
    assert [row["item"] for row in shown["items"]] == ["i"]


def by_another_object(doc: Any, fw: Any) -> None:
    fw.get_doc("Box", doc.name).db_set("stamp", "stored by the hook")


def by_sql(doc: Any, fw: Any) -> None:
    fw.db.sql("UPDATE doc_box SET stamp = 'stored by the hook' WHERE name = :n", {"n": doc.name})


def on_the_object(doc: Any, fw: Any) -> None:
    doc.db_set("stamp", "stored by the hook")


@pytest.mark.parametrize("act", [by_another_object, by_sql, on_the_object])
@pytest.mark.parametrize("event", ALL)
async def test_event_shows_values_stored_by_hook(hook_site: HookSite, event: str, act: Act) -> None:
    hook_site.in_hook(event, act)
    await hook_site.do(live)
    assert (await hook_site.data_of(event))["doc"]["stamp"] == "stored by the hook"


async def test_hook_save_is_shown_by_both_events(hook_site: HookSite) -> None:
    def act(doc: Any, fw: Any) -> None:
        other = fw.get_doc("Box", doc.name)
        other.stamp = "saved by the hook"
        other.items.append({"item": "j"})
        other.save()

    hook_site.in_hook("on_insert", act)
    await hook_site.do(lambda fw: fw.new_doc("Box", name="B-1", items=[{"item": "i"}]).insert())
    for event in ("on_insert", "on_update"):
        shown = (await hook_site.data_of(event))["doc"]
        assert shown["stamp"] == "saved by the hook"
        assert [row["item"] for row in shown["items"]] == ["i", "j"]


@pytest.mark.parametrize("event", ALL)
async def test_event_shows_child_rows_changed_by_sql(hook_site: HookSite, event: str) -> None:
    hook_site.in_hook(event, lambda doc, fw: fw.db.sql("UPDATE doc_box_item SET item = 'by sql'"))
    await hook_site.do(live)
    assert [row["item"] for row in (await hook_site.data_of(event))["doc"]["items"]] == ["by sql"]


@pytest.mark.parametrize("hook", ["validate", "before_save"])
async def test_event_shows_sql_change_before_write(hook_site: HookSite, hook: str) -> None:
    """A save writes only changed columns, so that the value of the hook stays."""
    await hook_site.do(lambda fw: fw.new_doc("Box", name="B-1", stamp="as written").insert())
    hook_site.in_hook(hook, by_sql)
    await hook_site.do(lambda fw: fw.get_doc("Box", "B-1").save())
    assert (await hook_site.data_of("on_update"))["doc"]["stamp"] == "stored by the hook"
    assert await hook_site.sql("SELECT stamp FROM doc_box") == [("stored by the hook",)]


async def test_submitting_insert_emits_each_stored_state(hook_site: HookSite) -> None:
    hook_site.in_hook("on_insert", by_sql)
    await hook_site.do(lambda fw: fw.new_doc("Box", name="B-1").insert().submit())
    assert (await hook_site.data_of("on_insert"))["doc"]["docstatus"] == 0
    assert (await hook_site.data_of("on_submit"))["doc"]["docstatus"] == 1


async def test_event_redacts_document_read_again(hook_site: HookSite) -> None:
    """A document that is read again is redacted as well (B-94)."""

    def act(doc: Any, fw: Any) -> None:
        other = fw.get_doc("Box", doc.name)
        other.pass_secret, other.margin, other.token = "hidden", 7.5, "hidden"
        other.save()

    hook_site.in_hook("on_insert", act)
    await hook_site.do(lambda fw: fw.new_doc("Box", name="B-1").insert())
    shown = (await hook_site.data_of("on_insert"))["doc"]
    assert (shown["pass_secret"], shown["token"]) == (None, {"configured": True})
    assert "margin" not in shown
    assert not [d for d in await hook_site.deliveries() if "hidden" in str(d["payload"])]


@pytest.mark.parametrize("own", [True, False])
async def test_event_uses_name_set_by_hook_rename(hook_site: HookSite, own: bool) -> None:
    def act(doc: Any, fw: Any) -> None:
        (doc if own else fw.get_doc("Box", "B-1")).rename("B-2")
        fw.get_doc("Box", "B-2").db_set("stamp", "stored by the hook")

    hook_site.in_hook("on_insert", act)
    await hook_site.do(lambda fw: fw.new_doc("Box", name="B-1").insert())
    data = await hook_site.data_of("on_insert")
    assert (data["name"], data["doc"]["name"]) == ("B-2", "B-2")
    assert data["doc"]["stamp"] == "stored by the hook"
    assert [d["reference_name"] for d in await hook_site.deliveries()] == ["B-2"]


async def test_event_of_document_deleted_by_hook_is_kept(
    hook_site: HookSite,
) -> None:
    """Insert and deletion are two events."""
    hook_site.in_hook("on_insert", lambda doc, fw: fw.get_doc("Box", "B-1").delete())
    await hook_site.do(lambda fw: fw.new_doc("Box", name="B-1", stamp="as written").insert())
    assert (await hook_site.data_of("on_insert"))["doc"]["stamp"] == "as written"
    assert (await hook_site.data_of("on_trash"))["doc"]["stamp"] == "as written"


async def test_event_of_refused_deletion_is_dropped(hook_site: HookSite) -> None:
    """The event is recorded before the rows are deleted, and is rolled back with the deletion."""

    def act(doc: Any, fw: Any) -> None:
        raise ValueError("not this one")

    hook_site.in_hook("on_trash", act)
    await hook_site.do(lambda fw: fw.new_doc("Box", name="B-1").insert())
    with pytest.raises(ValueError, match="not this one"):
        await hook_site.do(lambda fw: fw.get_doc("Box", "B-1").delete())
    assert [d["event"] for d in await hook_site.deliveries()] == ["doc.on_insert"]
