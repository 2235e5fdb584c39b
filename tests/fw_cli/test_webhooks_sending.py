"""`webhooks replay` and `webhooks test` (C-116, B-256, B-270)."""

from __future__ import annotations

import http.server
import json
import re
import threading

import pytest
import standardwebhooks

from tests.fw_cli.conftest import CommandLine
from tests.fw_cli.webhook_kit import make_hook
from tests.live_site import SECRET, LiveReceiver

OWE = """
import json
import re
ids = [fw.webhooks.emit("a.b", {"n": n})["deliveries"][0] for n in range(4)]
fw.db.sql("UPDATE doc_webhook_delivery SET status = 'Failed' WHERE name <> :it", {"it": ids[3]})
fw.db.sql("UPDATE fw_job SET next_at = NULL WHERE subject <> :it", {"it": ids[3]})
print(json.dumps(ids))
"""


@pytest.fixture
def made(fw: CommandLine) -> list[str]:
    """A webhook, three failed deliveries, and one that is queued."""
    hook = make_hook(fw, "https://example.test/hook")
    script = fw.folder / "owe.py"
    script.write_text(OWE)
    return [hook, *json.loads(fw.done("exec", str(script), "--commit"))]


def audit(fw: CommandLine) -> list[tuple[str, ...]]:
    of_replays = [["action", "in", ["webhook.replay", "Denied"]]]
    rows = fw.json(
        "eval", f'fw.get_all("Audit Event", {of_replays}, ["action", "target", "actor"])'
    )
    return sorted((row["action"], row["target"], row["actor"]) for row in rows)


def statuses(fw: CommandLine) -> dict[str, str]:
    rows = fw.json("webhooks", "list", "--json")
    return {row["name"]: row["status"] for row in rows}


def test_replay_acts_as_administrator(fw: CommandLine, made: list[str]) -> None:
    assert fw.json("webhooks", "replay", made[1], "--json") == [
        {"delivery": made[1], "status": "Queued"}
    ]
    assert statuses(fw)[made[1]] == "Queued"
    assert audit(fw) == [("webhook.replay", made[1], "Administrator")]


def test_refused_replay_exits_1_without_audit_event(fw: CommandLine, made: list[str]) -> None:
    for delivery in (made[4], "msg_" + "0" * 27):
        assert fw.refused("webhooks", "replay", delivery)
    assert "no Webhook Delivery" in fw.refused("webhooks", "replay", "nothing", "--dry-run")
    fw.done("eval", f'fw.get_doc("Webhook", "{made[0]}").delete()', "--commit")
    assert "deleted" in fw.refused("webhooks", "replay", made[1])
    assert audit(fw) == []


def test_bulk_replay_leaves_audit_event_per_delivery(fw: CommandLine, made: list[str]) -> None:
    args = ("webhooks", "replay", "--webhook", made[0], "--status", "Failed", "--since", "7d")
    dry = fw.json(*args, "--dry-run", "--json")
    assert dry == [{"delivery": name} for name in made[1:4]]
    assert (audit(fw), statuses(fw)[made[1]]) == ([], "Failed")
    assert len(fw.json(*args, "--limit", "2", "--json")) == 2
    assert [row["delivery"] for row in fw.json(*args, "--json")] == [made[3]]
    assert [row[1] for row in audit(fw)] == sorted(made[1:4])
    assert fw.done(*args) == "Nothing to replay.\n"


def test_bulk_replay_takes_only_what_its_options_select(fw: CommandLine, made: list[str]) -> None:
    """Of another Webhook, or from before the time, nothing is sent again (C-116)."""
    other = make_hook(fw, "https://other.test/hook")
    change = "UPDATE doc_webhook_delivery SET webhook = :w, creation = creation - :ms"
    for webhook, ms, name in ((other, 0, made[1]), (made[0], 7_200_000, made[2])):
        values = {"w": webhook, "ms": ms, "it": name}
        fw.done("eval", f"fw.db.sql({change + ' WHERE name = :it'!r}, {values})", "--commit")

    def selected(*options: str) -> list[str]:
        rows = fw.json("webhooks", "replay", *options, "--dry-run", "--json")
        return [row["delivery"] for row in rows]

    assert selected("--webhook", other) == [made[1]]
    assert sorted(selected("--webhook", made[0])) == made[2:4]
    assert sorted(selected("--since", "1h")) == [made[1], made[3]]
    assert fw.json("webhooks", "replay", "--status", "Sent", "--json") == []
    one = fw.done("webhooks", "replay", made[1], "--dry-run")
    assert [line.split() for line in one.splitlines() if "msg_" in line] == [[made[1]]]
    assert "Status" not in one
    assert "Status" in fw.done("webhooks", "replay", "--webhook", other)


