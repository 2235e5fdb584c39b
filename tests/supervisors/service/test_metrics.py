"""The numbers of `/metrics` of a whole service (O-120, H-104)."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from fw_actors.actors.metrics import MetricSample
from fw_actors.config import ProcessPlace
from fw_actors.errors import OverloadedError
from fw_actors.mail import Template
from fw_actors.runtime import SeededEntropy, TrioClock
from supervisors.service import metrics
from supervisors.service.control_channel import PeerAnswers, PeerProcesses
from supervisors.service.metrics import BACKLOG_SECONDS, ServiceMetrics
from supervisors.service.tree import RunningService, open_service
from tests.fw_actors.actors import jobs_app
from tests.mail_kit import RecordingLog
from tests.site_kit import START_MS, make_config
from tests.supervisors.service.metrics_kit import EXPECTED
from web.exchange import RequestMetrics


def subscribe(fw: Any) -> None:
    hook = {"url": "https://x.test/", "event_type": "Custom", "custom_event": "a.b"}
    fw.new_doc("Webhook", secret="x" * 32, **hook).insert()


def owe_two_deliveries(fw: Any) -> None:
    """Queue two deliveries that fail without a request, because there is no secret to sign with."""
    for _ in range(2):
        fw.webhooks.emit("a.b", {})
    fw.db.sql("UPDATE doc_webhook SET secret = NULL", {})


def opened(folder: Path, **changes: Any) -> AbstractAsyncContextManager[RunningService]:
    """A service without a front end, in virtual time; `changes` as for `make_config`."""
    return open_service(
        make_config(folder, **changes),
        log=RecordingLog(),
        front=False,
        clock=TrioClock(START_MS),
        entropy=SeededEntropy(1),
        inline=True,
    )


async def test_metrics_exist_from_the_start_and_count(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with opened(tmp_path) as service:

        async def samples() -> dict[tuple[str, ...], MetricSample]:
            found = await service.gateway.samples()
            return {(sample.name, *sample.labels.values()): sample for sample in found}

        before = await samples()
        assert {name for name, *_ in before} == set(EXPECTED.split())
        await service.site.write("Administrator", subscribe)
        await service.site.write("Administrator", owe_two_deliveries)
        from_outside = "UPDATE doc_webhook SET max_attempts = 1"
        await service.site.write("Administrator", lambda fw: fw.db.sql(from_outside, {}))
        await trio.sleep(5)  # virtual: past the attempts and their outcomes
        after = await samples()
    assert after["fw_commits_with_jobs", "webhook"].value == 1  # of both events
    assert after["fw_deliveries", "Failed"].value == 2
    assert [each["fw_subscriptions_stale",].value for each in (before, after)] == [0, 1]
    for name in ("fw_delivery_seconds", "fw_commit_to_send_seconds"):
        assert after[name,].buckets[-1] == ("+Inf", 2)
    assert after["fw_queue_jobs", "webhook", "failed"].value == 2
    assert after["fw_actor_handled", "deliveries"].value == 4


async def test_metrics_omit_store_that_does_not_answer_in_time(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures of the process are needed most while the store hangs."""

    async def hang(*_args: object, **_given: object) -> None:
        await trio.sleep_forever()

    async with opened(tmp_path) as service:
        before = {sample.name for sample in await service.gateway.samples()}
        with monkeypatch.context() as hanging:
            hanging.setattr(service.site.store, "read", hang)
            began = trio.current_time()
            during = {sample.name for sample in await service.gateway.samples()}
            assert trio.current_time() - began == BACKLOG_SECONDS
    assert before - during >= {"fw_queue_jobs", "fw_webhooks_paused"}
    assert during >= {"fw_actor_handled", "fw_deliveries", "fw_store_disk_free_bytes"}


@pytest.mark.parametrize("answers", [True, False])
async def test_metrics_say_whether_the_store_answers(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """Without an answer there are no figures by which an alert could fire."""

    async def refuse(*_args: object, **_given: object) -> None:
        raise OverloadedError("The database cannot be reached. Try again in a moment.")

    async with opened(tmp_path) as service:
        with monkeypatch.context() as refusing:
            if not answers:
                refusing.setattr(service.site.store, "read", refuse)
            samples = {each.name: each.value for each in await service.gateway.samples()}
    assert samples["fw_store_up"] == answers


async def test_metrics_have_waits_while_the_jobs_cannot_be_counted(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Millions of due jobs must not end the alert about them."""

    def count(tx: object) -> None:
        raise OverloadedError("The read took too long.")

    async with opened(tmp_path) as service:
        with monkeypatch.context() as slow:
            slow.setattr(metrics, "queues", count)
            names = {each.name for each in await service.gateway.samples()}
    assert "fw_queue_jobs" not in names
    assert {"fw_queue_oldest_seconds", "fw_store_up", "fw_locked_identifiers"} <= names


async def test_metrics_count_attempts_of_mails_and_jobs(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    def queue(fw: Any) -> None:
        fw.enqueue(jobs_app.note, text="noted")
        fw.enqueue(jobs_app.fail_after_writing, text="failed")

    async with opened(tmp_path, backoff_seconds=0.1, backoff_cap_seconds=0.1) as service:
        mails = service.site.mail_queue
        await service.site.write("Administrator", queue)
        await service.site.write(
            "Administrator",
            lambda fw: mails.to_user(fw.tx, Template.PASSWORD_CHANGED, "ida", owner="ida"),
        )
        await trio.sleep(10)  # virtual: past the tenth attempt
        counts = {
            (each.labels["queue"], each.labels["outcome"]): each.value
            for each in await service.gateway.samples()
            if each.name == "fw_job_attempts"
        }
    assert counts == {
        ("mail", "done"): 1, ("mail", "retrying"): 0, ("mail", "failed"): 0,
        ("app", "done"): 1, ("app", "retrying"): 9, ("app", "failed"): 1,
    }  # fmt: skip


async def test_metrics_leave_out_restarts_that_the_supervisor_does_not_tell() -> None:
    """A counter that falls to 0 and rises again would count each of its restarts once more."""

    class SilentPeers(PeerProcesses):
        async def gather(
            self, what: str, argument: object = None, *, to: int | None = None
        ) -> PeerAnswers:
            return PeerAnswers(unanswered=[2])

    class NoMetrics:
        def of_process(self) -> list[MetricSample]:
            return []

        async def of_store(self) -> list[MetricSample]:
            return []

    service = ServiceMetrics(
        cast("Any", NoMetrics()), RequestMetrics(), SilentPeers(ProcessPlace(1, 2))
    )
    names = [(each.name, each.labels.get("process"), each.value) for each in await service()]
    assert ("fw_process_up", "2", False) in names
    assert "fw_process_restarts" not in {name for name, _, _ in names}
