"""`webhooks list` (C-115)."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

from fw_actors.documents.handle import Fw
from fw_actors.webhooks import cancellation, erasure
from tests.fw_cli.conftest import CommandLine

MAKE = """
import json
def hook(n):
    doc = fw.new_doc("Webhook", event_type="Custom", custom_event="a.b",
                     secret="whsec_" + "A" * 44, url=f"https://example.test/{n}")
    return doc.insert().name
print(json.dumps([hook(n) for n in range(2)]))
"""


@pytest.fixture
def hooks(fw: CommandLine) -> list[str]:
    """Two webhooks with twelve queued deliveries each."""
    script = fw.folder / "make.py"
    script.write_text(MAKE)
    made: list[str] = json.loads(fw.done("exec", str(script), "--commit"))
    fw.done("eval", '[fw.webhooks.emit("a.b", {"n": n}) for n in range(12)]', "--commit")
    return made


def test_list_prints_twenty_newest_deliveries(fw: CommandLine, hooks: list[str]) -> None:
    rows = fw.json("webhooks", "list", "--json")
    assert len(rows) == 20
    assert set(rows[0]) == {
        "name", "webhook", "event", "status", "attempts", "responseStatus", "creation",
    }  # fmt: skip
    order = [(row["creation"], row["name"]) for row in rows]
    assert order == sorted(order, reverse=True)
    facts = {(row["event"], row["status"], row["attempts"], row["responseStatus"]) for row in rows}
    assert facts == {("a.b", "Queued", 0, None)}


def test_list_filters_by_webhook_status_and_number(fw: CommandLine, hooks: list[str]) -> None:
    rows = fw.json("webhooks", "list", "--json", "--webhook", hooks[1], "--limit", "100")
    assert [row["webhook"] for row in rows] == [hooks[1]] * 12
    assert fw.json("webhooks", "list", "--json", "--status", "Sent") == []
    assert len(fw.json("webhooks", "list", "--json", "--status", "queued", "--limit", "3")) == 3


def test_list_table_prints_full_delivery_names(fw: CommandLine, hooks: list[str]) -> None:
    names = [row["name"] for row in fw.json("webhooks", "list", "--json", "--limit", "2")]
    table = fw.done("webhooks", "list", "--limit", "2")
    assert all(name in table for name in names)
    assert f"example.test/1 ({hooks[1]})" in table, "the Webhook by what people call it (H-203)"


def test_webhook_is_paused_for_duration_and_resumed(fw: CommandLine, hooks: list[str]) -> None:
    """Refusals: B-303."""
    name = hooks[0]
    paused = fw.json("webhooks", "pause", name, "--for", "2h", "--json")
    assert (paused["webhook"], paused["paused"]) == (name, True)
    assert paused["until"]
    assert "until it is resumed" in fw.done("webhooks", "pause", name)
    assert (
        fw.done("webhooks", "resume", name) == f"resumed {name}; its due deliveries are sent now.\n"
    )
    not_paused = f"{name} is not paused; nothing was changed.\n"
    assert fw.done("webhooks", "resume", name) == not_paused
    assert fw.json("webhooks", "resume", name, "--json") == {
        "webhook": name, "paused": False, "since": None, "until": None,
    }  # fmt: skip
    fw.done("webhooks", "pause", name)
    fw.done("webhooks", "disable", name)
    assert fw.json("webhooks", "show", name, "--json")["state"] == "paused"
    assert "its waiting deliveries fail" in fw.done("webhooks", "resume", name)
    refused = fw.run("webhooks", "pause", name, "--for", "0m")
    assert (refused.exit_code, "must be a duration" in refused.stderr) == (2, True)
    refused = fw.run("webhooks", "pause", name, "--for", "9999d")
    assert (refused.exit_code, "must be at most 366d" in refused.stderr) == (2, True)


ATTEMPTED = """
now = fw.tx.now
fw.db.sql(
    "UPDATE doc_webhook_delivery SET status = 'Sent', attempts = 2, last_attempt = :at,"
    " response_status = 200, duration_ms = 7, trace = :trace",
    {"at": now, "trace": "0 0 0 1500 1800000000 v1,AA== 192.0.2.7:443 https://x.test/ here:1"},
)
fw.db.sql(
    "INSERT INTO fw_delivery_attempt (delivery, position, number, status, last_attempt, error)"
    " SELECT name, 1, 1, 'Retrying', :at, 'timeout: late.' FROM doc_webhook_delivery",
    {"at": now - 30000},
)
"""


def test_attempts_on_record_are_shown_with_requests(fw: CommandLine, hooks: list[str]) -> None:
    """`explain` prints the same facts as the operation (B-189)."""
    script = fw.folder / "attempted.py"
    script.write_text(ATTEMPTED)
    fw.done("exec", str(script), "--commit")
    (row,) = fw.json("webhooks", "list", "--json", "--limit", "1", "--attempts")
    last, first = row["recorded"]
    assert (first["number"], first["trigger"], first["error"]) == (1, "event", "timeout: late.")
    assert (last["number"], last["trigger"], last["times"]["answer"]) == (2, "retry", 1.5)
    report = fw.json("webhooks", "explain", row["name"], "--json")
    assert [each["number"] for each in report["recorded"]] == [2, 1]
    assert report["recorded"][0]["request"]["headers"]["webhook-signature"] == "v1,AA=="
    assert report["recorded"][1]["request"] is None
    for table in (fw.done("webhooks", "explain", row["name"]),
                  fw.done("webhooks", "list", "--limit", "1", "--attempts")):  # fmt: skip
        assert "timeout: late." in table
        assert "192.0.2.7:443" in table
    failed = fw.json("webhooks", "attempts", "--result", "failed", "--error", "LATE", "--json")
    assert len(failed) == 24, "of all deliveries (O-302)"
    assert {(each["number"], each["error"]) for each in failed} == {(1, "timeout: late.")}
    args = ("webhooks", "attempts", "--webhook", hooks[0], "--response", "200", "--since", "1h")
    assert len(fw.json(*args, "--limit", "5", "--json")) == 5
    assert "example.test/0" in fw.done(*args)
    inverted = fw.run(*args, "--until", "2h")
    assert (inverted.exit_code, "--since must be before --until" in inverted.stderr) == (2, True)
    empty = fw.run(*args, "--until", "1h")
    assert (empty.exit_code, "--since must be before --until" in empty.stderr) == (2, True)


def test_jobs_stats_counts_webhook_queue(fw: CommandLine, hooks: list[str]) -> None:
    rows = {row["queue"]: row for row in fw.json("jobs", "stats", "--json")}
    assert set(rows) == {"webhook", "mail", "app"}
    mine = rows["webhook"]
    assert (mine["ready"], mine["scheduled"], mine["leased"], mine["failed"]) == (24, 0, 0, 0)
    assert mine["oldestSeconds"] >= 0
    lines = [line for line in fw.done("jobs", "stats").splitlines() if "webhook" in line]
    assert len(lines) == 1
    assert "24" in lines[0]


def test_explain_prints_delivery_in_words_and_json(fw: CommandLine, hooks: list[str]) -> None:
    name = fw.json("webhooks", "list", "--json", "--limit", "1")[0]["name"]
    said = fw.done("webhooks", "explain", name)
    assert said.startswith(f"{name}: Queued\nIts Webhook is example.test/")
    assert "\nIt is due. Deliveries to " in said
    assert "The service is not running on this machine" in said
    assert said.splitlines()[-1].startswith("It is due since ")
    report = fw.json("webhooks", "explain", name, "--json")
    assert (report["delivery"], report["reason"], report["maxAttempts"]) == (name, "slot", 6)
    assert report["dueAt"].endswith("Z")
    assert "There is no Webhook Delivery" in fw.refused("webhooks", "explain", "msg_none")


@pytest.mark.parametrize("command", ["explain", "replay", "cancel", "erase"])
def test_misspelt_delivery_is_answered_with_suggestion(fw: CommandLine, command: str) -> None:
    """Only of nearly the same id, and before a question (C-157)."""
    fw.done("webhooks", "add", "http://127.0.0.1:9/", "--event", "a.b")
    deliveries = [fw.done("webhooks", "emit", "a.b").strip() for _ in range(3)]
    wrong = f"{deliveries[1][:-2]}{deliveries[1][-1]}"
    assert fw.refused("webhooks", command, wrong) == (
        f"fw: There is no Webhook Delivery {wrong}. Did you mean {deliveries[1]}?\n"
    )
    assert "Did you mean" not in fw.refused("webhooks", command, "msg_none")


def test_cancel_ends_waiting_deliveries(fw: CommandLine, hooks: list[str]) -> None:
    """One delivery, and all of a Webhook; those being sent are skipped and reported (B-368)."""
    name = fw.json("webhooks", "list", "--json", "--limit", "1")[0]["name"]
    assert "confirm it with --yes" in fw.refused("webhooks", "cancel", name)
    assert fw.json("webhooks", "cancel", name, "--yes", "--json") == [{"delivery": name}]
    assert "cancelled: Administrator cancelled" in fw.done("webhooks", "explain", name)
    assert "is Failed; only" in fw.refused("webhooks", "cancel", name, "--yes")
    output = fw.done("webhooks", "explain", name)
    assert "It was cancelled after 0 of 6 attempts." in output
    assert "cancelled" in [word for line in output.splitlines() for word in line.split()[1:2]]
    of_one = fw.json("webhooks", "list", "--webhook", hooks[1], "--status", "Queued", "--json")
    held = of_one[0]["name"]
    lease = f"UPDATE fw_job SET lease = 'x', next_at = next_at + 60000 WHERE subject = '{held}'"
    fw.done("eval", f'fw.db.sql("{lease}")', "--commit")
    done = fw.run("webhooks", "cancel", "--webhook", hooks[1], "--yes")
    assert (done.exit_code, done.stderr) == (
        0,
        "Skipped because they are being sent now: 1. "
        "Run the command again to cancel those that fail.\n",
    )
    assert {each["name"] for each in of_one if each["name"] in done.stdout} == {
        each["name"] for each in of_one[1:]
    }
    again = fw.run("webhooks", "cancel", "--webhook", hooks[1], "--yes")
    assert (again.exit_code, again.stdout) == (0, "Nothing to cancel.\n")
    for args in ((), (name, "--webhook", hooks[0])):
        refused = fw.run("webhooks", "cancel", *args)
        assert (refused.exit_code, "Give one DELIVERY, or" in refused.stderr) == (2, True)


@pytest.mark.parametrize("command", ["erase", "cancel"])
def test_reference_with_unknown_doctype_is_refused(
    fw: CommandLine, hooks: list[str], command: str
) -> None:
    """Unless deliveries have it: those of an app that was removed can still be erased."""
    output = fw.refused("webhooks", command, "--reference", "Rol", "x", "--yes")
    assert output == "fw: There is no DocType Rol. Did you mean Role?\n"
    nothing = f"Nothing to {command}.\n"
    assert fw.done("webhooks", command, "--reference", "Role", "x", "--yes") == nothing
    former = "UPDATE doc_webhook_delivery SET reference_doctype = 'Rol', reference_name = 'y'"
    fw.done("eval", f'fw.db.sql("{former}")', "--commit")
    assert fw.done("webhooks", command, "--reference", "Rol", "x", "--yes") == nothing


def test_explain_names_time_of_erasure(fw: CommandLine, hooks: list[str]) -> None:
    name = fw.json("webhooks", "list", "--json", "--limit", "1")[0]["name"]
    assert "is Queued; only" in fw.refused("webhooks", "erase", name, "--yes")
    ended = "UPDATE doc_webhook_delivery SET status = 'Sent'"
    fw.done("eval", f'[fw.db.sql("{ended}"), fw.db.sql("DELETE FROM fw_job")]', "--commit")
    assert "erased" not in fw.done("webhooks", "explain", name)
    assert name in fw.done("webhooks", "erase", name, "--yes")
    at = fw.json("webhooks", "explain", name, "--json")["erased"]
    assert f"\nIts body was erased at {at}.\n" in fw.done("webhooks", "explain", name)
    assert "was erased" in fw.refused("webhooks", "replay", name)


@pytest.mark.parametrize("found_at_once", [162, 20_000, 50])
def test_erase_removes_bodies_of_all_selected_deliveries(
    fw: CommandLine, hooks: list[str], monkeypatch: pytest.MonkeyPatch, found_at_once: int
) -> None:
    """In several transactions, and of deliveries that are found a page at a time (B-363)."""
    monkeypatch.setattr(erasure, "MAX_ERASABLE_DELIVERIES", found_at_once)
    emit = 'fw.webhooks.emit_many([{"name": "a.b", "data": {}}] * 150)'
    fw.done("eval", emit, "--commit")
    final = "UPDATE doc_webhook_delivery SET status = 'Sent', last_attempt = creation"
    fw.done("eval", f'fw.db.sql("{final}")', "--commit")
    report = fw.json("webhooks", "erase", "--webhook", hooks[0], "--yes", "--json")
    assert len({row["delivery"] for row in report}) == 162
    assert fw.done("webhooks", "erase", "--webhook", hooks[0], "--yes") == "Nothing to erase.\n"
    left = "SELECT count(*) AS n FROM doc_webhook_delivery WHERE payload IS NOT NULL"
    assert fw.json("eval", f'fw.db.sql("{left}")') == [{"n": 162}]


def renaming(
    monkeypatch: pytest.MonkeyPatch, place: object, name: str, doctype: str, old: str
) -> None:
    """Rename a document in the first transaction in which a function of `place` is called."""
    original: Callable[..., Any] = getattr(place, name)
    renames = iter([f"{old}-renamed"])

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        fw = next(each for each in args if isinstance(each, Fw))
        for new in renames:
            fw.get_doc(doctype, old).rename(new)
        return result

    monkeypatch.setattr(place, name, call)


def renamed_selection(
    fw: CommandLine, hooks: list[str], monkeypatch: pytest.MonkeyPatch, command: str, by: str
) -> list[str]:
    """Return the options that select twelve deliveries by a name that changes meanwhile."""
    monkeypatch.setattr(erasure, "MAX_ERASABLE_DELIVERIES", 5)
    monkeypatch.setattr(cancellation, "MAX_EXAMINED_DELIVERIES", 5)
    place, name = {
        "erase": (erasure, "erase_many"),
        "cancel": (cancellation.Cancellations, "cancel_matching"),
    }[command]
    if by == "webhook":
        renaming(monkeypatch, place, name, "Webhook", hooks[0])
        return ["--webhook", hooks[0]]
    make = 'fw.new_doc("Role", name="Clerk").insert()'
    fw.done("eval", make, "--commit")
    about = "UPDATE doc_webhook_delivery SET reference_doctype = 'Role', reference_name = 'Clerk'"
    fw.done("eval", f"fw.db.sql(\"{about} WHERE webhook = '{hooks[0]}'\")", "--commit")
    renaming(monkeypatch, place, name, "Role", "Clerk")
    return ["--reference", "Role", "Clerk"]


@pytest.mark.parametrize("by", ["webhook", "reference"])
def test_erase_follows_rename(
    fw: CommandLine, hooks: list[str], monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """A Webhook or document that is renamed between two transactions (B-363)."""
    selecting = renamed_selection(fw, hooks, monkeypatch, "erase", by)
    final = "UPDATE doc_webhook_delivery SET status = 'Sent', last_attempt = creation"
    fw.done("eval", f'fw.db.sql("{final}")', "--commit")
    report = fw.json("webhooks", "erase", *selecting, "--yes", "--json")
    assert len({row["delivery"] for row in report}) == 12


@pytest.mark.parametrize("by", ["webhook", "reference"])
def test_cancel_follows_rename(
    fw: CommandLine, hooks: list[str], monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """A Webhook or document that is renamed between two transactions (B-368)."""
    selecting = renamed_selection(fw, hooks, monkeypatch, "cancel", by)
    report = fw.json("webhooks", "cancel", *selecting, "--yes", "--json")
    assert len({row["delivery"] for row in report}) == 12
