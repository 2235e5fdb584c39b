"""Jobs of apps and mails: listed, retried, cancelled (O-220 to O-223)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from fw_actors.errors import (
    BadRequestError,
    ConflictError,
    NotFoundError,
    PermissionDeniedError,
    ValidationError,
)
from fw_actors.mail import Template
from fw_actors.ops.queued_jobs import JobFacts, JobFilter, JobState, state_of
from fw_actors.store import Tx, jobs
from tests.fw_actors.virtual_site_kit import VirtualSite
from tests.plans import accesses

pytestmark = pytest.mark.usefixtures("on_both_stores")
LEASE_MS = 60_000
REPORT = "notes.report"


def write(tx: Tx, function: str = REPORT, **fields: Any) -> int:
    return jobs.enqueue_numbered(tx, queue="app", function=function, **{"user": "ada", **fields})


def fail(tx: Tx, number: int) -> None:
    """Have a worker lease all due jobs, and fail this one permanently."""
    for job in jobs.claim(tx, "app", "", 100, LEASE_MS, "token"):
        if job.id == number:
            jobs.fail(tx, job.id, "token", "ValueError: no paper")
        else:
            jobs.release(tx, job.id, "token")


async def failed_job(site: VirtualSite, user: str = "ada") -> int:
    def work(tx: Tx) -> int:
        number = write(tx, user=user)
        fail(tx, number)
        return number

    return await site.site.store.write(work)


async def listed(site: VirtualSite, **job_filter: Any) -> list[JobFacts]:
    return await site.do(lambda fw: site.site.jobs.listed(fw, JobFilter(**job_filter)))


async def audited(site: VirtualSite) -> list[tuple[Any, ...]]:
    return await site.sql(
        "SELECT action, target FROM doc_audit_event WHERE action LIKE 'job.%' ORDER BY creation"
    )


@pytest.mark.parametrize(
    ("next_at", "lease", "state"),
    [
        (None, None, "failed"),
        (9, None, "ready"),
        (9, "held once", "ready"),
        (11, None, "scheduled"),
        (11, "held", "leased"),
    ],
)
def test_state_of_a_job_follows_its_due_time_and_lease(
    next_at: int | None, lease: str | None, state: str
) -> None:
    assert state_of(next_at, lease, 10) == state


async def test_jobs_are_listed_newest_first_without_deliveries(
    site: VirtualSite,
) -> None:
    def work(tx: Tx) -> None:
        first = write(tx)
        jobs.enqueue(tx, queue="webhook", partition="hook", subject="msg_1")
        site.site.mail_queue.to_user(
            tx, Template.PASSWORD_CHANGED, "Administrator", owner="Administrator"
        )
        fail(tx, first)
        write(tx, "notes.later", next_at=tx.now + 5000)

    await site.site.store.write(work)
    found = await listed(site)
    assert [(job.queue, job.function, job.state) for job in found] == [
        ("app", "notes.later", JobState.SCHEDULED),
        ("mail", "password_changed", JobState.READY),
        ("app", REPORT, JobState.FAILED),
    ]
    assert found[2].error == "ValueError: no paper"
    assert [job.id for job in await listed(site, state="failed", queue="app")] == [found[2].id]
    assert [job.id for job in await listed(site, function="notes.later")] == [found[0].id]
    older = await site.do(lambda fw: site.site.jobs.listed(fw, JobFilter(), 1, found[0].id))
    assert older == [found[1]]


async def test_retry_makes_a_failed_job_due_with_all_its_attempts(site: VirtualSite) -> None:
    number = await failed_job(site)
    await site.do(lambda fw: site.site.jobs.retry(fw, number))
    (job,) = await listed(site)
    assert (job.state, job.attempts, job.due) == ("ready", 0, site.site.clock.now())
    assert await audited(site) == [("job.retry", str(number))]


async def test_cancel_removes_a_job_and_leaves_an_audit_event(
    site: VirtualSite,
) -> None:
    number = await failed_job(site)
    await site.do(lambda fw: site.site.jobs.cancel(fw, number))
    assert await listed(site) == []
    assert await audited(site) == [("job.cancel", str(number))]
    with pytest.raises(NotFoundError):
        await site.do(lambda fw: site.site.jobs.cancel(fw, number))


async def test_job_in_progress_cannot_be_retried_or_cancelled(site: VirtualSite) -> None:
    def work(tx: Tx) -> int:
        number = write(tx)
        jobs.claim(tx, "app", "", 1, LEASE_MS, "token")
        return number

    number = await site.site.store.write(work)
    control = site.site.jobs
    for act in (control.retry, control.cancel):
        with pytest.raises(ConflictError, match="in progress"):
            await site.do(partial(act, number=number))
    assert await site.do(lambda fw: control.cancel_matching(fw, JobFilter())) == (0, None)


async def test_finish_of_a_cancelled_job_has_no_effect(site: VirtualSite) -> None:
    def begin(tx: Tx) -> int:
        number = write(tx)
        jobs.claim(tx, "app", "", 1, -1, "token")
        return number

    number = await site.site.store.write(begin)
    await site.do(lambda fw: site.site.jobs.cancel(fw, number))
    assert not await site.site.store.write(lambda tx: jobs.finish(tx, number, "token"))


async def test_mail_record_follows_retry_and_cancel_of_its_job(site: VirtualSite) -> None:
    await site.site.store.write(
        lambda tx: site.site.mail_queue.to_user(
            tx, Template.PASSWORD_CHANGED, "Administrator", owner="Administrator"
        )
    )
    (mail,) = await listed(site, queue="mail")

    async def record() -> tuple[Any, ...]:
        (row,) = await site.sql("SELECT status, attempts, error FROM doc_email_delivery")
        return row

    def give_up(tx: Tx) -> None:
        (job,) = jobs.claim(tx, "mail", "", 1, LEASE_MS, "token")
        jobs.fail(tx, job.id, "token", "refused: no")

    await site.site.store.write(give_up)
    await site.do(
        lambda fw: fw.db.sql("UPDATE doc_email_delivery SET status = 'Failed', attempts = 10")
    )
    await site.do(lambda fw: site.site.jobs.retry(fw, mail.id))
    assert (await record())[:2] == ("Queued", 0)
    await site.do(lambda fw: site.site.jobs.cancel(fw, mail.id))
    assert await record() == ("Failed", 0, "cancelled: by Administrator.")


async def test_retry_matching_leaves_one_audit_event(site: VirtualSite) -> None:
    def work(tx: Tx) -> None:
        for _ in range(3):
            fail(tx, write(tx))
        write(tx, "notes.other", next_at=tx.now + 5000)

    await site.site.store.write(work)
    job_filter = JobFilter(state="failed", function=REPORT)
    assert await site.do(lambda fw: site.site.jobs.retry_matching(fw, job_filter)) == (3, None)
    assert await site.do(lambda fw: site.site.jobs.retry_matching(fw, job_filter)) == (0, None)
    assert [job.state for job in await listed(site)] == ["scheduled", "ready", "ready", "ready"]
    assert await audited(site) == [("job.retry", "")]


async def test_retry_matching_retries_job_that_fails_again_once(
    site: VirtualSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever repeats the call would never end otherwise (O-222)."""
    monkeypatch.setattr("fw_actors.ops.queued_jobs.MAX_CHANGED_JOBS", 2)
    store, control = site.site.store, site.site.jobs
    numbers = [await failed_job(site) for _ in range(3)]

    def fail_again(tx: Tx) -> None:
        for number in numbers[1:]:
            fail(tx, number)

    first = await site.do(lambda fw: control.retry_matching(fw, JobFilter()))
    assert (first.changed, first.next) == (2, numbers[1])
    await store.write(fail_again)
    last = await site.do(lambda fw: control.retry_matching(fw, JobFilter(), first.next))
    assert last == (1, None)
    assert [job.state for job in await listed(site)] == ["failed", "failed", "ready"]


