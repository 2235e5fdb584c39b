"""`fw.enqueue` runs the function later as the same user, with 10 tries (D-210, D-211)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from fw_actors.errors import ValidationError
from tests.fw_actors.actors import jobs_app
from tests.mail_kit import MailSite, mail_site


async def roles(site: MailSite) -> set[str]:
    return {row["name"] for row in await site.rows("SELECT name FROM doc_role")}


async def test_a_function_runs_later_as_the_same_user(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with mail_site(tmp_path) as site:
        await site.hire("maria", "System Manager")
        await site.do(lambda fw: fw.enqueue(jobs_app.note, text="seen"), user="maria")
        await trio.sleep(0.1)
        assert "seen by maria" in await roles(site)
        assert await site.jobs() == []
        (line,) = site.log.of("job.done")
        assert line["request_id"] == f"job-{line['job']}"
        assert (line["user"], line["function"]) == ("maria", f"{jobs_app.__name__}.note")
        assert isinstance(line["duration_ms"], int)


async def test_what_is_rolled_back_runs_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with mail_site(tmp_path) as site:
        with pytest.raises(ZeroDivisionError):
            await site.do(lambda fw: fw.enqueue(jobs_app.note, text="seen") / 0)
        await trio.sleep(2)
        assert "seen by Administrator" not in await roles(site)


@pytest.mark.parametrize("tries", [1, 10])
async def test_a_failing_function_is_tried_ten_times_and_leaves_nothing(
    tmp_path: Path, autojump_clock: MockClock, tries: int
) -> None:
    async with mail_site(tmp_path) as site:
        await site.do(lambda fw: fw.enqueue(jobs_app.fail_after_writing, text="half"))
        await trio.sleep(1 if tries == 1 else 30_000)
        (job,) = await site.jobs()
        assert job["attempts"] == tries
        assert (job["next_at"] is None) is (tries == 10)
        assert job["error"].startswith("RuntimeError in jobs_app.py, line ")
        assert job["error"].endswith("the other system is down")
        await site.site.store.write(site.site.errors.flush)
        noted = await site.rows("SELECT method, request_id FROM doc_error_log")
        assert [tuple(row.values()) for row in noted] == [
            ("tests.fw_actors.actors.jobs_app.fail_after_writing", f"job-{job['id']}")
        ] * tries
        assert "half by Administrator" not in await roles(site)


async def test_a_function_that_would_end_the_process_fails_alone(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with mail_site(tmp_path) as site:
        await site.do(lambda fw: fw.enqueue(jobs_app.leave))
        await site.do(lambda fw: fw.enqueue(jobs_app.note, text="after"))
        await trio.sleep(2)
        assert "after by Administrator" in await roles(site)
        assert [job["function"].rpartition(".")[2] for job in await site.jobs()] == ["leave"]


async def test_a_function_that_gives_back_a_coroutine_has_failed(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Its job counted as done, and nothing of it had run."""
    async with mail_site(tmp_path) as site:
        await site.do(lambda fw: fw.enqueue(jobs_app.leave_undone))
        await trio.sleep(1)
        (job,) = await site.jobs()
        assert "leave_undone returned a coroutine" in job["error"]
        assert "half by Administrator" not in await roles(site)


async def test_a_job_of_a_disabled_user_fails(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with mail_site(tmp_path) as site:
        await site.hire("anna")
        site.drain(0)
        await trio.sleep(1)
        await site.do(lambda fw: fw.enqueue(jobs_app.note, text="seen"), user="anna")
        await site.do(lambda fw: fw.get_doc("User", "anna").db_set("enabled", 0))
    async with mail_site(tmp_path) as site:
        await trio.sleep(1)
        (job,) = await site.jobs()
        assert job["error"].startswith("NotFoundError: ")
        assert "seen by anna" not in await roles(site)


@pytest.mark.parametrize("function", ["no_such_module.f", f"{jobs_app.__name__}.gone", "f"])
async def test_a_function_that_is_gone_fails_its_job(
    tmp_path: Path, autojump_clock: MockClock, function: str
) -> None:
    async with mail_site(tmp_path) as site:
        await site.rows(
            "INSERT INTO fw_job (queue, function, arguments, user, next_at, created)"
            " VALUES ('app', :function, '{}', 'Administrator', 0, 0)",
            function=function,
        )
        await trio.sleep(2)
        (job,) = await site.jobs()
        assert job["attempts"] == 1


async def test_without_its_lease_a_job_is_not_done(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The function's writes and the end of its job are one transaction."""
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


async def test_a_function_that_is_not_found_by_its_name_is_refused(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with mail_site(tmp_path) as site:
        with pytest.raises(ValidationError):
            await site.do(lambda fw: fw.enqueue(lambda fw: None))
        with pytest.raises(ValidationError):
            await site.do(lambda fw: fw.enqueue(jobs_app.note, text=object()))
