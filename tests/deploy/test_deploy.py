"""The unit, the proxy, the image and the alerts of deploy/."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from benchmarks.access.service import TUNABLES
from fw_actors.config.parsing import CREDENTIAL
from supervisors.service.process import DRAIN_SECONDS, SETTLE_SECONDS

DEPLOY = Path(__file__).parents[2] / "deploy"


def load(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text())


def test_the_unit_waits_for_ready_and_for_a_graceful_stop() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "fw.service")
    service = unit["Service"]
    assert (service["Type"], service["User"]) == ("notify", "fw")
    assert int(service["TimeoutStopSec"]) > DRAIN_SECONDS + SETTLE_SECONDS
    assert service["ReadWritePaths"] == f"{service['WorkingDirectory']}/data"


def lines_of(key: str) -> list[str]:
    """What the unit says of `key`, in its order: later lines add to earlier ones."""
    unit = (DEPLOY / "fw.service").read_text().splitlines()
    return [line.removeprefix(f"{key}=") for line in unit if line.startswith(f"{key}=")]


def test_the_unit_lets_a_hash_give_way_and_makes_what_it_refuses_an_error() -> None:
    """@resources holds setpriority, which each hashing thread calls; and what a filter refuses
    kills the process unless it is given an error."""
    assert lines_of("SystemCallFilter")[-1] == "setpriority"
    assert lines_of("SystemCallErrorNumber") == ["EPERM"]


def test_whoever_starts_the_service_asks_malloc_for_the_same() -> None:
    """Else a hash is slower in one of them, and the benchmark speaks of another service."""
    asked = f"GLIBC_TUNABLES={TUNABLES}"
    root = DEPLOY.parent
    assert lines_of("Environment")[-1] == asked
    assert asked in (DEPLOY / "Dockerfile").read_text().split()
    assert f"{{GLIBC_TUNABLES:-{TUNABLES}}}" in (root / "scripts" / "venv.bash").read_text()
    assert f"`{asked}`" in (root / "docs" / "operating.md").read_text()


def test_the_unit_gives_the_consoles_socket_a_place_that_others_see() -> None:
    assert lines_of("PrivateTmp") == ["yes"]
    assert lines_of("RuntimeDirectory") == ["fw"]
    assert lines_of("RuntimeDirectoryMode") == ["0700"]


def test_the_unit_gives_the_key_as_a_credential_and_in_no_environment() -> None:
    (credential,) = lines_of("LoadCredential")
    assert credential == f"{CREDENTIAL}:/etc/fw/secret.key"
    assert lines_of("EnvironmentFile") == ["-/etc/fw/secrets.env"]
    page = (DEPLOY.parent / "docs" / "operating.md").read_text()
    assert f"--property=LoadCredential={credential}" in page
    assert "FW_SECRET_KEY=" not in (DEPLOY / "fw.service").read_text() + page


def test_the_unit_may_write_a_folder_that_the_page_of_operating_makes() -> None:
    """systemd starts no unit whose ReadWritePaths= is not there."""
    page = (DEPLOY.parent / "docs" / "operating.md").read_text()
    (writable,) = lines_of("ReadWritePaths")
    assert f"install -d -o fw -g fw -m 0700 {writable} " in page


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    """Where systemd is; elsewhere only the facts above are judged."""
    if shutil.which("systemd-analyze"):
        unit = tmp_path / "fw.service"
        text = (DEPLOY / "fw.service").read_text()
        unit.write_text(text.replace("/opt/fw/bin/fw serve", "/bin/true"))
        done = subprocess.run(
            ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def balancer() -> str:
    """The block of nginx on the page about scaling."""
    page = (DEPLOY.parent / "docs" / "scaling.md").read_text()
    (block,) = (each for each in page.split("```")[1::2] if "upstream fw" in each)
    return block


@pytest.mark.parametrize(
    "configuration", [(DEPLOY / "nginx.conf").read_text(), balancer()], ids=["deploy", "scaling"]
)
def test_nginx_takes_the_proxys_configuration(configuration: str, tmp_path: Path) -> None:
    certificate = trustme.CA().issue_cert("fw.example.org")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "fullchain.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "privkey.pem")
    site = configuration.replace("/etc/ssl/fw", str(tmp_path))
    main = tmp_path / "nginx.conf"
    main.write_text(
        f"pid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{ access_log off;\n{site} }}"
    )
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    assert nginx is not None, "./scripts/test installs what tests/debian-packages.txt names"
    done = subprocess.run(
        [nginx, "-t", "-q", "-p", str(tmp_path), "-c", str(main)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_proxy_sets_what_is_believed_and_passes_nothing_of_a_client() -> None:
    """Forwarded headers that a client sends must not come through (O-40, H-92)."""
    site = (DEPLOY / "nginx.conf").read_text()
    assert "proxy_set_header X-Forwarded-For $remote_addr;" in site
    assert "proxy_set_header X-Forwarded-Proto $scheme;" in site
    assert "$proxy_add_x_forwarded_for" not in site


def test_the_image_runs_the_service_without_rights_and_asks_whether_it_is_ready() -> None:
    image = (DEPLOY / "Dockerfile").read_text()
    assert "\nUSER fw\n" in image
    assert "/api/ready" in image
    assert 'CMD ["fw", "serve"]' in image


def test_the_image_installs_nothing_without_its_hash() -> None:
    image = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    installs = re.findall(r"pip install [^&\n]*", image)
    assert len(installs) == 3
    for install in installs:
        assert "--require-hashes" in install or "--no-deps --no-index /wheels/" in install
    assert set(re.findall(r"constraints[\w-]*\.txt", "".join(installs))) == {
        "constraints.txt", "constraints-build.txt",
    }  # fmt: skip


def test_images_and_actions_are_named_by_what_they_hold() -> None:
    """A tag moves; a digest or a commit does not."""
    image = (DEPLOY / "Dockerfile").read_text()
    assert re.findall(r"^FROM (\S+)", image, re.MULTILINE) == ["${PYTHON_IMAGE}"] * 2
    assert re.search(
        r"^ARG PYTHON_IMAGE=python:3\.11-\S+@sha256:[0-9a-f]{64}$", image, re.MULTILINE
    )
    database = load("compose.yaml")["services"]["database"]["image"]
    assert re.fullmatch(r"postgres:15-bookworm@sha256:[0-9a-f]{64}", database)
    workflows = list((DEPLOY.parent / ".github" / "workflows").glob("*.yml"))
    used = [use for file in workflows for use in re.findall(r"uses: (\S+)", file.read_text())]
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", use) for use in used)


def test_the_pages_install_by_hashes() -> None:
    for name in ("operating.md", "getting-started.md"):
        page = (DEPLOY.parent / "docs" / name).read_text()
        assert "pip install --require-hashes -r constraints.txt" in page
        assert "pip install --no-deps fw_actors-*.whl" in page


def test_the_images_user_owns_the_folder_that_it_writes_before_it_becomes_a_volume() -> None:
    image = (DEPLOY / "Dockerfile").read_text()
    made = image.index("install --directory --owner fw --group fw --mode 0700 /srv/fw/data")
    assert made < image.index("USER fw") < image.index("VOLUME /srv/fw/data")


def test_the_composition_keeps_the_services_key_from_the_database() -> None:
    services = load("compose.yaml")["services"]
    assert services["database"]["env_file"] == "database.env"
    assert services["fw"]["env_file"] == "secrets.env"
    assert services["fw"]["read_only"] is True


def test_the_composition_waits_for_its_database_and_opens_loopback_alone() -> None:
    services = load("compose.yaml")["services"]
    assert services["fw"]["depends_on"]["database"]["condition"] == "service_healthy"
    assert services["fw"]["ports"] == ["127.0.0.1:8000:8000"]
    assert services["fw"]["cap_drop"] == ["ALL"]


def judged_by_promtool(*args: str) -> None:
    """Where Prometheus is; elsewhere only the facts that other tests name are judged."""
    if shutil.which("promtool"):
        done = subprocess.run(
            ["promtool", "check", *args], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_its_configuration_and_the_alerts() -> None:
    judged_by_promtool("config", str(DEPLOY / "prometheus" / "prometheus.yml"))


def firing(tmp_path: Path, alert: str, series: dict[str, str], at: str) -> list[dict[str, Any]]:
    """Return what fires of an alert, as promtool finds it; nothing to compare without it."""
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed")
    case = {"eval_time": at, "alertname": alert, "exp_alerts": []}
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    text = {
        "rule_files": [str(DEPLOY / "prometheus" / "alerts.yml")],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": inputs, "alert_rule_test": [case]}],
    }
    (tmp_path / "case.yml").write_text(yaml.safe_dump(text))
    done = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "case.yml")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    got = (done.stdout + done.stderr).partition("got:")[2]
    return [
        dict(re.findall(r'(\w+)="([^"]*)"', each)) for each in re.findall(r"Labels:{(.*?)}", got)
    ]


def test_the_first_error_of_a_service_is_an_alert(tmp_path: Path) -> None:
    errors = {"fw_server_errors_total": "0x40 1x40"}
    assert firing(tmp_path, "FwServerErrors", errors, "30m") == []
    assert len(firing(tmp_path, "FwServerErrors", errors, "45m")) == 1


@pytest.mark.parametrize(
    ("alert", "queue"), [("FwDeliveriesWait", "webhook"), ("FwMailWaits", "mail")]
)
def test_what_waits_in_the_store_is_one_alert_for_all_nodes(
    tmp_path: Path, alert: str, queue: str
) -> None:
    """Each node reports the same queue."""
    nodes = {f'fw_queue_oldest_seconds{{queue="{queue}",instance="{n}"}}': "400x40" for n in "abc"}
    assert len(firing(tmp_path, alert, nodes, "30m")) == 1


@pytest.mark.parametrize(
    ("alert", "act"), [("FwReceiverFails", "failing"), ("FwWebhookDisabled", "disabled")]
)
def test_a_receiver_that_fails_is_an_alert_and_its_end_is_none(
    tmp_path: Path, alert: str, act: str
) -> None:
    """One process tells of a trouble; the others count nothing (B-340)."""
    series = {
        f'fw_receiver_notices_total{{act="{each}",instance="{node}"}}': "0x100"
        for each in ("failing", "disabled")
        for node in "ab"
    }
    series[f'fw_receiver_notices_total{{act="{act}",instance="b"}}'] = "0x40 1x60"
    series['fw_receiver_notices_total{act="ended",instance="b"}'] = "0x10 1x90"
    assert firing(tmp_path, alert, series, "30m") == []
    assert len(firing(tmp_path, alert, series, "45m")) == 1


def test_a_node_with_stale_subscriptions_is_named_by_an_alert(tmp_path: Path) -> None:
    stale = {"a": "0x40", "b": "2x40"}
    nodes = {f'fw_subscriptions_stale{{instance="{n}"}}': each for n, each in stale.items()}
    (found,) = firing(tmp_path, "FwSubscriptionsStale", nodes, "30m")
    assert found["instance"] == "b"


def test_the_dashboard_shows_what_the_store_holds_once() -> None:
    """`sum` over nodes would show a queue as often as there are nodes."""
    panels = json.loads((DEPLOY / "grafana" / "fw.json").read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    of_the_store = [e for e in asked if re.search("fw_queue|fw_locked", e)]
    assert len(of_the_store) == 3
    assert all(each.startswith("max") for each in of_the_store)


def test_prometheus_understands_what_the_dashboard_asks(tmp_path: Path) -> None:
    panels = json.loads((DEPLOY / "grafana" / "fw.json").read_text())["panels"]
    asked = [
        target["expr"].replace("$instance", ".*") for panel in panels for target in panel["targets"]
    ]
    rules = [{"record": f"panel:{number}", "expr": each} for number, each in enumerate(asked)]
    assert len(rules) >= len(panels)
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    judged_by_promtool("rules", str(file))


def test_every_alert_says_what_has_happened_and_what_to_do() -> None:
    (group,) = load("prometheus/alerts.yml")["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(set(names)) == len(names)
    for rule in group["rules"]:
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["annotations"]["todo"]
        assert rule["labels"]["severity"] in ("page", "ticket")
    assert load("prometheus/prometheus.yml")["rule_files"] == ["alerts.yml"]
