"""The Audit Events of an act."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.http_site import HttpSite

Event = tuple[str, str | None, Any, str]


@asynccontextmanager
async def new_events(site: HttpSite) -> AsyncIterator[list[Event]]:
    """Give a list that has, at the end of the block, what was recorded in it: action, target,
    detail and actor."""
    before = {row["name"] for row in await _rows(site)}
    found: list[Event] = []
    yield found
    for row in await _rows(site):
        if row["name"] not in before:
            detail = None if row["detail"] is None else json.loads(row["detail"])
            found.append((row["action"], row["target"], detail, row["actor"]))


async def _rows(site: HttpSite) -> list[dict[str, Any]]:
    return await site.rows("SELECT name, action, target, detail, actor FROM doc_audit_event")
