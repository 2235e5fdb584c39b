"""`fw doctor`: what it reports, and its exit codes (O-130 to O-145)."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest

from fw_actors.errors import OverloadedError
from fw_cli.context import CommandContext
from tests.fw_cli.conftest import CommandLine
from tests.postgres_cluster import PostgresCluster


def test_doctor_with_warnings_exits_0_with_remedies(fw: CommandLine) -> None:
    said = fw.done("doctor", FW_CONFIG="fw.json")
    assert "warning  FW_PUBLIC_URL is not set" in said
    assert "           -> Set FW_PUBLIC_URL" in said
    assert "the mail transport is log" in said
    assert {"Configuration", "Web", "Mail", "Webhooks", "Database"} <= set(said.splitlines())
    assert said.splitlines()[-1].startswith("0 problems, ")


def test_doctor_with_problem_exits_1_with_report_on_stdout(fw: CommandLine) -> None:
    result = fw.run("doctor", "--json", FW_MAIL_TRANSPORT="method", FW_MAIL_METHOD="no.such")
    assert (result.exit_code, result.stderr) == (1, "fw: the doctor found 1 problem\n")
    report = json.loads(result.stdout)
    assert report["ok"] is False
    (problem,) = report["sections"]["mail"]["problems"]
    assert "FW_MAIL_METHOD" in problem


def test_doctor_json_has_section_per_part(fw: CommandLine) -> None:
    """`--json` has `{ok, sections: {webhooks: {off, enabled, …, warnings}, …}}` (O-130, O-131)."""
    report = fw.json("doctor", "--json")
    assert report["ok"] is True
    webhooks = report["sections"]["webhooks"]
    counts = [webhooks[key] for key in ("off", "enabled", "retrying", "failed24h", "warnings")]
    assert counts == [False, 0, 0, 0, []]
    assert list(report["sections"]) == [
        "configuration", "web", "signIn", "mail", "webhooks", "secrets", "queues", "database",
        "clock", "apps", "service",
    ]  # fmt: skip


def test_doctor_reports_only_invalid_configuration(fw: CommandLine) -> None:
    (fw.folder / "fw.json").write_text('{"auth": {"sesionDays": 0}}')
    result = fw.run("doctor", FW_LOG="pigeon")
    assert result.exit_code == 1
    assert "sessionDays" in result.stdout
    assert "FW_LOG" in result.stdout
    assert not (fw.folder / "data").exists()


def test_doctor_reports_damaged_database(fw: CommandLine) -> None:
    fw.done("migrate")
    (fw.folder / "data" / "fw.db").write_bytes(b"no database" * 1000)
    (fw.folder / "data" / "fw.db-wal").unlink(missing_ok=True)
    result = fw.run("doctor")
    assert result.exit_code == 1
    assert "problem" in result.stdout
    assert "fw.db is not an intact SQLite database" in result.stdout


def test_doctor_reports_locked_database(fw: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """O-143; the rest does not depend on the store."""

    def refuse(*_: object) -> None:
        raise OverloadedError("The database is locked by another process.")

    monkeypatch.setattr(CommandContext, "on_site", refuse)
    result = fw.run("doctor", "--json")
    assert (result.exit_code, result.stderr) == (1, "fw: the doctor found 1 problem\n")
    report = json.loads(result.stdout)
    assert list(report["sections"]) == ["configuration", "web", "database", "service"]
    assert report["sections"]["database"]["problems"] == [
        "the database does not answer: The database is locked by another process."
    ]


def test_doctor_names_full_disk_of_database_that_does_not_answer(
    fw: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-143: SQLite reports a full disk as one that fails to read or write, when it opens."""

    def refuse(*_: object) -> None:
        raise OverloadedError("The disk under the database failed to read or write.")

    monkeypatch.setattr(CommandContext, "on_site", refuse)
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: SimpleNamespace(free=0))
    result = fw.run("doctor", "--json")
    assert json.loads(result.stdout)["sections"]["database"]["problems"] == [
        "the database does not answer: The disk under the database failed to read or write.",
        "the disk of the database has 0 MiB left",
    ]


def test_doctor_reports_the_service_of_database_that_cannot_be_opened(fw: CommandLine) -> None:
    """O-143: whether the service runs matters most then."""
    result = fw.run("doctor", "--json", FW_DATABASE="postgresql://fw@127.0.0.1:1/fw")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert list(report["sections"]) == ["configuration", "web", "database", "service"]
    assert report["sections"]["configuration"]["policyFingerprint"]
    (problem,) = report["sections"]["database"]["problems"]
    assert problem.startswith("the database does not answer: The database cannot be opened: ")
    assert report["sections"]["service"]["state"] == "stopped"


