"""The attempts of all deliveries as one list (O-302, O-303)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from fw_actors.errors import BadRequestError, PermissionDeniedError
from fw_actors.webhooks import attempt_list
from fw_actors.webhooks.attempt_list import (
    AttemptCursor,
    AttemptFilter,
    AttemptPage,
    AttemptResult,
    attempt_filter,
    attempt_page,
    read_cursor,
)
from tests.fw_actors.virtual_site_kit import VirtualSite
from tests.plans import accesses, unsought

pytestmark = pytest.mark.usefixtures("on_both_stores")

FAILED, SENT = AttemptResult.FAILED, AttemptResult.SENT
BUSY, REFUSED = "status: the receiver answered 503.", "status: the receiver answered 410."


class RecordedAttempts:
    """A site with two Webhooks and some attempts; times count from 1,000."""

    def __init__(self, site: VirtualSite) -> None:
        self.site = site
        self.hooks: list[str] = []
        self.names: list[str] = []

    async def fill(self) -> None:
        for event in ("note.a", "note.b"):
            self.hooks.append(await self.site.subscribe(event))
        for event in ("note.a", "note.a", "note.b"):
            emitted = await self.site.do(partial(_emit, event))
            self.names += emitted["deliveries"]
        await self.last(0, "Sent", 2, 1030, 200, None)
        await self.earlier(0, 1, "Retrying", 1, 1010, 503, BUSY)
        await self.last(1, "Failed", 1, 1020, 410, REFUSED)
        await self.last(2, "Sent", 1, 1040, 204, None)

    async def last(self, n: int, status: str, number: int, at: int, code: int, error: Any) -> None:
        await self.site.sql(
            "UPDATE doc_webhook_delivery SET status = :s, attempts = :n, last_attempt = :at,"
            " response_status = :c, error = :e, duration_ms = 5 WHERE name = :d",
            s=status, n=number, at=at, c=code, e=error, d=self.names[n],
        )  # fmt: skip

    async def earlier(
        self, n: int, position: int, status: str, number: int, at: int, code: int, error: Any
    ) -> None:
        await self.site.sql(
            "INSERT INTO fw_delivery_attempt (delivery, position, number, status, last_attempt,"
            " response_status, error, duration_ms, webhook) SELECT name, :p, :n, :s, :at, :c, :e,"
            " 5, webhook FROM doc_webhook_delivery WHERE name = :d",
            p=position, n=number, s=status, at=at, c=code, e=error, d=self.names[n],
        )  # fmt: skip

    async def page(
        self, limit: int = 10, before: Any = None, user: str = "Administrator", **criteria: Any
    ) -> AttemptPage:
        chosen_filter = AttemptFilter(**criteria)
        return await self.site.do(lambda fw: attempt_page(fw, chosen_filter, limit, before), user)

    async def times(self, **criteria: Any) -> list[int]:
        return [each.cursor.ended - 1000 for each in (await self.page(**criteria)).attempts]


def _emit(event: str, fw: Any) -> Any:
    return fw.webhooks.emit(event, {})


@pytest.fixture
async def log(site: VirtualSite) -> RecordedAttempts:
    log = RecordedAttempts(site)
    await log.fill()
    return log


async def test_attempt_page_lists_newest_attempts_first(log: RecordedAttempts) -> None:
    """Each attempt has its delivery, number, trigger and result (O-302)."""
    newest, second, third, oldest = (await log.page()).attempts
    assert (newest.cursor.delivery, newest.event, newest.webhook) == (
        log.names[2], "note.b", log.hooks[1],
    )  # fmt: skip
    assert (second.number, second.trigger, second.status, second.error) == (
        2, "retry", "Sent", None,
    )  # fmt: skip
    assert (third.response_status, third.error, third.duration_ms) == (410, REFUSED, 5)
    assert (oldest.cursor, oldest.trigger, oldest.status) == (
        AttemptCursor(1010, log.names[0], 1), "event", "Retrying",
    )  # fmt: skip


async def test_attempt_filter_matches_webhook_result_response_error_and_time(
    log: RecordedAttempts,
) -> None:
    """The filters can be combined (O-302)."""
    first, other = log.hooks
    assert await log.times(webhook=first) == [30, 20, 10]
    assert await log.times(webhook=other) == [40]
    assert await log.times(result=FAILED) == [20, 10]
    assert await log.times(result=SENT) == [40, 30]
    assert await log.times(result=SENT, webhook=first) == [30]
    assert await log.times(response_status=503) == [10]
    assert await log.times(response_status=204) == [40]
    assert await log.times(error="ANSWERED 4") == [20]
    assert await log.times(error="%") == []
    assert await log.times(since=1020, until=1040) == [30, 20]
    assert await log.times(webhook="none") == []


async def test_attempt_filter_finds_error_with_upper_case_letter_beyond_ascii(
    log: RecordedAttempts,
) -> None:
    """O-303: the stores leave such a letter as it is, and so must the pattern."""
    error = "cancelled: Özge cancelled this delivery."
    await log.last(1, "Failed", 1, 1020, 410, error)
    assert await log.times(error="Özge CANCELLED") == [20]


async def test_attempt_page_continues_where_previous_page_ended(log: RecordedAttempts) -> None:
    """Attempts that ended in the same millisecond are neither left out nor repeated (O-303)."""
    await log.earlier(1, 7, "Retrying", 1, 1020, 503, BUSY)
    await log.earlier(1, 8, "Retrying", 2, 1020, 503, BUSY)
    await log.earlier(2, 3, "Retrying", 1, 1020, 503, BUSY)
    whole = [each.cursor for each in (await log.page()).attempts]
    for criteria in ({}, {"error": "answered"}, {"result": FAILED}):
        all_of = [each.cursor for each in (await log.page(**criteria)).attempts]
        found: list[AttemptCursor] = []
        before = None
        while True:
            page = await log.page(1, before, **criteria)
            found += [each.cursor for each in page.attempts]
            before = page.next
            if before is None:
                break
        assert found == all_of
    assert len(set(whole)) == 7


@pytest.mark.parametrize(("limit", "count", "more"), [(3, 3, True), (4, 4, False), (500, 4, False)])
async def test_attempt_page_has_at_most_limit_attempts(
    log: RecordedAttempts, limit: int, count: int, more: bool
) -> None:
    """A next page is named only if it has attempts (O-303)."""
    page = await log.page(limit)
    assert (len(page.attempts), page.next is not None) == (count, more)


async def test_attempt_page_is_refused_to_scoped_manager(log: RecordedAttempts) -> None:
    """A user with access scopes sees no delivery, even as System Manager (A-314)."""
    for name in ("ann", "bob"):
        await log.site.add_account(name, "System Manager", password=None)
    scope = {"user": "bob", "allow": "Role", "for_value": "System Manager"}
    await log.site.do(lambda fw: fw.new_doc("User Permission", **scope).insert())
    assert len((await log.page(user="ann")).attempts) == 4
    with pytest.raises(PermissionDeniedError):
        await log.page(user="bob")


async def test_attempt_search_beyond_indexes_covers_newest_attempts(
    log: RecordedAttempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page says that only the newest attempts were searched (O-303)."""
    monkeypatch.setattr(attempt_list, "MAX_SEARCHED_ROWS", 1)
    page = await log.page(webhook=log.hooks[0], result=SENT)
    assert (page.attempts, page.newest_only) == ([], True)
    page = await log.page(webhook=log.hooks[0], result=SENT, until=1040)
    assert ([each.cursor.ended for each in page.attempts], page.newest_only) == ([1030], False)
    assert not (await log.page()).newest_only


