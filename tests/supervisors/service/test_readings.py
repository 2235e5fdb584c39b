"""The numbers of `/metrics` of a whole service (O-120, H-104)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from fw_actors.actors.metrics import Reading
from fw_actors.runtime import SeededEntropy, TrioClock
from supervisors.service.tree import open_service
from tests.mail_kit import RecordingLog
from tests.site_kit import START_MS, make_config
from tests.supervisors.service.readings_kit import EXPECTED


def subscribe(fw: Any) -> None:
    hook = {"url": "https://x.test/", "event_type": "Custom", "custom_event": "a.b"}
    fw.new_doc("Webhook", secret="x" * 32, **hook).insert()


def owe_two_deliveries(fw: Any) -> None:
    """Queue two deliveries that fail without a request, because there is no secret to sign with."""
    for _ in range(2):
        fw.webhooks.emit("a.b", {})
    fw.db.sql("UPDATE doc_webhook SET secret = NULL", {})


async def test_metrics_exist_from_the_start_and_count(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    clock, entropy = TrioClock(START_MS), SeededEntropy(1)
    opened = open_service(
        make_config(tmp_path),
        log=RecordingLog(),
        front=False,
        clock=clock,
        entropy=entropy,
        inline=True,
    )
    async with opened as service:

        async def look() -> dict[tuple[str, ...], Reading]:
            found = await service.gateway.readings()
            return {(reading.name, *reading.labels.values()): reading for reading in found}

        before = await look()
        assert {name for name, *_ in before} == set(EXPECTED.split())
        await service.site.write("Administrator", subscribe)
        await service.site.write("Administrator", owe_two_deliveries)
        from_outside = "UPDATE doc_webhook SET max_attempts = 1"
        await service.site.write("Administrator", lambda fw: fw.db.sql(from_outside, {}))
        await trio.sleep(5)  # virtual: past the attempts and their outcomes
        after = await look()
    assert after["fw_commits_with_jobs", "webhook"].value == 1  # of both events
    assert after["fw_deliveries", "Failed"].value == 2
    assert [each["fw_subscriptions_stale",].value for each in (before, after)] == [0, 1]
    for name in ("fw_delivery_seconds", "fw_commit_to_send_seconds"):
        assert after[name,].buckets[-1] == ("+Inf", 2)
    assert after["fw_queue_jobs", "webhook", "failed"].value == 2
    assert after["fw_actor_handled", "deliveries"].value == 4
