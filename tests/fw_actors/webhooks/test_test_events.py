"""Test events to Webhooks whose requests cannot be made (B-270)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fw_actors.documents.handle import Fw
from fw_actors.errors import NotFoundError, PermissionDeniedError
from fw_actors.webhooks import diagnostics
from tests.fw_actors.virtual_site_kit import VirtualSite


class NoSender:
    """A sender to which nothing may come."""

    async def post(self, *_: object, **__: object) -> Any:
        raise AssertionError("a request was sent")


async def send(site: VirtualSite, webhook: str, user: str = "Administrator") -> Any:
    sender: Any = NoSender()
    events = diagnostics.TestEventSender(site.site, sender)

    def read(fn: Callable[[Fw], Any]) -> Any:
        return site.site.read(user, fn)

    return await events.send(webhook, read)


@pytest.mark.parametrize(
    ("column", "value", "error"),
    [
        ("secret", None, "secret_missing: "),
        ("secret", "damaged", "secret_unreadable: "),
        ("url", "ftp://receiver.test", "internal: "),
    ],
)
async def test_test_event_that_cannot_be_sent_answers_reason(
    site: VirtualSite, column: str, value: str | None, error: str
) -> None:
    """A restored site may have another key, and raw SQL writes anything."""
    webhook = await site.subscribe()
    await site.sql(f"UPDATE doc_webhook SET {column} = :value", value=value)
    result = await send(site, webhook)
    assert result.status is None
    assert result.error.startswith(error)


async def test_test_event_requires_permission_to_read_webhook(site: VirtualSite) -> None:
    webhook = await site.subscribe()
    await site.add_account("ann", password=None)
    with pytest.raises(PermissionDeniedError):
        await send(site, webhook, "ann")
    with pytest.raises(NotFoundError):
        await send(site, "missing")
