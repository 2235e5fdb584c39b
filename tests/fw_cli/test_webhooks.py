"""`webhooks list` (C-115)."""

from __future__ import annotations

import json

import pytest

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


def test_the_twenty_newest_are_listed(fw: CommandLine, hooks: list[str]) -> None:
    rows = fw.json("webhooks", "list", "--json")
    assert len(rows) == 20
    assert set(rows[0]) == {
        "name", "webhook", "event", "status", "attempts", "responseStatus", "creation",
    }  # fmt: skip
    order = [(row["creation"], row["name"]) for row in rows]
    assert order == sorted(order, reverse=True)
    facts = {(row["event"], row["status"], row["attempts"], row["responseStatus"]) for row in rows}
    assert facts == {("a.b", "Queued", 0, None)}


def test_they_are_chosen_by_webhook_status_and_number(fw: CommandLine, hooks: list[str]) -> None:
    rows = fw.json("webhooks", "list", "--json", "--webhook", hooks[1], "--limit", "100")
    assert [row["webhook"] for row in rows] == [hooks[1]] * 12
    assert fw.json("webhooks", "list", "--json", "--status", "Sent") == []
    assert len(fw.json("webhooks", "list", "--json", "--status", "Queued", "--limit", "3")) == 3


def test_the_table_names_each_delivery_whole(fw: CommandLine, hooks: list[str]) -> None:
    names = [row["name"] for row in fw.json("webhooks", "list", "--json", "--limit", "2")]
    table = fw.done("webhooks", "list", "--limit", "2")
    assert all(name in table for name in names)


def test_jobs_of_the_webhook_queue_are_counted(fw: CommandLine, hooks: list[str]) -> None:
    rows = {row["queue"]: row for row in fw.json("jobs", "stats", "--json")}
    assert set(rows) == {"webhook", "mail", "app"}
    mine = rows["webhook"]
    assert (mine["ready"], mine["scheduled"], mine["leased"], mine["failed"]) == (24, 0, 0, 0)
    assert mine["oldestSeconds"] >= 0
    lines = [line for line in fw.done("jobs", "stats").splitlines() if "webhook" in line]
    assert len(lines) == 1
    assert "24" in lines[0]


def test_a_delivery_is_explained_in_words_and_as_json(fw: CommandLine, hooks: list[str]) -> None:
    name = fw.json("webhooks", "list", "--json", "--limit", "1")[0]["name"]
    said = fw.done("webhooks", "explain", name)
    assert said.startswith(f"{name}: Queued\nIt is due. Deliveries to ")
    assert "The service does not run on this machine" in said
    assert said.splitlines()[-1].startswith("It is due since ")
    told = fw.json("webhooks", "explain", name, "--json")
    assert (told["delivery"], told["reason"], told["maxAttempts"]) == (name, "slot", 6)
    assert told["dueAt"].endswith("Z")
    assert "There is no Webhook Delivery" in fw.refused("webhooks", "explain", "msg_none")
