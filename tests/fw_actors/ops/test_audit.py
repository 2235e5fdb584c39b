"""Audit Events (O-80 to O-88)."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

import pytest

from fw_actors.documents import rest
from fw_actors.documents.fields import to_ms
from fw_actors.errors import PermissionDeniedError
from fw_actors.ops.audit import Action
from tests.fw_actors.virtual_site_kit import VirtualSite
from tests.site_kit import START_MS


def test_audit_actions_have_the_names_of_the_contract() -> None:
    assert {"webhook.replay", "Denied"} <= {str(action) for action in Action}


async def test_audit_event_records_action_target_actor_and_request(site: VirtualSite) -> None:
    await site.add_account("ada", "System Manager", password=None)
    opened = site.site
    detail = {"webhook": "w", "previous_status": "Sent"}
    await opened.write(
        "ada", lambda fw: opened.audit.record(fw, Action.REPLAY, "msg_1", detail), "request-1"
    )
    ((name,),) = await site.sql("SELECT name FROM doc_audit_event WHERE target = 'msg_1'")
    shown = await opened.read("ada", lambda fw: rest.read(fw, "Audit Event", name))
    assert (shown["action"], shown["target"], shown["detail"]) == (
        "webhook.replay",
        "msg_1",
        detail,
    )
    assert (shown["actor"], shown["request_id"]) == ("ada", "request-1")
    assert to_ms(datetime.fromisoformat(shown["creation"])) == START_MS


async def test_denied_event_has_no_detail_and_a_cut_target(site: VirtualSite) -> None:
    """A refused replay leaves an event with the action Denied and no detail (O-81, O-86)."""
    audit = site.site.audit
    await site.do(lambda fw: audit.record(fw, Action.DENIED, "x" * 200))
    rows = await site.sql("SELECT action, target, detail, request_id FROM doc_audit_event")
    assert rows == [("Denied", "x" * 140, None, None)]


async def test_audit_events_are_suppressed_inside_the_block_only(site: VirtualSite) -> None:
    """An operation with its own event suppresses those of its effects, but no denial (O-81)."""
    audit = site.site.audit

    def work(fw: Any) -> None:
        with audit.suppressed(fw.tx):
            with audit.suppressed(fw.tx):
                audit.record(fw, Action.REPLAY, "inner")
            audit.record(fw, Action.REPLAY, "outer")
            audit.deny(fw, "denied")
        audit.record(fw, Action.REPLAY, "after")

    await site.do(work)
    rows = await site.sql("SELECT target FROM doc_audit_event ORDER BY target")
    assert rows == [("after",), ("denied",)]


async def test_audit_event_rolls_back_with_its_transaction(site: VirtualSite) -> None:
    await site.site.rollback(
        "Administrator", lambda fw: site.site.audit.record(fw, Action.REPLAY, "msg_1")
    )
    assert await site.sql("SELECT name FROM doc_audit_event") == []


async def test_audit_event_cannot_be_inserted_as_a_document(site: VirtualSite) -> None:
    for ignoring in (False, True):
        with pytest.raises(PermissionDeniedError, match="only be written by the service"):
            await site.do(partial(insert, ignoring))


def insert(ignore_permissions: bool, fw: Any) -> None:
    fw.new_doc("Audit Event").insert(ignore_permissions=ignore_permissions)
