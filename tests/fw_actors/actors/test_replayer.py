"""Bulk replays over HTTP: their start, batches, progress, stop and continuation."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from fw_actors.actors.background import DEFECT_REASON
from fw_actors.actors.queue_worker import WakeUp
from fw_actors.actors.sweeper import PAUSE_SECONDS, RETRY_SECONDS
from fw_actors.errors import OverloadedError
from fw_actors.webhooks import replay
from fw_actors.webhooks.replay import BulkReplays
from tests.fw_actors.actors.store_delays import delay_writes
from tests.http_site import HttpSite, http_site

FAILED = {"filters": [["status", "=", "Failed"]]}
HOOK = {
    "url": "https://192.0.2.1/x",
    "event_type": "Custom",
    "custom_event": "many.failed",
    "secret": "s",
}


async def failures(site: HttpSite, count: int) -> None:
    """Make so many deliveries fail by disabling their Webhook before they are sent."""
    await site.do(lambda fw: fw.new_doc("Webhook", **HOOK).insert())

    def emit_and_switch_off(fw: Any) -> None:
        for number in range(count):
            fw.webhooks.emit("many.failed", {"n": number})
        fw.get_doc("Webhook", fw.get_all("Webhook")[0]["name"]).db_set("enabled", 0)

    await site.do(emit_and_switch_off)
    await trio.sleep(2)


async def replays(site: HttpSite, action: str = "webhook.replay") -> int:
    count: int = await site.do(lambda fw: fw.count("Audit Event", {"action": action}))
    return count


async def progress(site: HttpSite, sid: str) -> Any:
    reply = await site.op("webhooks.replayProgress", sid=sid)
    assert reply.status == 200, reply.body
    return reply.json["run"]


async def manager(site: HttpSite) -> str:
    await site.add_account("boss", "System Manager")
    return await site.sid("boss")


async def test_bulk_replay_reports_progress_until_done(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "BATCH", 2)
    async with http_site(tmp_path) as site:
        sid = await manager(site)
        assert await progress(site, sid) is None
        await failures(site, 5)
        begun = await site.op("webhooks.replayMany", FAILED, sid=sid)
        assert begun.status == 200, begun.body
        run = begun.json["run"]
        assert (run["state"], run["total"], run["done"], run["ended"]) == ("running", 5, 0, None)
        assert (run["user"], run["filters"]) == ("boss", FAILED["filters"])
        second = await site.op("webhooks.replayMany", FAILED, sid=sid)
        assert (second.status, second.error["type"]) == (409, "ConflictError")
        await trio.sleep(2)
        over = await progress(site, sid)
        assert (over["id"], over["state"], over["done"]) == (run["id"], "done", 5)
        assert (over["replayed"], over["refused"], over["error"]) == (5, {}, "")
        assert await replays(site) == 5


async def test_commits_of_other_processes_leave_the_pauses_between_batches(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wake-up may carry out a batch early, but begins no second series of batches."""
    monkeypatch.setattr(replay, "BATCH", 1)
    carry_out = BulkReplays.carry_out
    times: list[float] = []

    def noted(self: BulkReplays, *args: Any) -> None:
        times.append(trio.current_time())
        carry_out(self, *args)

    monkeypatch.setattr(BulkReplays, "carry_out", noted)
    async with http_site(tmp_path) as site:
        sid = await manager(site)
        await failures(site, 30)
        await site.op("webhooks.replayMany", FAILED, sid=sid)
        delay_writes(monkeypatch, site.site.store, before=lambda: 0.03)
        replayer = site.service.runtime.ref("replayer")
        for _ in range(8):
            await trio.sleep(0.063)
            replayer.tell(WakeUp(elsewhere=True))
        await trio.sleep(0.1)
        times.clear()
        await trio.sleep(0.6)
    assert len(times) > 3
    assert min(after - before for before, after in pairwise(times)) > PAUSE_SECONDS + 0.029


async def test_bulk_replay_continues_in_next_process(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "BATCH", 1)
    async with http_site(tmp_path) as site:
        sid = await manager(site)
        await failures(site, 4)
        await site.op("webhooks.replayMany", FAILED, sid=sid)
        await trio.sleep(0.07)
        assert 0 < (await progress(site, sid))["done"] < 4
    async with http_site(tmp_path) as site:
        await trio.sleep(RETRY_SECONDS + 1)
        over = await progress(site, await site.sid("boss"))
        assert (over["state"], over["replayed"]) == ("done", 4)
        assert await replays(site) == 4