def test_replays_show_outcome_of_bulk_replay(fw: CommandLine, made: list[str]) -> None:
    """The replay names its id, and the id leads to the outcomes, in another process (O-301)."""
    hint = fw.done("webhooks", "replay", "--since", "7d").splitlines()[-1]
    run = hint.removeprefix("See the outcome: fw webhooks replays ")
    sent = "UPDATE doc_webhook_delivery SET status = :s WHERE name = :it"
    fw.done("eval", f"fw.db.sql({sent!r}, {{'s': 'Sent', 'it': {made[1]!r}}})", "--commit")
    [listed] = fw.json("webhooks", "replays", "--json")
    report = fw.json("webhooks", "replays", run, "--json")
    assert report == listed
    counts = [
        report[key] for key in ("id", "state", "total", "replayed", "arrived", "open", "gone")
    ]
    assert counts == [run, "done", 3, 3, 1, 2, 0]
    text = fw.done("webhooks", "replays", run)
    [about, *counted] = text.splitlines()
    assert about.startswith(f"{run}: done. Begun by Administrator at ")
    assert "status = Failed, creation >= " in about
    assert counted == ["3 of 3 replayed:", "  1 arrived", "  0 failed again", "  2 still open"]
    assert run in fw.done("webhooks", "replays")
    assert "no bulk replay x" in fw.refused("webhooks", "replays", "x")


def test_bulk_replay_exits_1_for_refused_delivery(fw: CommandLine, made: list[str]) -> None:
    """One that is refused makes the exit code 1 and holds up no other (C-128)."""
    other = make_hook(fw, "https://other.test/hook")
    moved = "UPDATE doc_webhook_delivery SET webhook = :other WHERE name = :it"
    fw.done("eval", f"fw.db.sql({moved!r}, {{'other': {other!r}, 'it': {made[2]!r}}})", "--commit")
    fw.done("eval", f'fw.get_doc("Webhook", "{other}").delete()', "--commit")
    result = fw.run("webhooks", "replay", "--status", "Failed", "--json")
    refusals = {row["delivery"]: row.get("refused") for row in json.loads(result.stdout)}
    gone = "The Webhook of this delivery was deleted."
    assert (result.exit_code, refusals) == (1, {made[1]: None, made[2]: gone, made[3]: None})
    assert result.stderr == "fw: 1 of 3 deliveries could not be replayed\n"
    assert [row[1] for row in audit(fw)] == [made[1], made[3]]


USAGE: list[list[str]] = [
    [],
    ["msg_x", "--webhook", "w"],
    ["--status", "Queued"],
    ["--since", "soon"],
    ["--webhook", "w", "--limit", "0"],
    ["msg_x", "--limit", "3"],
]


@pytest.mark.parametrize("args", USAGE)
def test_wrong_webhooks_usage_exits_2(fw: CommandLine, args: list[str]) -> None:
    assert fw.run("webhooks", "replay", *args).exit_code == 2


def test_test_event_is_signed_sent_and_not_stored(fw: CommandLine) -> None:
    """A test event leaves no row, and answers `{status, error, times: …}` (B-270, B-271)."""
    with LiveReceiver(200) as receiver:
        hook = make_hook(fw, receiver.url, enabled=0)
        report = fw.json("webhooks", "test", hook, "--json")
        assert re.match(r"200 \(dns \d\.\d ms, connect ", fw.done("webhooks", "test", hook))
    assert (report["status"], report["error"]) == (200, None)
    assert set(report["times"]) == {"dns", "connect", "tls", "answer"}
    assert report["times"]["answer"] > 0
    [got, _] = receiver.got
    body = standardwebhooks.Webhook(SECRET).verify(got.body, got.headers)
    assert (body["type"], body["data"]) == ("fw.test", {"webhook": hook})
    assert (statuses(fw), audit(fw)) == ({}, [])


def test_test_event_exits_1_with_reason_of_failure(fw: CommandLine) -> None:
    """A failing receiver is exit 1 (B-272)."""
    with LiveReceiver(500) as receiver:
        hook = make_hook(fw, receiver.url)
        result = fw.run("webhooks", "test", hook, "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["status"]) == (1, 500)
    assert report["error"] == "status: the receiver answered 500."
    assert result.stderr == "status: the receiver answered 500.\n"
    result = fw.run("webhooks", "test", hook)  # nobody listens there any more
    assert result.exit_code == 1
    assert "connect: " in result.stderr
    assert re.fullmatch(r"no response \(dns \d\.\d ms\)\n", result.stdout), "the steps it reached"
    assert fw.run("webhooks", "test", hook, FW_SECRET_KEY="another " * 5).exit_code == 1
    assert "There is no Webhook" in fw.refused("webhooks", "test", "nowhere")


def test_test_event_refuses_link_local_address(fw: CommandLine) -> None:
    """Clouds serve the machine's credentials at such an address."""
    hook = make_hook(fw, "https://169.254.169.254/latest/meta-data/")
    result = fw.run("webhooks", "test", hook)
    assert result.exit_code == 1
    assert result.stderr == (
        "connect: 169.254.169.254 is a link-local address, which is never connected to.\n"
    )


class _EscapeSequenceReceiver(http.server.BaseHTTPRequestHandler):
    """Points to where a terminal would change its colour."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(302)
        self.send_header("location", "/\x9b31m")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_receiver_text_is_escaped_for_terminal(fw: CommandLine) -> None:
    """Values from outside are escaped (C-105, O-100)."""
    with http.server.HTTPServer(("127.0.0.1", 0), _EscapeSequenceReceiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        hook = make_hook(fw, f"http://127.0.0.1:{server.server_port}/")
        completed = fw.run("webhooks", "test", hook)
        server.shutdown()
    assert completed.exit_code == 1
    assert "\x9b" not in completed.output
    assert "and pointed to /" in completed.stderr
