"""The rows of the console's tables, computed from a view of the service by pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

TableRow = tuple[str, tuple[str, ...]]
"""A row's key, and its cells."""

View = Mapping[str, Any]
"""A `ConsoleView` as JSON."""


@dataclass(frozen=True)
class Tab:
    """A tab: its columns, the function for its rows, and the text of an empty table."""

    id: str
    title: str
    columns: tuple[str, ...]
    rows: Callable[[View], Iterator[TableRow]]
    nothing: str


def now_of(view: View) -> tuple[float, float, float, float]:
    """Return deliveries per second, attempts in flight, waiting events, messages per second."""
    waiting = {queue[0]: queue[1] for queue in view["store"]["queues"]}
    return (
        sum(view["rates"].values()),
        view["inFlight"],
        waiting.get("webhook", 0),
        round(sum(node["rate"] for node in view["tree"]), 1),
    )


def _tree(view: View) -> Iterator[TableRow]:
    for node in view["tree"]:
        full = node["kind"] == "actor" and node["capacity"]
        cells = (
            "  " * node["level"] + node["name"],
            node["state"],
            f"{node['rate']:g}",
            str(node["restarts"]),
            node["lastError"],
            f"{node['depth']} of {node['capacity']}" if full else str(node["depth"]),
            str(node["alive"]) if node["kind"] == "pool" else "",
            str(node["handled"]),
            str(node["failed"]),
        )
        yield node["path"], cells


def _receivers(view: View) -> Iterator[TableRow]:
    for each in view["receivers"]:
        slots = (each["inFlight"], each["window"], each["limit"])
        waiting = f"{each['waiting']}{' or more' if each['moreWait'] else ''}"
        cells = (each["origin"], each["health"], waiting, _failures(view, each), *map(str, slots))
        yield each["origin"], cells


def _failures(view: View, receiver: Mapping[str, Any]) -> str:
    if not receiver["failures"]:
        return ""
    since = _when(view, receiver["failingSince"])
    return f"{receiver['failures']} in a row since {since}: {receiver['lastError']}"


def _paused(view: View) -> Iterator[TableRow]:
    for each in view["store"].get("pausedWebhooks", ()):
        until = each["until"]
        end = "it is resumed" if until is None else _day_and_clock(until)
        yield each["webhook"], (_label(view, each), _day_and_clock(each["since"]), end)


def _causes(view: View) -> Iterator[TableRow]:
    for each in view["store"]["failures"]:
        times = (_day_and_clock(each["first"]), _day_and_clock(each["last"]))
        cells = (each["label"], each["error"] or "none recorded", str(each["deliveries"]), *times)
        yield f"{each['webhook']}\n{each['error']}", cells  # no name has a line break


def _jobs(view: View) -> Iterator[TableRow]:
    for job in view["store"]["jobs"]:
        due = "never" if job["due"] is None else _day_and_clock(job["due"])
        function = f"mail {job['function']}" if job["subject"] else job["function"]
        cells = (str(job["id"]), job["state"], function, due, str(job["attempts"]), job["error"],
                 job["user"])  # fmt: skip
        yield str(job["id"]), cells


def _senders(view: View) -> Iterator[TableRow]:
    for each in view["store"]["senders"]:
        here = each["name"] in view["processes"]
        where = "this service" if here else "another process: actions here do not affect it"
        yield each["name"], (each["name"], where, str(each["attempts"]), _when(view, each["last"]))


def _queues(view: View) -> Iterator[TableRow]:
    for queue, *numbers in view["store"]["queues"]:
        yield queue, (queue, *(f"{number:g}" for number in numbers))


def _deliveries(view: View) -> Iterator[TableRow]:
    for each in view["store"]["inFlight"]:
        yield _delivery(each, f"leased until {_when(view, each['at'])}")
    for each in view["store"]["upcoming"]:
        due = "waiting for its receiver"
        if each["at"] > view["at"]:
            due = f"due {_when(view, each['at'])}"
        yield _delivery(each, due)