async def test_bulk_replay_stops_on_request(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "BATCH", 1)
    async with http_site(tmp_path) as site:
        sid = await manager(site)
        await failures(site, 4)
        await site.op("webhooks.replayMany", FAILED, sid=sid)
        stopped = (await site.op("webhooks.stopReplay", sid=sid)).json["run"]
        assert stopped["state"] == "stopped"
        await trio.sleep(2)
        later = await progress(site, sid)
        assert later["open"] + later["failedAgain"] == stopped["replayed"]
        same = ("id", "state", "done", "replayed", "ended")
        assert [later[key] for key in same] == [stopped[key] for key in same]
        assert await replays(site) == stopped["replayed"] < 4


async def test_bulk_replay_fails_on_deletion_of_user(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "BATCH", 1)
    async with http_site(tmp_path) as site:
        sid = await manager(site)
        await site.add_account("second", "System Manager")
        await failures(site, 3)
        await site.op("webhooks.replayMany", FAILED, sid=sid)
        await site.do(lambda fw: fw.get_doc("User", "boss").delete())
        await trio.sleep(1)
        over = await progress(site, await site.sid("second"))
        assert (over["state"], over["user"]) == ("failed", "boss")
        assert "boss" in over["error"]


async def test_bulk_replay_continues_after_rename_of_user(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It failed, as if its user had been deleted (B-257)."""
    monkeypatch.setattr(replay, "BATCH", 1)
    async with http_site(tmp_path) as site:
        sid = await manager(site)
        await failures(site, 3)
        await site.op("webhooks.replayMany", FAILED, sid=sid)
        await site.do(lambda fw: fw.get_doc("User", "boss").rename("chief"))
        await trio.sleep(1)
        over = await progress(site, sid)
        assert (over["state"], over["user"], over["replayed"]) == ("done", "chief", 3)


async def test_bulk_replay_defect_fails_run_and_is_logged(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect writes an Error Log and a log entry (O-105)."""

    def broken(self: BulkReplays, fw: Any, run: Any) -> list[str]:
        raise ZeroDivisionError

    monkeypatch.setattr(BulkReplays, "batch", broken)
    async with http_site(tmp_path) as site:
        sid = await manager(site)
        await failures(site, 1)
        await site.op("webhooks.replayMany", FAILED, sid=sid)
        await trio.sleep(1)
        over = await progress(site, sid)
        assert (over["state"], over["error"]) == ("failed", DEFECT_REASON)
        noted = await site.do(lambda fw: fw.get_all("Error Log", fields=["method"]))
        assert noted == [{"method": "replay of many"}]
        [entry] = site.log.of("replay.ended_by_defect")
        assert isinstance(entry["exc_info"], ZeroDivisionError)


async def test_bulk_replay_retries_overloaded_store(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[int] = []
    batch = BulkReplays.batch

    def busy(self: BulkReplays, fw: Any, run: Any) -> list[str]:
        if len(refused) < 3:
            refused.append(1)
            raise OverloadedError
        return batch(self, fw, run)

    monkeypatch.setattr(BulkReplays, "batch", busy)
    async with http_site(tmp_path) as site:
        sid = await manager(site)
        await failures(site, 1)
        await site.op("webhooks.replayMany", FAILED, sid=sid)
        await trio.sleep(1)
        assert (await progress(site, sid))["state"] == "running"
        await trio.sleep(10)
        assert (await progress(site, sid))["state"] == "done"


@pytest.mark.parametrize(
    ("operation", "body"),
    [("replayMany", FAILED), ("replayProgress", None), ("stopReplay", None)],
)
async def test_bulk_replay_operations_require_system_manager(
    tmp_path: Path, autojump_clock: MockClock, operation: str, body: Any
) -> None:
    async with http_site(tmp_path) as site:
        await site.add_account("sally", "Event Publisher")
        refused = await site.op(f"webhooks.{operation}", body, sid=await site.sid("sally"))
        assert (refused.status, refused.error["type"]) == (403, "PermissionDeniedError")
        assert await replays(site, "Denied") == (operation == "replayMany")


@pytest.mark.parametrize("body", [{}, {"filters": "x"}, {"filters": []}, {"filters": [["x"]]}])
async def test_bulk_replay_refuses_missing_or_invalid_filters(
    tmp_path: Path, autojump_clock: MockClock, body: Any
) -> None:
    async with http_site(tmp_path) as site:
        refused = await site.op("webhooks.replayMany", body, sid=await manager(site))
        assert (refused.status, refused.error["extra"]) == (400, {"field": "filters"})
