"""`fw webhooks emit`: one event, and files of events (C-130, C-131)."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import Any

import pytest

from fw_actors.errors import OverloadedError
from fw_actors.webhooks.events import CustomEvents
from fw_cli.output import REFUSALS_SHOWN
from tests.fw_cli.conftest import CommandLine
from tests.fw_cli.webhook_kit import make_hook


@pytest.fixture
def hook(fw: CommandLine) -> str:
    return make_hook(fw, "https://example.test/hook")


def deliveries(fw: CommandLine) -> list[dict[str, Any]]:
    script = 'fw.db.sql("SELECT name, key, payload FROM doc_webhook_delivery ORDER BY name")'
    rows: list[dict[str, Any]] = fw.json("eval", script)
    return rows


def write_events(fw: CommandLine, count: int, name: str = "events.jsonl") -> str:
    lines = [{"name": "a.b", "data": {"n": n}, "key": f"k{n}"} for n in range(count)]
    (fw.folder / name).write_text("\n".join(map(json.dumps, lines)) + "\n")
    return name


def test_emit_queues_one_event_and_prints_its_deliveries(fw: CommandLine, hook: str) -> None:
    printed = fw.done("webhooks", "emit", "a.b", "--data", '{"n": 1}', "--key", "k").split()
    (stored,) = deliveries(fw)
    assert (printed, stored["key"]) == ([stored["name"]], "k")
    assert json.loads(stored["payload"])["data"] == {"n": 1}
    assert "received" in fw.refused("webhooks", "emit", "a.b", "--key", "k")


def test_emit_reports_missing_subscription(fw: CommandLine) -> None:
    assert fw.done("webhooks", "emit", "a.b") == "No Webhook subscribes to it.\n"
    assert fw.json("webhooks", "emit", "a.b", "--json") == {"deliveries": []}


def test_emit_suggests_similar_subscribed_event(fw: CommandLine, hook: str) -> None:
    fw.done("webhooks", "add", "http://127.0.0.1:9/", "--event", "order.paid")
    said = fw.done("webhooks", "emit", "order.piad")
    assert said == "No Webhook subscribes to it. Did you mean order.paid?\n"
    fw.done("webhooks", "add", "http://127.0.0.1:9/", "--event", "gone.home", "--name", "gone")
    fw.done("webhooks", "disable", "gone")
    assert fw.done("webhooks", "emit", "gone.hom") == "No Webhook subscribes to it.\n"


def test_emit_names_the_switch_that_keeps_events_from_subscribed_webhooks(
    fw: CommandLine, hook: str
) -> None:
    """B-61."""
    write_events(fw, 2)
    off = "FW_WEBHOOKS is off: no delivery was queued.\n"
    assert fw.done("webhooks", "emit", "a.b", FW_WEBHOOKS="off") == off
    of_file = fw.done("webhooks", "emit", "--file", "events.jsonl", FW_WEBHOOKS="off")
    assert of_file == f"Emitted 2 events, 0 deliveries.\n{off}"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("a.b", "--data", "{"), "--data is not valid JSON"),
        (("a.b", "--data", ""), "--data is not valid JSON"),
        (("a.b", "--data", "[]"), "data must be an object"),
        (("a.b", "--data", "null"), "data must be an object"),
        (("a.b", "--data", '{"a": [{"b": 1, "b": 2}]}'), "A key occurs twice in one object."),
        (("doc.x",), "reserved"),
    ],
)
def test_emit_reports_invalid_input(fw: CommandLine, arguments: tuple[str, ...], part: str) -> None:
    assert part in fw.refused("webhooks", "emit", *arguments)


def test_emit_reports_missing_file(fw: CommandLine) -> None:
    refused = fw.refused("webhooks", "emit", "--file", "missing.jsonl")
    assert "missing.jsonl cannot be read" in refused


@pytest.mark.parametrize(
    "arguments",
    [(), ("a.b", "--file", "x"), ("--file", "x", "--key", "k"), ("--file", "x", "--data", "{}")],
)
def test_emit_takes_one_event_or_a_file(fw: CommandLine, arguments: tuple[str, ...]) -> None:
    assert fw.run("webhooks", "emit", *arguments).exit_code == 2


def test_emit_file_queues_each_line_in_order(fw: CommandLine, hook: str) -> None:
    """A file of several transactions is emitted whole (C-131)."""
    report = fw.json("webhooks", "emit", "--file", write_events(fw, 1203), "--json")
    assert report == {
        "emitted": 1203, "deliveries": 1203, "known": 0, "refused": [], "without_key": 0,
    }  # fmt: skip
    assert [row["key"] for row in deliveries(fw)] == [f"k{n}" for n in range(1203)]


def test_emit_file_may_begin_with_a_byte_order_mark(fw: CommandLine, hook: str) -> None:
    file = fw.folder / write_events(fw, 2)
    file.write_text(file.read_text(), encoding="utf-8-sig")
    assert fw.done("webhooks", "emit", "--file", "events.jsonl") == (
        "Emitted 2 events, 2 deliveries.\n"
    )


def test_emit_file_skips_events_emitted_earlier(fw: CommandLine, hook: str) -> None:
    """An interrupted file is completed by a second run (C-131)."""
    fw.done("webhooks", "emit", "--file", write_events(fw, 5))
    output = fw.done("webhooks", "emit", "--file", write_events(fw, 8))
    assert output.splitlines() == [
        "Emitted 3 events, 3 deliveries.",
        "Skipped 5 events whose key was emitted before.",
    ]
    assert len(deliveries(fw)) == 8


def test_emit_file_names_refused_lines_and_emits_the_others(fw: CommandLine, hook: str) -> None:
    event = '{"name": "a.b", "data": {}'
    too_long = "x" * (2**20 + 1)
    lines = [event + "}", "", "no json", "[]", '{"name": "a.b"}', too_long, event + ', "key": "k"}']
    (fw.folder / "events.jsonl").write_text("\n".join(lines))
    result = fw.run("webhooks", "emit", "--file", "events.jsonl")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "Emitted 2 events, 2 deliveries.",
        "Without a key: 1 event; a second run emits them again.",
        "Line 3: A line must be a JSON object.",
        "Line 4: A line must be a JSON object.",
        "Line 5: An event must be {name, data, reference?, key?}.",
        "Line 6: A line must have at most 1024 KiB.",
    ]
    assert "4 events were refused" in result.stderr
    assert len(deliveries(fw)) == 2


def test_emit_file_refuses_line_with_duplicate_key(fw: CommandLine, hook: str) -> None:
    """Over HTTP it is refused as well (C-131)."""
    line = '{"name": "a.b", "data": {"n": 1, "n": 2}}\n'
    (fw.folder / "events.jsonl").write_text(line)
    result = fw.run("webhooks", "emit", "--file", "events.jsonl")
    assert result.exit_code == 1
    assert "Line 1: A key occurs twice in one object." in result.stdout
    assert deliveries(fw) == []


def test_emit_file_refuses_lines_that_are_no_text_or_nested_too_deeply(
    fw: CommandLine, hook: str
) -> None:
    lines = [b"\xff", b"[" * 100_000, b'"\xff"', b" \t", b"x" * (2**20 + 1)]
    (fw.folder / "events.jsonl").write_bytes(b"\n".join(lines))
    report = json.loads(fw.run("webhooks", "emit", "--file", "events.jsonl", "--json").stdout)
    no_object = "A line must be a JSON object."
    assert report["refused"] == [
        {"line": 1, "error": no_object},
        {"line": 2, "error": no_object},
        {"line": 3, "error": no_object},
        {"line": 5, "error": "A line must have at most 1024 KiB."},
    ]


def test_emit_file_counts_refusals_that_it_does_not_print(fw: CommandLine, hook: str) -> None:
    (fw.folder / "events.jsonl").write_text("no json\n" * (REFUSALS_SHOWN + 3))
    said = fw.run("webhooks", "emit", "--file", "events.jsonl").stdout.splitlines()
    assert said[-2].startswith(f"Line {REFUSALS_SHOWN}: ")
    assert said[-1] == "… and 3 more; --json lists all."
    (fw.folder / "events.jsonl").write_text("no json\n" * REFUSALS_SHOWN)
    said = fw.run("webhooks", "emit", "--file", "events.jsonl").stdout.splitlines()
    assert said[-1].startswith(f"Line {REFUSALS_SHOWN}: ")


def test_emit_file_waits_while_the_store_is_busy(
    fw: CommandLine, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may keep the store busy for some seconds (C-131)."""
    emit_many, refusals = CustomEvents.emit_many, [OverloadedError(), OverloadedError()]

    def busy(*args: Any, **more: Any) -> Any:
        if refusals:
            error = refusals.pop()
            error.retry_after = 0
            raise error
        return emit_many(*args, **more)

    monkeypatch.setattr(CustomEvents, "emit_many", busy)
    report = fw.json("webhooks", "emit", "--file", write_events(fw, 3), "--json")
    assert (report["emitted"], len(deliveries(fw)), refusals) == (3, 3, [])


