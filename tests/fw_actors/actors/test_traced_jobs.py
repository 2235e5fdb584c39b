"""Traces of jobs and mails: stored when they are queued, and held while they run (B-429)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import trio
from trio.testing import MockClock

from fw_actors.mail import MailNotSent
from fw_actors.tracing import CURRENT_TRACE, TraceContext, decode_context, in_trace
from tests.fw_actors.actors import jobs_app
from tests.mail_kit import ADDRESS, MailSite, RecordingTransport, mail_site
from tests.site_kit import inline_site, keep_database_at

CALLER = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", 1, "congo=t61")
STORED = f"{CALLER.parent} {CALLER.state}"
HOOK = {
    "url": "https://receiver.test/", "event_type": "Custom", "custom_event": "job.ran",
    "secret": "a signing secret",
}  # fmt: skip


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A site's folder, with either store."""
    if request.param == "postgres":
        keep_database_at(tmp_path, request.getfixturevalue("postgres_url"))
    return tmp_path


async def enqueue(
    site: MailSite, function: Any, caller: TraceContext | None = CALLER, **arguments: Any
) -> int:
    with in_trace(caller):
        number: int = await site.do(lambda fw: fw.enqueue(function, **arguments))
    return number


def remember_traces(site: MailSite, monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """Return the trace in which each event is logged, by its name, from now on."""
    seen: dict[str, str | None] = {}
    for level in ("info", "warning"):
        write = getattr(site.log, level)

        def note(event: str, write: Any = write, **fields: object) -> None:
            context = CURRENT_TRACE.get()
            seen[event] = None if context is None else context.trace_id
            write(event, **fields)

        monkeypatch.setattr(site.log, level, note)
    return seen


async def test_job_runs_in_trace_of_enqueuing_request(
    folder: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log lines, events and jobs have that trace; later work of the same task has not."""
    async with mail_site(folder, trace_context=True) as site:
        seen = remember_traces(site, monkeypatch)
        await site.do(lambda fw: fw.new_doc("Webhook", **HOOK).insert())
        number = await enqueue(site, jobs_app.emit)
        rows = [(job["id"], job["trace_context"]) for job in await site.jobs()]
        assert (number, STORED) in rows
        await trio.sleep(0.1)
        assert seen["job.done"] == CALLER.trace_id
        (delivery,) = await site.rows("SELECT trace_context FROM doc_webhook_delivery")
        assert delivery["trace_context"] == STORED
        done = [str(line["function"]).rpartition(".")[2] for line in site.log.of("job.done")]
        assert done == ["emit", "note"]
        await enqueue(site, jobs_app.note, None, text="apart")
        await trio.sleep(0.1)
    assert seen["job.done"] not in (None, CALLER.trace_id)


async def test_job_attempts_keep_trace_of_job(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mail_site(tmp_path, trace_context=True) as site:
        seen = remember_traces(site, monkeypatch)
        await enqueue(site, jobs_app.fail_after_writing, text="half")
        for _ in range(2):
            await trio.sleep(200)
            assert seen.pop("job.failed") == CALLER.trace_id
        (job,) = await site.jobs()
    assert (job["attempts"] > 1, job["trace_context"]) == (True, STORED)


async def test_mail_is_sent_in_trace_of_its_request(
    folder: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So are all its attempts, and nothing else."""
    transport = RecordingTransport(outcomes=[MailNotSent("smtp: the mail server answered 451.")])
    async with mail_site(folder, transport, trace_context=True) as site:
        seen = remember_traces(site, monkeypatch)
        await site.add_account("anna")
        with in_trace(CALLER):
            await site.recovery.request_link("anna", ADDRESS)
        await transport.wait(1)
        await trio.sleep(0.1)
        assert [job["trace_context"] for job in await site.jobs()] == [STORED]
        assert (seen.pop("job.failed"), len(seen)) == (CALLER.trace_id, 0)
        await transport.wait(2)
        await trio.sleep(0.1)
        assert seen.pop("mail.ended") == CALLER.trace_id
        await site.recovery.request_link("anna", ADDRESS)
        await transport.wait(3)
        await trio.sleep(0.1)
    assert seen["mail.ended"] not in (None, CALLER.trace_id)


async def test_jobs_and_events_of_transaction_share_new_trace(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """All records of a transaction share one trace (B-423)."""
    async with mail_site(tmp_path, trace_context=True) as site:
        await site.do(lambda fw: fw.new_doc("Webhook", **HOOK).insert())

        def record(fw: Any) -> None:
            for _ in range(2):
                fw.enqueue(jobs_app.note, text="x")
            fw.webhooks.emit("job.ran", {})

        await site.do(record)
        queued = [job["trace_context"] for job in await site.jobs() if job["queue"] == "app"]
        (delivery,) = await site.rows("SELECT trace_context FROM doc_webhook_delivery")
        await site.do(lambda fw: fw.enqueue(jobs_app.note, text="y"))
        other = (await site.jobs())[-1]["trace_context"]
    context = decode_context(queued[0])
    assert context is not None
    assert not context.is_sampled
    assert queued == [delivery["trace_context"]] * 2
    assert other != queued[0]


async def test_disabled_tracing_stores_and_holds_no_job_trace(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the setting there are no traces (B-428)."""
    async with mail_site(tmp_path) as site:
        seen = remember_traces(site, monkeypatch)
        await site.add_account("anna")
        with in_trace(CALLER):
            await site.recovery.request_link("anna", ADDRESS)
        await enqueue(site, jobs_app.note, text="x")
        assert [job["trace_context"] for job in await site.jobs()] == [None, None]
        set_trace = "UPDATE fw_job SET trace_context = :stored"
        await site.do(lambda fw: fw.db.sql(set_trace, {"stored": STORED}))
        await trio.sleep(0.1)
    assert (seen["mail.ended"], seen["job.done"]) == (None, None)


@pytest.mark.parametrize("stored", [None, "", "garbage"])
async def test_job_with_unusable_trace_runs_without_trace(
    tmp_path: Path,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    stored: str | None,
) -> None:
    """The job precedes the setting, or raw SQL has damaged the trace."""
    async with mail_site(tmp_path, trace_context=True) as site:
        seen = remember_traces(site, monkeypatch)

        def damaged(fw: Any) -> None:
            fw.enqueue(jobs_app.note, text="x")
            fw.db.sql("UPDATE fw_job SET trace_context = :stored", {"stored": stored})

        await site.do(damaged)
        await trio.sleep(0.1)
    assert seen["job.done"] is None


async def test_job_of_earlier_version_runs_after_upgrade(
    folder: Path, autojump_clock: MockClock
) -> None:
    """A migration adds the column; waiting jobs have no trace."""
    async with inline_site(folder, seed=2) as before:

        def older(tx: Any) -> None:
            tx.run(sa.text("ALTER TABLE fw_job DROP COLUMN trace_context"))
            tx.run(sa.text("DROP INDEX fw_login_attempt_until"))
            tx.run(sa.text("UPDATE fw_meta SET value = '15' WHERE key = 'schema_version'"))
            tx.run(
                sa.text(
                    'INSERT INTO fw_job (queue, function, arguments, "user", next_at, created)'
                    " VALUES ('app', :function, :arguments, 'Administrator', 1, 1)"
                ),
                function=f"{jobs_app.__name__}.note",
                arguments='{"text": "old"}',
            )

        await before.store.write(older)
    async with mail_site(folder, trace_context=True) as site:
        await enqueue(site, jobs_app.note, text="new")
        await trio.sleep(0.1)
        assert len(site.log.of("job.done")) == 2
        assert await site.jobs() == []
