"""`fw.enqueue` runs the function later as the same user, with 10 attempts (D-210, D-211)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from fw_actors.access.users import add_user
from fw_actors.actors.app_jobs import AppJobs
from fw_actors.actors.mailer import Mailer
from fw_actors.actors.queue_worker import QueueWorker
from fw_actors.errors import ValidationError
from fw_actors.store import LeasedJob
from tests.fw_actors.actors import jobs_app
from tests.mail_kit import ADDRESS, MailSite, mail_site


async def roles(site: MailSite) -> set[str]:
    return {row["name"] for row in await site.rows("SELECT name FROM doc_role")}


async def test_enqueued_function_runs_as_enqueuing_user(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with mail_site(tmp_path) as site:
        await site.add_account("maria", "System Manager")
        await site.do(lambda fw: fw.enqueue(jobs_app.note, text="seen"), user="maria")
        await trio.sleep(0.1)
        assert "seen by maria" in await roles(site)
        assert await site.jobs() == []
        (line,) = site.log.of("job.done")
        assert line["request_id"] == f"job-{line['job']}"
        assert (line["user"], line["function"]) == ("maria", f"{jobs_app.__name__}.note")
        assert isinstance(line["duration_ms"], int)


async def test_enqueue_of_rolled_back_transaction_runs_nothing(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with mail_site(tmp_path) as site:
        with pytest.raises(ZeroDivisionError):
            await site.do(lambda fw: fw.enqueue(jobs_app.note, text="seen") / 0)
        await trio.sleep(2)
        assert "seen by Administrator" not in await roles(site)


@pytest.mark.usefixtures("rare_polls")
@pytest.mark.parametrize("attempts", [1, 10])
async def test_failing_job_has_ten_attempts_and_writes_nothing(
    tmp_path: Path, autojump_clock: MockClock, attempts: int
) -> None:
    async with mail_site(tmp_path) as site:
        await site.do(lambda fw: fw.enqueue(jobs_app.fail_after_writing, text="half"))
        await trio.sleep(1 if attempts == 1 else 30_000)
        (job,) = await site.jobs()
        assert job["attempts"] == attempts
        assert (job["next_at"] is None) is (attempts == 10)
        assert job["error"].startswith("RuntimeError in jobs_app.py, line ")
        assert job["error"].endswith("the other system is down")
        await site.site.store.write(site.site.errors.flush)
        noted = await site.rows("SELECT method, request_id FROM doc_error_log")
        assert [tuple(row.values()) for row in noted] == [
            ("tests.fw_actors.actors.jobs_app.fail_after_writing", f"job-{job['id']}")
        ] * attempts
        assert "half by Administrator" not in await roles(site)


async def test_job_in_deadlock_runs_again_without_counted_attempt(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The database has ended its transaction, which has changed nothing (O-11)."""
    async with mail_site(tmp_path) as site:
        await site.do(lambda fw: fw.enqueue(jobs_app.note_after_conflict, text=tmp_path.name))
        await trio.sleep(5)
        assert await site.jobs() == []
        assert f"{tmp_path.name} by Administrator" in await roles(site)
        assert await site.rows("SELECT name FROM doc_error_log") == []