def test_emit_file_reads_standard_input(fw: CommandLine, hook: str) -> None:
    path = fw.folder / write_events(fw, 3)
    with path.open() as lines:
        process = fw.process("webhooks", "emit", "--file", "-", stdin=lines, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "Emitted 3 events, 3 deliveries.\n", "")


def wait_for_deliveries(fw: CommandLine, count: int) -> None:
    deadline = time.monotonic() + 30
    while len(deliveries(fw)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_emit_file_emits_lines_of_a_pipe_as_they_arrive(fw: CommandLine, hook: str) -> None:
    """Although the next line is not complete (C-131). Ctrl-C ends the command at once."""
    process = fw.process("webhooks", "emit", "--file", "-")
    assert process.stdin is not None
    process.stdin.write('{"name": "a.b", "data": {}}\n{"name"')
    process.stdin.flush()
    wait_for_deliveries(fw, 1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) != 0
    out, err = process.communicate()
    assert (out, err.splitlines()[0]) == ("", "Interrupted after line 1: 1 event emitted.")
    assert "Fatal" not in err


def test_emit_file_uses_webhooks_saved_while_a_pipe_is_silent(fw: CommandLine) -> None:
    """With `ops.subscriptionRefresh`, a second after they were saved (B-49)."""
    policy = {"site": {"name": "test"}, "ops": {"subscriptionRefresh": True}}
    (fw.folder / "fw.json").write_text(json.dumps(policy))
    fw.done("webhooks", "add", "http://127.0.0.1:9/", "--event", "a.c")
    process = fw.process("webhooks", "emit", "--file", "-")
    assert process.stdin is not None
    process.stdin.write('{"name": "a.c", "data": {}, "key": "1"}\n')
    process.stdin.flush()
    wait_for_deliveries(fw, 1)
    make_hook(fw, "https://example.test/hook")
    time.sleep(1.0)
    out, err = process.communicate('{"name": "a.b", "data": {}, "key": "2"}\n', timeout=60)
    assert (process.returncode, out, err) == (0, "Emitted 2 events, 2 deliveries.\n", "")


def test_emit_file_with_long_lines_is_emitted_whole(fw: CommandLine, hook: str) -> None:
    """A transaction is bounded by bytes as well (C-131)."""
    lines = [{"name": "a.b", "data": {"n": n, "text": "x" * 1_000_000}} for n in range(10)]
    (fw.folder / "long.jsonl").write_text("\n".join(map(json.dumps, lines)))
    report = fw.json("webhooks", "emit", "--file", "long.jsonl", "--json")
    assert (report["emitted"], report["deliveries"]) == (10, 10)
    assert [json.loads(row["payload"])["data"]["n"] for row in deliveries(fw)] == list(range(10))


def test_emit_file_goes_on_after_part_without_events(fw: CommandLine, hook: str) -> None:
    """Refused and empty lines of more than 4 MiB end nothing; many refusals are counted (C-131)."""
    event = json.dumps({"name": "a.b", "data": {}})
    lines = [event, "x" * (5 * 2**20), *["no json"] * 1_200, " " * (5 * 2**20), event]
    (fw.folder / "holes.jsonl").write_text("\n".join(lines))
    result = fw.run("webhooks", "emit", "--file", "holes.jsonl", "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["emitted"], report["refusals"]) == (1, 2, 1_202)
    assert len(report["refused"]) == 1_000
    assert "1,202 events were refused" in result.stderr
    assert len(deliveries(fw)) == 2


def test_emit_file_is_split_for_many_webhooks(fw: CommandLine) -> None:
    """A part that would record too many deliveries is emitted in smaller ones (B-88)."""
    count = 45
    fw.done(
        "eval",
        "[fw.new_doc('Webhook', event_type='Custom', custom_event='a.b', secret='s' * 32,"
        f" url='https://example.test/').insert() for n in range({count})]",
        "--commit",
    )
    report = fw.json("webhooks", "emit", "--file", write_events(fw, 500), "--json")
    assert (report["emitted"], report["deliveries"]) == (500, 500 * count)


def test_emit_file_that_fails_prints_last_emitted_line(
    fw: CommandLine, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line after which to go on is printed, for events without keys (C-131)."""
    monkeypatch.setattr("fw_cli.emitting.OVERLOADED_ATTEMPTS", 0)
    script = (
        "CREATE TRIGGER full BEFORE INSERT ON doc_webhook_delivery WHEN NEW.key = 'k700'"
        " BEGIN SELECT RAISE(ABORT, 'no space'); END"
    )
    fw.done("eval", f'fw.db.sql("{script}")', "--commit")
    result = fw.run("webhooks", "emit", "--file", write_events(fw, 1203))
    assert result.exit_code == 1
    assert "Interrupted after line 500: 500 events emitted." in result.stderr


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("on", "given", "stored"),
    [(True, TRACE, f"{TRACE} a=1"), (False, TRACE, ""), (True, "nonsense", None)],
)
def test_emit_takes_the_trace_of_its_environment(
    fw: CommandLine, hook: str, on: bool, given: str, stored: str | None
) -> None:
    """Events continue the trace of a script, where `ops.traceContext` is on (B-422)."""
    file = fw.folder / "fw.json"
    policy = json.loads(file.read_text())
    policy.setdefault("ops", {})["traceContext"] = on
    file.write_text(json.dumps(policy))
    fw.done("webhooks", "emit", "a.b", TRACEPARENT=given, TRACESTATE="a=1")
    script = 'fw.db.sql("SELECT trace_context FROM doc_webhook_delivery")'
    [row] = fw.json("eval", script)
    if stored is None:
        assert row["trace_context"].endswith("-00")
    else:
        assert row["trace_context"] == stored
