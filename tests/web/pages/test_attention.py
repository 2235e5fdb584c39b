"""The lines of the desk about what needs attention (H-164)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fw_actors.mail import Template
from fw_actors.rules.findings import ServiceState
from tests.fw_actors.office import Office, open_office
from web.pages import webhooks
from web.pages.webhooks import AttentionLine, attention


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with open_office(tmp_path) as office:
        await office.hire("ada")
        yield office


async def lines(office: Office, user: str = "Administrator") -> tuple[AttentionLine, ...]:
    return await office.do(lambda fw: attention(fw, ServiceState(running=True)), user)


async def fail_mails(office: Office, count: int) -> None:
    outbox = office.site.outbox
    for _ in range(count):
        await office.do(
            lambda fw: outbox.to_user(fw.tx, Template.PASSWORD_CHANGED, "ada", owner="ada")
        )
    await office.sql("UPDATE doc_email_delivery SET status = 'Failed'")


async def test_attention_counts_failed_mails_up_to_a_limit(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MAX_WAITING", 3)
    path = "/app/Email%20Delivery?status=Failed"
    await fail_mails(office, 1)
    assert await lines(office) == (AttentionLine("1 mail has failed", path),)
    await fail_mails(office, 1)
    assert await lines(office) == (AttentionLine("2 mails have failed", path),)
    await fail_mails(office, 2)
    assert await lines(office) == (AttentionLine("3 or more mails have failed", path),)


async def test_attention_counts_locked_identifiers(office: Office) -> None:
    until = office.site.clock.now() + 60_000
    for identifier in ("a", "b"):
        await office.sql(
            "INSERT INTO fw_login_attempt (id, key, at, state, until) "
            "VALUES (:id, :key, 0, 1, :until)",
            id=identifier, key=identifier.encode(), until=until,
        )  # fmt: skip
    assert await lines(office) == (
        AttentionLine("2 identifiers are locked", "/app/console#locks-title"),
    )


async def test_attention_is_for_system_managers(office: Office) -> None:
    await fail_mails(office, 1)
    assert await lines(office, "ada") == ()
