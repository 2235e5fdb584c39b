"""The rows of the terminal's console, from a view alone; on the screen: test_console_screen.py."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fw_cli.console_rows import TABS, now_of

NOON = round(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000)
DELIVERY = {"event": "order.paid", "status": "Failed", "attempts": 2}


def clock(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC).astimezone():%H:%M:%S}"


def day_and_clock(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC).astimezone():%Y-%m-%d %H:%M:%S}"


def rows(tab: str, *, store: dict[str, Any] | None = None, **view: Any) -> list[tuple[str, ...]]:
    """Return the cells of a tab's rows; each has as many as the tab has columns."""
    (shown,) = [each for each in TABS if each.id == tab]
    found = list(shown.rows({"at": NOON, "processes": [], "store": store or {}, **view}))
    assert {len(cells) for _, cells in found} <= {len(shown.columns)}
    assert len({key for key, _ in found}) == len(found)
    return [cells for _, cells in found]


def test_totals_are_sums_over_processes_and_actors() -> None:
    view = {
        "rates": {"a": 1.5, "b": 2},
        "inFlight": 3,
        "store": {"queues": [["app", 9, 0], ["webhook", 4, 5]]},
        "tree": [{"rate": 0.25}, {"rate": 2.5}],
    }
    assert now_of(view) == (3.5, 3, 4, 2.8)
    assert now_of({**view, "store": {"queues": []}})[2] == 0


def test_row_of_actor_has_its_mailbox_and_of_pool_its_members() -> None:
    node = {
        "path": "/a", "name": "a", "state": "running", "level": 2, "depth": 3, "capacity": 64,
        "alive": 5, "rate": 0.5, "handled": 7, "failed": 1, "restarts": 2, "lastError": "Oops",
    }  # fmt: skip
    kinds = [
        {**node, "path": f"/{kind}{capacity}", "kind": kind, "capacity": capacity}
        for kind, capacity in (("actor", 64), ("actor", 0), ("pool", 64))
    ]
    start = ("    a", "running", "0.5", "2", "Oops")
    assert rows("tree", tree=kinds) == [
        (*start, "3 of 64", "", "7", "1"),
        (*start, "3", "", "7", "1"),
        (*start, "3", "5", "7", "1"),
    ]


def test_row_of_receiver_has_waiting_deliveries_and_failures() -> None:
    """O-226."""
    receiver = {
        "origin": "a", "health": "failing", "inFlight": 1, "window": 2, "limit": 16, "failures": 3,
        "failingSince": NOON, "lastError": "HTTP 500", "waiting": 1000, "moreWait": True,
    }  # fmt: skip
    well = {**receiver, "origin": "b", "failures": 0, "waiting": 0, "moreWait": False}
    assert rows("receivers", receivers=[receiver, well]) == [
        (
            "a",
            "failing",
            "1000 or more",
            f"3 in a row since {clock(NOON)}: HTTP 500",
            "1",
            "2",
            "16",
        ),
        ("b", "failing", "0", "", "1", "2", "16"),
    ]


def test_row_of_paused_webhook_has_label_and_end() -> None:
    paused = [
        {"webhook": "w1", "since": NOON, "until": None},
        {"webhook": "w2", "since": NOON, "until": NOON + 1000},
    ]
    store = {"pausedWebhooks": paused, "webhookLabels": {"w1": "Shop"}}
    assert rows("paused", store=store) == [
        ("Shop", day_and_clock(NOON), "it is resumed"),
        ("w2", day_and_clock(NOON), day_and_clock(NOON + 1000)),
    ]
    assert rows("paused", store={}) == []


def test_row_of_job_has_function_of_mail_and_time() -> None:
    """O-220."""
    job = {"id": 7, "state": "failed", "function": "f", "subject": None, "due": None,
           "attempts": 10, "error": "Oops", "user": "ann"}  # fmt: skip
    mail = {**job, "id": 8, "function": "invitation", "subject": "Welcome", "due": NOON}
    assert rows("jobs", store={"jobs": [job, mail]}) == [
        ("7", "failed", "f", "never", "10", "Oops", "ann"),
        ("8", "failed", "mail invitation", day_and_clock(NOON), "10", "Oops", "ann"),
    ]


def test_row_of_process_marks_what_actions_do_not_reach() -> None:
    """O-227."""
    senders = [{"name": name, "attempts": 5, "last": NOON} for name in ("here", "there")]
    assert rows("senders", store={"senders": senders}, processes=["here"]) == [
        ("here", "this service", "5", clock(NOON)),
        ("there", "another process: actions here do not affect it", "5", clock(NOON)),
    ]


@pytest.mark.parametrize(
    ("at", "when"),
    [
        (NOON + 1000, f"due {clock(NOON + 1000)}"),
        (NOON, "waiting for its receiver"),
        (NOON - 1000, "waiting for its receiver"),
    ],
)
def test_row_of_upcoming_delivery_has_due_time_or_wait(at: int, when: str) -> None:
    store = {
        "inFlight": [{**DELIVERY, "delivery": "msg_1", "at": NOON + 5000}],
        "upcoming": [{**DELIVERY, "delivery": "msg_2", "at": at}],
    }
    facts = ("order.paid", "Failed", "2")
    assert rows("deliveries", store=store) == [
        ("msg_1", *facts, f"leased until {clock(NOON + 5000)}"),
        ("msg_2", *facts, when),
    ]


def test_row_of_lock_has_identifier_or_key() -> None:
    locks = [
        {"key": "k1", "identifier": "ann", "account": "ann", "until": NOON},
        {"key": "k2", "identifier": "", "account": "", "until": NOON},
    ]
    assert rows("locks", store={"locks": locks}) == [
        ("ann", "ann", clock(NOON)),
        ("unknown (k2)", "none", clock(NOON)),
    ]


def test_rows_of_trace_begin_with_newest_message() -> None:
    messages = [{"at": NOON + n, "message": f"M{n}", "fields": f"n={n}"} for n in range(2)]
    assert rows("traces", traces=[{"actor": "mailer", "messages": messages}]) == [
        (clock(NOON), "mailer", "M1(n=1)"),
        (clock(NOON), "mailer", "M0(n=0)"),
    ]


def test_row_of_cause_has_failures_with_and_without_recorded_error() -> None:
    """O-225."""
    group = {
        "webhook": "w", "label": "Shop", "error": "", "deliveries": 3, "first": NOON,
        "last": NOON + 1000,
    }  # fmt: skip
    times = (day_and_clock(NOON), day_and_clock(NOON + 1000))
    assert rows("causes", store={"failures": [group, {**group, "error": "HTTP 500"}]}) == [
        ("Shop", "none recorded", "3", *times),
        ("Shop", "HTTP 500", "3", *times),
    ]
