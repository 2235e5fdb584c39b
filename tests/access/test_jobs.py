"""The operations `jobs.*` over HTTP (O-220 to O-223)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.store import Tx, jobs
from tests.http_site import HttpSite


def fail_two(tx: Tx) -> list[int]:
    numbers = [
        jobs.enqueue_numbered(
            tx, queue="app", function="notes.report", arguments='{"pin": "pin-4711"}'
        )
        for _ in range(2)
    ]
    for job in jobs.claim(tx, "app", "", 2, 60_000, "token"):
        jobs.fail(tx, job.id, "token", "ValueError: no paper")
    return numbers


async def test_jobs_operations_list_retry_and_cancel_failed_jobs(
    site: HttpSite,
) -> None:
    await site.add_account("boss", "System Manager")
    boss = await site.sid("boss")
    first, second = await site.site.store.write(fail_two)
    reply = await site.op("jobs.list", {"state": "failed"}, sid=boss)
    assert "pin-4711" not in str(reply.json)
    assert [
        (job["id"], job["function"], job["error"], job["due"]) for job in reply.json["jobs"]
    ] == [(number, "notes.report", "ValueError: no paper", None) for number in (second, first)]
    assert (await site.op("jobs.cancel", {"job": first}, sid=boss)).json == {"ok": True}
    for body, changed in (({"function": "notes.other"}, 0), ({"function": "notes.report"}, 1)):
        reply = await site.op("jobs.retryMatching", body, sid=boss)
        assert reply.json == {"changed": changed, "next": None}
    (job,) = (await site.op("jobs.list", {}, sid=boss)).json["jobs"]
    assert (job["id"], job["state"] != "failed") == (second, True)
    assert (await site.op("jobs.cancel", {"job": first}, sid=boss)).status == 404


async def test_jobs_operations_require_a_manager_and_name_bad_arguments(site: HttpSite) -> None:
    await site.add_account("ann")
    await site.add_account("boss", "System Manager")
    ann, boss = await site.sid("ann"), await site.sid("boss")
    for name, body in (("list", {}), ("retry", {"job": 1}), ("cancelMatching", {})):
        assert (await site.op(f"jobs.{name}", body, sid=ann)).status == 403
    wrong: tuple[tuple[dict[str, Any], str], ...]
    wrong = (({"limit": 0}, "limit"), ({"state": "done"}, "state"), ({"x": 1}, "x"))
    for body, field in wrong:
        reply = await site.op("jobs.list", body, sid=boss)
        assert (reply.status, reply.json["error"]["extra"]["field"]) == (400, field)


@pytest.mark.parametrize("name", ["retryMatching", "cancelMatching"])
async def test_jobs_that_match_empty_filter_are_not_changed(site: HttpSite, name: str) -> None:
    """The value of an unset variable is refused, as on the command line (C-171, O-223)."""
    await site.add_account("boss", "System Manager")
    boss = await site.sid("boss")
    await site.site.store.write(fail_two)
    reply = await site.op(f"jobs.{name}", {"queue": "app", "user": ""}, sid=boss)
    assert (reply.status, reply.json["error"]["extra"]["field"]) == (422, "user")
    listed = (await site.op("jobs.list", {"user": ""}, sid=boss)).json["jobs"]
    assert [job["state"] for job in listed] == ["failed"] * 2


async def test_client_of_0_2_0_leaves_filters_out_by_empty_texts(site: HttpSite) -> None:
    """Clients and services of 0.2.0 and later work with each other (docs/operating.md)."""
    await site.add_account("boss", "System Manager")
    boss = await site.sid("boss")
    await site.site.store.write(fail_two)
    body = {"queue": "app", "state": "", "function": "", "user": ""}
    agent = [("User-Agent", "fw-client/0.2.0")]
    reply = await site.op("jobs.cancelMatching", body, sid=boss, headers=agent)
    assert (reply.status, reply.json["changed"]) == (200, 2)


JOBS = "/api/method/core.services.jobs.list"


async def test_jobs_list_is_answered_by_get_and_without_a_body(site: HttpSite) -> None:
    """An operation that only reads accepts GET, and no body for `{}` (H-19, H-20)."""
    await site.add_account("boss", "System Manager")
    boss = await site.sid("boss")
    first, second = await site.site.store.write(fail_two)
    page = f"?queue=app&state=failed&function=notes.report&limit=1&before={second}"
    for method, query, found in (
        ("GET", "", [second, first]),
        ("POST", "", [second, first]),
        ("GET", page, [first]),
        ("GET", "?user=ann", []),
    ):
        reply = await site.ask(method, JOBS + query, sid=boss)
        assert reply.status == 200, reply.json
        assert [job["id"] for job in reply.json["jobs"]] == found
    assert (await site.ask("HEAD", JOBS, sid=boss)).status == 200


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=", "limit"),
        ("limit=-1", "limit"),
        ("before=null", "before"),
        ("before=1.5", "before"),
        ("before=9007199254740993", "before"),
        ("state=done", "state"),
        ("queue=webhook", "queue"),
        ("x=1", "x"),
    ],
)
async def test_jobs_list_by_get_names_a_bad_parameter(
    site: HttpSite, query: str, field: str
) -> None:
    """The form of a query is checked like that of a body (H-12, H-18)."""
    await site.add_account("ann")
    await site.add_account("boss", "System Manager")
    reply = await site.ask("GET", f"{JOBS}?{query}", sid=await site.sid("boss"))
    assert (reply.status, reply.json["error"]["extra"]["field"]) == (400, field)
    assert (await site.ask("GET", JOBS, sid=await site.sid("ann"))).status == 403
