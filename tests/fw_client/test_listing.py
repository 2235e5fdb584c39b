"""Going through a list by pages (H-227)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fw_client.errors import Invalid
from fw_client.listing import ListPosition
from fw_client.models import DocumentPage


def position(**changes: Any) -> ListPosition:
    given: dict[str, Any] = {"filters": (), "fields": None, "order_by": None, "limit": 2}
    return ListPosition("Note", **(given | changes))


def page(*names: str) -> DocumentPage:
    return DocumentPage(tuple({"name": name} for name in names), 9)


def test_next_page_begins_after_last_name() -> None:
    first = position(filters={"state": "Open"})
    second = first.after(page("a", "b"))
    assert second is not None
    assert first.call().query["order_by"] == "name asc"
    assert json.loads(second.call().query["filters"]) == [
        ["state", "=", "Open"],
        ["name", ">", "b"],
    ]
    assert "start" not in second.call().query


def test_pages_of_another_order_are_counted() -> None:
    second = position(order_by="creation desc").after(page("a", "b"))
    assert second is not None
    assert (second.call().query["start"], second.call().query["order_by"]) == ("2", "creation desc")


def test_page_with_room_left_is_last() -> None:
    assert position().after(page("a")) is None


def test_name_is_requested_and_not_shown_unless_asked() -> None:
    listed = position(fields=("title",))
    assert json.loads(listed.call().query["fields"]) == ["title", "name"]
    assert listed.shown({"title": "t", "name": "n"}) == {"title": "t"}
    named = position(fields=("name", "title"))
    assert json.loads(named.call().query["fields"]) == ["name", "title"]
    assert named.shown({"name": "n", "title": "t"}) == {"name": "n", "title": "t"}
    assert position().shown({"name": "n", "title": "t"}) == {"name": "n", "title": "t"}


def test_too_large_page_is_halved_down_to_one_row() -> None:
    refusal = Invalid(422, "ValidationError", "Too large.", {"field": "limit"})
    half = position(limit=5).after_refusal(refusal)
    assert half.limit == 2
    with pytest.raises(Invalid):
        position(limit=1).after_refusal(refusal)


def test_refusal_of_other_field_is_raised() -> None:
    with pytest.raises(Invalid):
        position().after_refusal(Invalid(422, "ValidationError", "No.", {"field": "filters"}))