def _delivery(each: Mapping[str, Any], when: str) -> TableRow:
    facts = (each["event"], each["status"], str(each["attempts"]), when)
    return each["delivery"], (each["delivery"], *facts)


def _failed(view: View) -> Iterator[TableRow]:
    for each in view["store"]["failed"]:
        facts = (each["event"], _label(view, each), _day_and_clock(each["at"]), each["error"])
        yield each["delivery"], (each["delivery"], *facts)


def _label(view: View, each: Mapping[str, Any]) -> str:
    """Return the label of a row's Webhook, or its id if it was deleted."""
    name: str = each["webhook"]
    labels: Mapping[str, str] = view["store"].get("webhookLabels", {})
    return labels.get(name, name)


def _locks(view: View) -> Iterator[TableRow]:
    for lock in view["store"]["locks"]:
        name = lock["identifier"] or f"unknown ({lock['key']})"
        yield lock["key"], (name, lock["account"] or "none", _when(view, lock["until"]))


def _letters(view: View) -> Iterator[TableRow]:
    for number, letter in enumerate(view["lastDeadLetters"]):
        at = _when(view, letter["at"])
        yield str(number), (letter["recipient"], letter["message"], letter["reason"], at)


def _traces(view: View) -> Iterator[TableRow]:
    for trace in view["traces"]:
        for number, each in enumerate(reversed(trace["messages"])):
            text = f"{each['message']}({each['fields']})"
            yield f"{trace['actor']} {number}", (_when(view, each["at"]), trace["actor"], text)


def _when(view: View, ms: int) -> str:
    """Return a time, with its day unless that is the day of the view."""
    day_and_clock = _day_and_clock(ms)
    day, _, clock = day_and_clock.partition(" ")
    return clock if _day_and_clock(view["at"]).startswith(day) else day_and_clock


def _day_and_clock(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


TABS: Final = (
    Tab("tree", "Actors", ("Name", "State", "Per s", "Restarts", "Last error", "Mailbox", "Alive",
                           "Handled", "Failed"), _tree, "No actors are running."),
    Tab("receivers", "Receivers",
        ("Receiver", "Health", "Waiting", "Failures", "In flight", "Slots now", "Limit"),
        _receivers, "No delivery was sent since this process started, and none waits."),
    Tab("paused", "Paused Webhooks", ("Webhook", "Since", "Until"), _paused,
        "No Webhook is paused."),
    Tab("queues", "Queues", ("Queue", "Ready", "Scheduled", "Leased", "Failed", "Oldest (s)"),
        _queues, "The queues are empty."),
    Tab("deliveries", "Deliveries", ("Delivery", "Event", "Status", "Attempts", "When"),
        _deliveries, "No delivery is in flight or waits for an attempt."),
    Tab("causes", "Causes", ("Webhook", "Cause", "Deliveries", "First", "Last"), _causes,
        "No delivery has failed."),
    Tab("failed", "Failed", ("Delivery", "Event", "Webhook", "Last attempt", "Error"), _failed,
        "No delivery has failed."),
    Tab("jobs", "Jobs", ("Job", "State", "Function", "Due", "Attempts", "Last error", "User"),
        _jobs, "No jobs of apps and no mails wait or have failed."),
    Tab("locks", "Lockouts", ("Identifier", "Account", "Until"), _locks,
        "No identifier is locked."),
    Tab("senders", "Processes", ("Process", "Where", "Of the latest", "Last attempt"), _senders,
        "No delivery was sent in the last hour."),
    Tab("letters", "Dead letters", ("Recipient", "Message", "Reason", "When"), _letters,
        "Every message was delivered."),
    Tab("traces", "Traces", ("When", "Actor", "Message"), _traces,
        "Trace an actor (t) to record its messages for a minute."),
)  # fmt: skip