@pytest.mark.parametrize(
    "criteria",
    [
        {},
        {"webhook": "w"},
        {"result": FAILED},
        {"webhook": "w", "result": FAILED, "since": 5},
        {"result": SENT, "webhook": "w"},
        {"error": "late", "response_status": 503},
    ],
)
async def test_attempt_page_reads_by_indexes_only(
    log: RecordedAttempts, criteria: dict[str, Any]
) -> None:
    """No table is scanned as a whole (O-303)."""

    def explained(fw: Any) -> Any:
        chosen_filter = AttemptFilter(**criteria)
        return accesses(
            fw.tx, lambda: attempt_page(fw, chosen_filter, 50, AttemptCursor(9, "d", 1))
        )

    found = await log.site.do(explained)
    by_time = {
        "doc_webhook_delivery": "last_attempt name status",
        "fw_delivery_attempt": "last_attempt",
    }
    whole = unsought(found, **by_time)
    # PostgreSQL says so of an index by time, of which as many are counted as are searched.
    assert [step for step in whole if "last_attempt IS NOT NULL" not in step] == []
    assert not any("Seq Scan" in each.step for each in found), found


async def test_attempt_page_shows_replayed_attempt_once(log: RecordedAttempts) -> None:
    """The last attempt before a replay is an earlier one from then on (O-302)."""
    site = log.site.site
    await log.site.do(lambda fw: site.replays.replay(fw, log.names[1]))
    assert await log.times(webhook=log.hooks[0]) == [30, 20, 10]
    assert await log.times(error="410") == [20]


async def test_attempts_follow_renamed_webhook(log: RecordedAttempts) -> None:
    """A rename is followed by the attempts (B-30)."""
    await log.site.do(lambda fw: fw.get_doc("Webhook", log.hooks[0]).rename("billing"))
    assert await log.times(webhook="billing", result=FAILED) == [20, 10]


async def test_attempt_page_requires_permission_to_list_deliveries(log: RecordedAttempts) -> None:
    await log.site.add_account("wendy")
    with pytest.raises(PermissionDeniedError):
        await log.page(user="wendy")


@pytest.mark.parametrize(
    ("chosen_filter", "field"),
    [
        ({"result": "late"}, "result"),
        ({"code": 99}, "responseStatus"),
        ({"code": 1000}, "responseStatus"),
        ({"since": "soon"}, "since"),
    ],
)
def test_attempt_filter_refuses_invalid_values_with_field(chosen_filter: Any, field: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        attempt_filter(**chosen_filter)
    assert refused.value.extra["field"] == field


async def test_attempt_page_refuses_values_out_of_range(log: RecordedAttempts) -> None:
    for criteria, limit in (({"error": "x" * 201}, 10), ({}, 0), ({}, 501)):
        with pytest.raises(BadRequestError, match="must"):
            await log.page(limit, **criteria)


@pytest.mark.parametrize(
    "text", ["", "1", "1.2", "x.2.d", "1.-2.d", "1.2.", f"{'9' * 16}.1.d", "\xb2.1.d"]
)
def test_attempt_place_round_trips_and_refuses_malformed_text(text: str) -> None:
    cursor = AttemptCursor(17, "msg_a.b", 3)
    assert read_cursor(str(cursor)) == cursor
    with pytest.raises(BadRequestError):
        read_cursor(text)


def test_attempt_filter_accepts_limits_and_ignores_empty_texts() -> None:
    """O-302: a status has three digits; a form sends its empty fields too."""
    for code in (100, 999):
        assert attempt_filter(code=code).response_status == code
    empty = attempt_filter(webhook="", result="", error="", since="", until="")
    assert empty == AttemptFilter()