@pytest.mark.parametrize("act", ["retry_matching", "cancel_matching"])
async def test_change_of_many_jobs_is_refused_after_rename_of_their_user(
    site: VirtualSite, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """Whoever repeats the call would take it for complete otherwise (O-223)."""
    monkeypatch.setattr("fw_actors.ops.queued_jobs.MAX_CHANGED_JOBS", 2)
    await site.do(lambda fw: fw.new_doc("User", name="ann", email="ann@x.test", roles=[]).insert())
    for _ in range(3):
        await failed_job(site, user="ann")
    change = partial(getattr(site.site.jobs, act), filters=JobFilter(user="ann"))
    first = await site.do(change)
    await site.do(lambda fw: fw.get_doc("User", "ann").rename("anna"))
    with pytest.raises(ConflictError, match="ann was renamed or deleted"):
        await site.do(partial(change, before=first.next))
    renamed = partial(getattr(site.site.jobs, act), filters=JobFilter(user="anna"))
    assert await site.do(partial(renamed, before=first.next)) == (1, None)


async def test_change_of_all_jobs_of_deleted_user_is_complete(
    site: VirtualSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`next` is null if no further jobs match, also after a full batch (O-223)."""
    monkeypatch.setattr("fw_actors.ops.queued_jobs.MAX_CHANGED_JOBS", 2)
    for _ in range(4):
        await failed_job(site, user="gone")
    change = partial(site.site.jobs.cancel_matching, filters=JobFilter(user="gone"))
    first = await site.do(change)
    assert first.next is not None
    assert await site.do(partial(change, before=first.next)) == (2, None)


@pytest.mark.parametrize("field", ["queue", "state", "function", "user"])
async def test_change_of_many_jobs_refuses_empty_filter(site: VirtualSite, field: str) -> None:
    """An unset variable must not select all jobs (O-223)."""
    await failed_job(site)
    with pytest.raises(ValidationError) as refused:
        await site.do(lambda fw: site.site.jobs.cancel_matching(fw, JobFilter(**{field: ""})))
    assert refused.value.extra["field"] == field
    assert len(await listed(site)) == 1


async def test_job_operations_require_an_unscoped_system_manager(site: VirtualSite) -> None:
    number = await failed_job(site)
    await site.do(
        lambda fw: fw.new_doc("User", name="wendy", email="wendy@x.test", roles=[]).insert()
    )
    control = site.site.jobs
    for act in (
        lambda fw: control.listed(fw, JobFilter()),
        control.functions,
        lambda fw: control.job(fw, number),
        lambda fw: control.retry(fw, number),
        lambda fw: control.retry_matching(fw, JobFilter()),
        lambda fw: control.cancel(fw, number),
        lambda fw: control.cancel_matching(fw, JobFilter()),
    ):
        with pytest.raises(PermissionDeniedError):
            await site.site.write("wendy", act)


async def test_job_list_names_a_bad_filter_or_limit(site: VirtualSite) -> None:
    control = site.site.jobs
    for field, job_filter, limit in (
        ("queue", JobFilter(queue="webhook"), 1),
        ("state", JobFilter(state="done"), 1),
        ("limit", JobFilter(), 501),
    ):
        with pytest.raises(BadRequestError) as refused:
            await site.do(partial(control.listed, filters=job_filter, limit=limit))
        assert refused.value.extra["field"] == field


async def test_job_list_seeks_its_queues_in_the_index(site: VirtualSite) -> None:
    def explained(fw: Any) -> list[Any]:
        return accesses(fw.tx, lambda: site.site.jobs.listed(fw, JobFilter(state="failed")))

    found = [each for each in await site.do(explained) if each.table == "fw_job"]
    assert found
    assert all("queue" in each.sought for each in found), found


async def test_jobs_of_apps_are_read_in_the_order_of_the_index(site: VirtualSite) -> None:
    """A bulk change reads its jobs in the writer's transaction: it must not sort all of them."""

    def explained(fw: Any) -> list[Any]:
        return accesses(fw.tx, lambda: site.site.jobs.retry_matching(fw, JobFilter(queue="app")))

    found = await site.do(explained)
    sorts = await site.site.store.read(lambda tx: tx.locks_rows)  # PostgreSQL: no write waits
    sought = [each.sought for each in found if each.table == "fw_job"]
    assert any(columns >= {"queue"} | (set() if sorts else {"subject"}) for columns in sought)
    assert sorts or not any("FOR ORDER BY" in each.step for each in found), found


async def test_job_list_merges_queues_up_to_the_limit(site: VirtualSite) -> None:
    def work(tx: Tx) -> list[int]:
        return [
            jobs.enqueue_numbered(tx, queue=queue, function="any", subject=subject)
            for queue, subject in (("mail", "b"), ("app", ""), ("mail", "a"), ("app", ""))
        ]

    numbers = await site.site.store.write(work)
    found = await site.do(lambda fw: site.site.jobs.listed(fw, JobFilter(), limit=3))
    assert [job.id for job in found] == numbers[:0:-1]