@pytest.mark.usefixtures("on_both_stores")
async def test_job_failure_with_any_text_counts_as_one_attempt(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Otherwise the job would run again and again, each time until its lease ends."""
    async with mail_site(tmp_path) as site:
        await site.do(lambda fw: fw.enqueue(jobs_app.fail_with, codes=[0x61, 0, 0xD800]))
        await trio.sleep(1)
        (job,) = await site.jobs()
        assert (job["attempts"], job["error"][-3:]) == (1, "a\ufffd\ufffd")


async def test_job_whose_search_takes_too_long_counts_as_one_attempt(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """D-210: it ran again and again, and each time other writes waited for the search."""
    async with mail_site(tmp_path) as site:
        await site.do(lambda fw: fw.enqueue(jobs_app.search_too_long))
        await trio.sleep(1)
        (job,) = await site.jobs()
        assert job["attempts"] == 1
        assert job["error"].endswith("The query took longer than 5 seconds; narrow its filters.")


async def test_job_that_raises_overloaded_error_counts_as_one_attempt(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """D-210: only a refusal of the store is none; the job ran each second, for ever."""
    async with mail_site(tmp_path) as site:
        await site.do(lambda fw: fw.enqueue(jobs_app.find_other_system_busy))
        await trio.sleep(5)
        (job,) = await site.jobs()
        assert job["attempts"] == 1
        assert job["error"].endswith("The other system is busy.")
        assert "half by Administrator" not in await roles(site)


@pytest.mark.parametrize("end", sorted(jobs_app.ENDS))
async def test_job_raising_base_exception_fails_alone(
    tmp_path: Path, autojump_clock: MockClock, end: str
) -> None:
    """D-146. A service that ended would run the job again after each start, and end again."""
    async with mail_site(tmp_path) as site:
        await site.do(lambda fw: fw.enqueue(jobs_app.leave, end=end))
        await site.do(lambda fw: fw.enqueue(jobs_app.note, text="after"))
        await trio.sleep(2)
        assert "after by Administrator" in await roles(site)
        (job,) = await site.jobs()
        assert job["error"].startswith(f"{end} in jobs_app.py, line ")


async def test_job_returning_coroutine_fails_without_writes(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The job is not counted as done, since the coroutine never ran."""
    async with mail_site(tmp_path) as site:
        await site.do(lambda fw: fw.enqueue(jobs_app.leave_undone))
        await trio.sleep(1)
        (job,) = await site.jobs()
        assert "leave_undone returned a coroutine" in job["error"]
        assert "half by Administrator" not in await roles(site)


async def test_refused_job_names_line_of_app(tmp_path: Path, autojump_clock: MockClock) -> None:
    """A refusal has no Error Log, and its text alone does not tell which call was refused."""
    async with mail_site(tmp_path) as site:
        await site.do(lambda fw: fw.enqueue(jobs_app.save_nothing))
        await trio.sleep(1)
        (job,) = await site.jobs()
        assert re.match(r"ValidationError in jobs_app.py, line \d+: 'a/b' cannot be", job["error"])


async def test_job_of_disabled_user_fails(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with mail_site(tmp_path) as site:
        await site.add_account("anna")
        site.drain(0)
        await trio.sleep(1)
        await site.do(lambda fw: fw.enqueue(jobs_app.note, text="seen"), user="anna")
        await site.do(lambda fw: fw.get_doc("User", "anna").db_set("enabled", 0))
    async with mail_site(tmp_path) as site:
        await trio.sleep(1)
        (job,) = await site.jobs()
        assert job["error"].startswith("NotFoundError: ")
        assert "seen by anna" not in await roles(site)


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("no_such_module.f", "no_such_module cannot be imported: ModuleNotFoundError."),
        (f"{jobs_app.__name__}.gone", f"{jobs_app.__name__} has no function gone."),
        ("f", " cannot be imported: ValueError."),
    ],
)
async def test_job_of_missing_function_fails(
    tmp_path: Path, autojump_clock: MockClock, function: str, error: str
) -> None:
    async with mail_site(tmp_path) as site:
        await site.rows(
            "INSERT INTO fw_job (queue, function, arguments, user, next_at, created)"
            " VALUES ('app', :function, '{}', 'Administrator', 0, 0)",
            function=function,
        )
        await trio.sleep(2)
        (job,) = await site.jobs()
        assert (job["attempts"], job["error"]) == (1, error)