def test_doctor_reports_unusable_data_folder(fw: CommandLine) -> None:
    fw.done("migrate")
    (fw.folder / "data" / "serve.lock").symlink_to("serve.lock")
    result = fw.run("doctor", "--json")
    assert result.exit_code == 1
    (problem,) = json.loads(result.stdout)["sections"]["configuration"]["problems"]
    assert "serve.lock" in problem


def test_doctor_warns_of_world_readable_key_file(fw: CommandLine) -> None:
    (fw.folder / "secret.key").write_text("k" * 40)
    os.chmod(fw.folder / "secret.key", 0o644)
    assert fw.json("doctor", "--json")["sections"]["service"]["warnings"] == [
        "every user of this machine with access to the site's folder can read secret.key"
    ]


HOOKS = """
for port in (9, 10):
    fw.new_doc("Webhook", name=f"hook {port}", event_type="Custom", custom_event="a.b",
               url=f"http://127.0.0.1:{port}/", secret="a signing secret").insert()
"""
OWE = """
for n in range(3):
    fw.webhooks.emit("a.b", {"n": n})
fw.db.sql("UPDATE fw_job SET next_at = next_at - 720000")
"""


def test_doctor_groups_waiting_deliveries_by_receiver(fw: CommandLine) -> None:
    """The remedy is to start the service."""
    for text in (HOOKS, OWE):
        script = fw.folder / "script.py"
        script.write_text(text)
        fw.done("exec", str(script), "--commit")
    queues = fw.json("doctor", "--json")["sections"]["queues"]
    rows = fw.json("eval", 'fw.get_all("Webhook", fields=["name", "url"])')
    hooks = {row["url"].rstrip("/"): row["name"] for row in rows}
    assert [each["text"] for each in queues["findings"]] == [
        "queue webhook has 6 due jobs; the oldest has been due for 12 minutes",
        *(
            f"{receiver} (Webhook {hooks[receiver]}): due deliveries: 3, leased for an attempt: 0; "
            "no attempt was made yet"
            for receiver in sorted(hooks)
        ),
    ]
    todo = queues["findings"][0]["todo"]
    assert todo == "The service is not running on this machine. Run fw start, or fw worker."
    assert [each["due"] for each in queues["receivers"]] == [3, 3]


def test_doctor_warns_of_log_level_that_suppresses_mail(fw: CommandLine) -> None:
    """A mail is one log line (O-54), and it is one of level info."""
    fw.environ["FW_LOG_LEVEL"] = "warning"
    (warning,) = fw.json("doctor", "--json")["sections"]["mail"]["warnings"]
    assert warning.endswith("FW_LOG_LEVEL=warning suppresses them")


def test_doctor_shows_no_secret(fw: CommandLine) -> None:
    """No secret is shown (C-85, O-101)."""
    secrets = {"FW_SECRET_KEY": "a" * 40, "FW_SMTP_PASSWORD": "b" * 40, "FW_SECRET_X": "c" * 40}
    result = fw.run("doctor", FW_MAIL_TRANSPORT="smtp", FW_SMTP_HOST="127.0.0.1",
                    FW_SMTP_PORT="9", FW_SMTP_USER="desk", **secrets)  # fmt: skip
    assert "the mail transport is smtp (127.0.0.1:9) and cannot be used: connect:" in result.stdout
    assert not any(secret in result.output for secret in secrets.values())


def test_doctor_examines_postgresql_database(fw: CommandLine, postgres_url: str) -> None:
    fw.environ["FW_DATABASE"] = postgres_url
    database = fw.json("doctor", "--json")["sections"]["database"]
    facts = [database[key] for key in ("kind", "freeDiskBytes", "intact", "problems")]
    assert facts == ["postgresql", None, True, []]
    assert database["sizeBytes"] > 1 << 20


@pytest.mark.parametrize("processes", [3, 4])
def test_doctor_compares_connections_of_service_with_limit_of_server(
    fw: CommandLine, postgres_url: str, processes: int
) -> None:
    """Beyond the 57 that the server of the tests allows, requests would get 503."""
    (fw.folder / "fw.json").write_text(json.dumps({"ops": {"processes": processes}}))
    fw.environ["FW_DATABASE"] = postgres_url
    warnings = fw.json("doctor", "--json")["sections"]["database"]["warnings"]
    begin = "the service may open 60 connections to the database, which allows 57"
    assert [each[: len(begin)] for each in warnings] == [begin] * (processes == 4)


def test_doctor_knows_the_limit_of_the_database(fw: CommandLine, cluster: PostgresCluster) -> None:
    with cluster.empty_database() as url:
        name = url.partition("?")[0].rpartition("/")[2]
        cluster.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 14")
        fw.environ["FW_DATABASE"] = url
        (warning,) = fw.json("doctor", "--json")["sections"]["database"]["warnings"]
    assert "15 connections to the database, which allows 14" in warning
