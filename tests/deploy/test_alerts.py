"""The alerts, the dashboard and the configuration of Prometheus in deploy/ (O-327)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"


def load(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text())


def check_by_promtool(*args: str) -> None:
    """Run promtool where it is installed; elsewhere other tests check the rules."""
    if shutil.which("promtool"):
        done = subprocess.run(
            ["promtool", "check", *args], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_accepts_configuration_and_alerts() -> None:
    check_by_promtool("config", str(DEPLOY / "prometheus" / "prometheus.yml"))


class AlertCase(NamedTuple):
    """Series by their minutes from 0 to 60, and for which labels an alert fires at 45."""

    alert: str
    series: dict[str, str]
    expected: list[dict[str, str]]


UP, DOWN = "1x60", "1x30 0x30"


ALERT_CASES = {
    "a service and a worker that are up": AlertCase(
        "FwDown",
        {'up{job="fw",instance="a"}': UP, 'up{job="fw-worker",instance="b"}': UP},
        [],
    ),
    "a worker that is down": AlertCase(
        "FwDown",
        {
            'up{job="fw",instance="a"}': UP,
            'up{job="fw-worker",instance="b"}': DOWN,
            'up{job="node",instance="c"}': DOWN,
        },
        [{"job": "fw-worker", "instance": "b"}],
    ),
    "a service that was started once": AlertCase(
        "FwStartsAgain",
        {'process_start_time_seconds{job="fw",instance="a"}': "100x30 200x30"},
        [],
    ),
    "a worker that systemd starts again and again": AlertCase(
        "FwStartsAgain",
        {
            'process_start_time_seconds{job="fw-worker",instance="b"}': "100x20 200x8 300x8 400x24",
            'process_start_time_seconds{job="fw",instance="c",process="1"}': "1x60",
            'process_start_time_seconds{job="fw",instance="c",process="2"}': "1x20 2x8 3x8 4x24",
        },
        [{"job": "fw-worker", "instance": "b"}],
    ),
    "a service of several processes that systemd starts again and again": AlertCase(
        "FwStartsAgain",
        {
            'process_start_time_seconds{job="fw",instance="a",process="1"}': "1x20 2x8 3x8 4x24",
            'process_start_time_seconds{job="fw",instance="a",process="2"}': "5x20 6x8 7x8 8x24",
        },
        [{"job": "fw", "instance": "a"}],
    ),
    "deliveries that wait, told by three nodes": AlertCase(
        "FwDeliveriesWait",
        {f'fw_queue_oldest_seconds{{queue="webhook",instance="{n}"}}': "400x60" for n in "abc"},
        [{"queue": "webhook"}],
    ),
    "deliveries that wait for a moment": AlertCase(
        "FwDeliveriesWait",
        {'fw_queue_oldest_seconds{queue="webhook",instance="a"}': "0x40 400x2 0x20"},
        [],
    ),
    "mails that wait, told by three nodes": AlertCase(
        "FwMailWaits",
        {f'fw_queue_oldest_seconds{{queue="mail",instance="{n}"}}': "400x60" for n in "abc"},
        [{"queue": "mail"}],
    ),
    "first attempts that are slow on one of two nodes": AlertCase(
        "FwCommitToSendSlow",
        {
            'fw_commit_to_send_seconds_bucket{le="5.0",instance="a"}': "0+100x60",
            'fw_commit_to_send_seconds_bucket{le="10.0",instance="a"}': "0+100x60",
            'fw_commit_to_send_seconds_bucket{le="+Inf",instance="a"}': "0+100x60",
            'fw_commit_to_send_seconds_bucket{le="5.0",instance="b"}': "0x60",
            'fw_commit_to_send_seconds_bucket{le="10.0",instance="b"}': "0+100x60",
            'fw_commit_to_send_seconds_bucket{le="+Inf",instance="b"}': "0+100x60",
        },
        [{}],
    ),
    "the first delivery that fails": AlertCase(
        "FwDeliveriesFail",
        {
            'fw_deliveries_total{outcome="Failed",instance="a"}': "0x40 1x20",
            'fw_deliveries_total{outcome="Failed",instance="b"}': "0x60",
        },
        [{}],
    ),
    "deliveries that are tried again": AlertCase(
        "FwDeliveriesFail",
        {
            'fw_deliveries_total{outcome="Failed"}': "0x60",
            'fw_deliveries_total{outcome="Retrying"}': "0+5x60",
        },
        [],
    ),
    "writes that one process of one node refuses": AlertCase(
        "FwWritesRefused",
        {
            'fw_store_refused_total{instance="a",process="1"}': "0x60",
            'fw_store_refused_total{instance="a",process="2"}': "0x42 3x18",
            'fw_store_refused_total{instance="b"}': "7x60",
        },
        [{"instance": "a"}],
    ),
    "two writes that waited too long for a lock": AlertCase(
        "FwWritesRefused",
        {
            'fw_store_refused_total{instance="a",process="1"}': "0x40 1x20",
            'fw_store_refused_total{instance="a",process="2"}': "4x45 5x15",
        },
        [],
    ),
    "a store that does not answer one of two nodes": AlertCase(
        "FwStoreSilent",
        {'fw_store_up{job="fw",instance="a"}': DOWN, 'fw_store_up{job="fw",instance="b"}': UP},
        [{"instance": "a"}],
    ),
    "a store that answers again": AlertCase(
        "FwStoreSilent", {'fw_store_up{job="fw",instance="a"}': "1x20 0x20 1x20"}, []
    ),
    "a write of one process that does not end": AlertCase(
        "FwWriteHangs",
        {
            'fw_store_longest_write_seconds{instance="a",process="1"}': "0x60",
            'fw_store_longest_write_seconds{instance="a",process="2"}': "0x43 10+60x17",
        },
        [{"instance": "a"}],
    ),
    "writes that take half a minute": AlertCase(
        "FwWriteHangs", {'fw_store_longest_write_seconds{instance="a"}': "30x60"}, []
    ),
    "a disk that fills on one of two machines": AlertCase(
        "FwDiskFills",
        {
            'fw_store_disk_free_bytes{instance="a"}': "2000000000-50000000x60",
            'fw_store_disk_free_bytes{instance="b"}': "2000000000x60",
        },
        [{"instance": "a"}],
    ),
    "a mail server that refuses one mail on one of two nodes": AlertCase(
        "FwMailFails",
        {
            'fw_job_attempts_total{queue="mail",outcome="done",instance="a"}': "0+1x20 20x40",
            'fw_job_attempts_total{queue="mail",outcome="done",instance="b"}': "7x60",
            'fw_job_attempts_total{queue="mail",outcome="retrying",instance="a"}': (
                "0x20 1 2 2 3 3 3 3 4x7 5x30"
            ),
            'fw_job_attempts_total{queue="mail",outcome="retrying",instance="b"}': "0x60",
        },
        [{}],
    ),
    "a mail server that defers some mails and accepts others": AlertCase(
        "FwMailFails",
        {
            'fw_job_attempts_total{queue="mail",outcome="done"}': "0+1x60",
            'fw_job_attempts_total{queue="mail",outcome="retrying"}': "0+1x60",
        },
        [],
    ),
    "a mail server that accepts mails again": AlertCase(
        "FwMailFails",
        {
            'fw_job_attempts_total{queue="mail",outcome="done"}': "0x40 2x20",
            'fw_job_attempts_total{queue="mail",outcome="retrying"}': "0x10 0+1x30 30x20",
        },
        [],
    ),
    "a mail server that refuses a recipient": AlertCase(
        "FwMailFails",
        {
            'fw_job_attempts_total{queue="mail",outcome="done"}': "0x60",
            'fw_job_attempts_total{queue="mail",outcome="failed"}': "0x20 1x40",
            'fw_job_attempts_total{queue="mail",outcome="retrying"}': "0x60",
        },
        [],
    ),
    "jobs that wait, told by three nodes": AlertCase(
        "FwJobsWait",
        {f'fw_queue_oldest_seconds{{queue="app",instance="{n}"}}': "1000x60" for n in "abc"},
        [{"queue": "app"}],
    ),
    "the first job that fails": AlertCase(
        "FwJobsFail",
        {
            'fw_job_attempts_total{queue="app",outcome="failed",instance="a"}': "0x40 1x20",
            'fw_job_attempts_total{queue="app",outcome="failed",instance="b"}': "0x60",
        },
        [{}],
    ),
    "jobs and mails that are tried again": AlertCase(
        "FwJobsFail",
        {
            'fw_job_attempts_total{queue="app",outcome="retrying"}': "0+1x60",
            'fw_job_attempts_total{queue="mail",outcome="failed"}': "0+1x60",
        },
        [],
    ),
    "requests that two processes of one node refuse": AlertCase(
        "FwRequestsRefused",
        {
            'fw_requests_total{route="none",status="503",instance="a",process="1"}': "0+40x60",
            'fw_requests_total{route="/api/login",status="503",instance="a",process="2"}': (
                "0+40x60"
            ),
            'fw_requests_total{route="none",status="503",instance="b"}': "0+40x60",
        },
        [{"instance": "a"}],
    ),
    "checks of a node that is not ready": AlertCase(
        "FwRequestsRefused",
        {'fw_requests_total{route="/api/ready",status="503",instance="a"}': "0+120x60"},
        [],
    ),
    "a proxy that one of two nodes does not trust": AlertCase(
        "FwProxyNotTrusted",
        {
            'fw_forwarded_ignored_total{instance="a",process="1"}': "0+50x60",
            'fw_requests_total{route="/app",status="200",instance="a",process="1"}': "0+30x60",
            'fw_requests_total{route="none",status="404",instance="a",process="2"}': "0+20x60",
            'fw_requests_total{route="/metrics",status="200",instance="a",process="1"}': "0+99x60",
            'fw_forwarded_ignored_total{instance="b"}': "0x60",
            'fw_requests_total{route="/app",status="200",instance="b"}': "0+50x60",
        },
        [{"instance": "a"}],
    ),
    "a client that sends forwarded headers itself": AlertCase(
        "FwProxyNotTrusted",
        {
            'fw_forwarded_ignored_total{instance="a"}': "0+10x60",
            'fw_requests_total{route="/app",status="200",instance="a"}': "0+50x60",
        },
        [],
    ),
    "passwords that are guessed at two nodes together": AlertCase(
        "FwSignInsGuessed",
        {
            'fw_sign_ins_total{outcome="wrong",instance="a"}': "0+40x60",
            'fw_sign_ins_total{outcome="throttled",instance="b"}': "0+40x60",
        },
        [{}],
    ),
    "a few wrong passwords": AlertCase(
        "FwSignInsGuessed", {'fw_sign_ins_total{outcome="wrong",instance="a"}': "0+40x60"}, []
    ),
    "hashes that wait in all processes of a node": AlertCase(
        "FwHashesWait",
        {
            'fw_password_hashes_waiting{instance="a",process="1"}': "20x60",
            'fw_password_hashes_waiting{instance="a",process="2"}': "20x60",
            'fw_password_hashes_waiting{instance="b"}': "20x60",
        },
        [{"instance": "a"}],
    ),
    "an actor that is restarted again and again on one node": AlertCase(
        "FwRestarts",
        {
            'fw_restarts_total{actor="dispatcher",instance="a"}': "0x34 0+1x26",
            'fw_restarts_total{actor="dispatcher",instance="b"}': "0x40 1x20",
        },
        [{"actor": "dispatcher", "instance": "a"}],
    ),
    "an actor that was restarted once on each of four nodes": AlertCase(
        "FwRestarts",
        {f'fw_restarts_total{{actor="mailer",instance="{n}"}}': "0x40 1x20" for n in "abcd"},
        [],
    ),
    "a process that does not answer the others": AlertCase(
        "FwProcessSilent",
        {
            'fw_process_up{instance="a",process="1"}': UP,
            'fw_process_up{instance="a",process="2"}': DOWN,
        },
        [{"instance": "a", "process": "2"}],
    ),
    "a process that is replaced again and again": AlertCase(
        "FwProcessRestarts",
        {
            'fw_process_restarts_total{instance="a",process="1"}': "0x40 1x20",
            'fw_process_restarts_total{instance="a",process="2"}': "0x34 0+1x26",
        },
        [{"instance": "a", "process": "2"}],
    ),
    "a process whose files run out": AlertCase(
        "FwFilesRunOut",
        {
            'process_open_fds{job="fw",instance="a",process="1"}': "850x60",
            'process_max_fds{job="fw",instance="a",process="1"}': "1024x60",
            'process_open_fds{job="fw",instance="a",process="2"}': "50x60",
            'process_max_fds{job="fw",instance="a",process="2"}': "1024x60",
            'process_open_fds{job="node",instance="c"}': "1000x60",
            'process_max_fds{job="node",instance="c"}': "1024x60",
        },
        [{"job": "fw", "instance": "a", "process": "1"}],
    ),
    "no defect": AlertCase("FwServerErrors", {"fw_server_errors_total": "0x60"}, []),
    "the first defect of a service": AlertCase(
        "FwServerErrors", {"fw_server_errors_total": "0x40 1x20"}, [{}]
    ),
    # One process reports a failure of a receiver; the others count nothing (B-340).
    "a receiver that fails": AlertCase(
        "FwReceiverFails",
        {
            'fw_receiver_notices_total{act="failing",instance="a"}': "0x60",
            'fw_receiver_notices_total{act="failing",instance="b"}': "0x40 1x20",
        },
        [{}],
    ),
    "a Webhook that is disabled": AlertCase(
        "FwWebhookDisabled",
        {
            'fw_receiver_notices_total{act="disabled",instance="a"}': "0x60",
            'fw_receiver_notices_total{act="disabled",instance="b"}': "0x40 1x20",
        },
        [{}],
    ),
    "a receiver that fails no longer": AlertCase(
        "FwReceiverFails",
        {
            'fw_receiver_notices_total{act="failing",instance="b"}': "0x60",
            'fw_receiver_notices_total{act="ended",instance="b"}': "0x40 1x20",
        },
        [],
    ),
    "a receiver that fails, whose Webhook is not disabled": AlertCase(
        "FwWebhookDisabled",
        {'fw_receiver_notices_total{act="failing",instance="b"}': "0x40 1x20"},
        [],
    ),
    "a backup that fails": AlertCase(
        "FwBackupFails",
        {
            'node_systemd_unit_state{instance="a",name="fw-backup.service",state="failed"}': (
                "0x20 1x40"
            ),
            'node_systemd_unit_state{instance="a",name="fw.service",state="failed"}': "1x60",
            'node_systemd_timer_last_trigger_seconds{instance="a",name="fw-backup.timer"}': "0x60",
        },
        [{"instance": "a", "name": "fw-backup.service", "state": "failed"}],
    ),
    "a timer of backups that has stopped": AlertCase(
        "FwBackupFails",
        {
            'node_systemd_timer_last_trigger_seconds{instance="a",name="fw-backup.timer"}': (
                "-172000x60"
            ),
        },
        [{"instance": "a", "name": "fw-backup.timer"}],
    ),
    "stale subscriptions of one node": AlertCase(
        "FwSubscriptionsStale",
        {
            'fw_subscriptions_stale{instance="a"}': "0x60",
            'fw_subscriptions_stale{instance="b"}': "2x60",
        },
        [{"instance": "b"}],
    ),
}


"""By the labels of the series."""


@pytest.fixture(scope="module")
def fired(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, str]]]:
    """The labels of each alert that fires in the case of a title, as promtool finds it."""
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed")
    folder = tmp_path_factory.mktemp("alerts")
    tests = [
        {
            "name": title,
            "interval": "1m",
            "input_series": [
                {"series": name, "values": values} for name, values in case.series.items()
            ],
            "alert_rule_test": [{"eval_time": "45m", "alertname": case.alert, "exp_alerts": []}],
        }
        for title, case in ALERT_CASES.items()
    ]
    text = {
        "rule_files": [str(DEPLOY / "prometheus" / "alerts.yml")],
        "evaluation_interval": "1m",
        "tests": tests,
    }
    (folder / "cases.yml").write_text(yaml.safe_dump(text))
    done = subprocess.run(
        ["promtool", "test", "rules", str(folder / "cases.yml")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found: dict[str, list[dict[str, str]]] = {}
    for failed in re.split(r"(?m)^ +name: ", done.stdout + done.stderr)[1:]:
        title, _, rest = failed.partition(",\n")
        labels = re.findall(r"Labels:{(.*?)}", rest.partition("got:")[2])
        found[title.strip()] = [dict(re.findall(r'(\w+)="([^"]*)"', each)) for each in labels]
    return found


@pytest.mark.parametrize("title", ALERT_CASES)
def test_alert_fires_for_its_case(fired: dict[str, list[dict[str, str]]], title: str) -> None:
    """The rules hold for any number of nodes, workers and processes (O-327)."""
    alert, _, expected = ALERT_CASES[title]
    ignored = ("alertname", "severity")
    labels = [
        {name: value for name, value in each.items() if name not in ignored}
        for each in fired.get(title, [])
    ]
    assert labels == expected
    assert {each["alertname"] for each in fired.get(title, [])} <= {alert}


def test_alert_has_case_in_which_it_fires() -> None:
    (group,) = load("prometheus/alerts.yml")["groups"]
    assert {rule["alert"] for rule in group["rules"]} == {
        case.alert for case in ALERT_CASES.values() if case.expected
    }


def test_dashboard_takes_maximum_of_store_metrics() -> None:
    """`sum` over nodes would show a queue as often as there are nodes."""
    panels = json.loads((DEPLOY / "grafana" / "fw.json").read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    of_the_store = [e for e in expressions if re.search("fw_queue|fw_locked", e)]
    assert len(of_the_store) == 3
    assert all(each.startswith("max") for each in of_the_store)


def test_prometheus_accepts_dashboard_queries(tmp_path: Path) -> None:
    panels = json.loads((DEPLOY / "grafana" / "fw.json").read_text())["panels"]
    expressions = [
        target["expr"].replace("$instance", ".*") for panel in panels for target in panel["targets"]
    ]
    rules = [{"record": f"panel:{number}", "expr": each} for number, each in enumerate(expressions)]
    assert len(rules) >= len(panels)
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    check_by_promtool("rules", str(file))


def test_alert_has_summary_todo_and_severity() -> None:
    (group,) = load("prometheus/alerts.yml")["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(set(names)) == len(names)
    for rule in group["rules"]:
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["annotations"]["todo"]
        assert rule["labels"]["severity"] in ("page", "ticket")
    assert load("prometheus/prometheus.yml")["rule_files"] == ["alerts.yml"]