async def test_job_whose_module_calls_sys_exit_fails(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-146. The worker imports the module, not a thread of a transaction."""
    tmp_path.joinpath("leaving_module.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    async with mail_site(tmp_path) as site:
        await site.rows(
            "INSERT INTO fw_job (queue, function, arguments, user, next_at, created)"
            " VALUES ('app', 'leaving_module.f', '{}', 'Administrator', 0, 0)"
        )
        await trio.sleep(2)
        (job,) = await site.jobs()
        assert job["error"] == "leaving_module cannot be imported: SystemExit."


async def test_job_waits_until_foreign_lease_expires(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The writes of the function and the end of its job are one transaction."""
    async with mail_site(tmp_path) as site:
        site.drain(0)
        await trio.sleep(1)
        await site.do(lambda fw: fw.enqueue(jobs_app.note, text="once"))
        await site.rows("UPDATE fw_job SET lease = 'dead', next_at = next_at + 60000")
    async with mail_site(tmp_path) as site:
        await trio.sleep(50)
        assert "once by Administrator" not in await roles(site)
        await trio.sleep(15)
        assert "once by Administrator" in await roles(site)


async def test_enqueue_refuses_lambda_and_unserialisable_argument(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with mail_site(tmp_path) as site:
        with pytest.raises(ValidationError):
            await site.do(lambda fw: fw.enqueue(lambda fw: None))
        with pytest.raises(ValidationError):
            await site.do(lambda fw: fw.enqueue(jobs_app.note, text=object()))


@pytest.mark.usefixtures("on_both_stores")
async def test_job_of_deleted_user_does_not_run_as_another_user_of_the_name(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Nor is a mail about the deleted account sent to the new one (A-21, D-210)."""
    async with mail_site(tmp_path) as site:
        await site.add_account("anna")
        await site.add_account("ben")
        site.drain(0)
        await trio.sleep(1)
        for user in ("anna", "ben"):
            await site.do(lambda fw: fw.enqueue(jobs_app.note, text="seen"), user=user)
        await site.recovery.request_link("anna", ADDRESS)
        await site.recovery.request_link("ben", ADDRESS)
        await site.do(lambda fw: fw.get_doc("User", "anna").delete())
        await site.add_account("anna", "System Manager", email="other@example.test")
    async with mail_site(tmp_path, seed=2) as site:
        await trio.sleep(1)
        assert "seen by ben" in await roles(site)
        assert "seen by anna" not in await roles(site)
        (job,) = await site.jobs()
        assert job["error"] == "NotFoundError: There is no enabled user anna/deleted."
        assert [mail.recipient for _, mail in site.transport.taken] == ["ben@example.test"]


@pytest.mark.usefixtures("on_both_stores")
@pytest.mark.parametrize("act", ["rename", "delete"])
@pytest.mark.parametrize("worker", [AppJobs, Mailer])
async def test_job_has_the_user_that_its_row_names_after_the_claim(
    tmp_path: Path,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    worker: type[QueueWorker],
    act: str,
) -> None:
    """A claimed job may wait for another one while its user goes, and another account gets the
    name (A-21, D-210)."""
    carry_out = worker.carry_out
    replaced: list[str] = []

    def replace(fw: Any) -> None:
        anna = fw.get_doc("User", "anna")
        anna.rename("eve") if act == "rename" else anna.delete()
        add_user(fw, "anna", "other@example.test", roles=("System Manager",))

    async with mail_site(tmp_path) as site:

        async def carried_out(self: Any, job: LeasedJob) -> None:
            if not replaced:
                replaced.append(job.user)
                await site.do(replace)
            await carry_out(self, job)

        await site.add_account("anna")
        monkeypatch.setattr(worker, "carry_out", carried_out)
        if worker is AppJobs:
            await site.do(lambda fw: fw.enqueue(jobs_app.note, text="seen"), user="anna")
        else:
            await site.recovery.request_link("anna", ADDRESS)
        await trio.sleep(1)
        seen = [name for name in await roles(site) if name.startswith("seen")]
        mailed = [mail.recipient for _, mail in site.transport.taken]
        done = {AppJobs: ["seen by eve"], Mailer: ["anna@example.test"]}[worker]
        assert (replaced, seen + mailed) == (["anna"], done if act == "rename" else [])
