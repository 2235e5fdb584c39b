"""The unit, the proxy, the image and the alerts of deploy/."""

from __future__ import annotations

import configparser
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import tomllib
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import httpx
import pytest
import trustme
import yaml

from benchmarks.access.service import TUNABLES
from fw_actors.config.parsing import CREDENTIAL
from supervisors.service.process import END_SECONDS, GRACEFUL_SECONDS
from tests.deploy.scaling_page import balancer
from tests.installed_wheel import InstalledWheel, build_wheel
from tests.nginx import free_port, nginx

DEPLOY = Path(__file__).parents[2] / "deploy"


def load(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text())


SERVICE, WORKER = "fw.service", "fw-worker@.service"
BACKUP, TIMER = "fw-backup.service", "fw-backup.timer"


@pytest.mark.parametrize("name", [SERVICE, WORKER])
def test_unit_waits_for_ready_and_graceful_stop(name: str) -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / name)
    service = unit["Service"]
    assert (service["Type"], service["User"]) == ("notify", "fw")
    assert int(service["TimeoutStopSec"]) > GRACEFUL_SECONDS + END_SECONDS
    assert service["ReadWritePaths"] == f"{service['WorkingDirectory']}/data"
    assert (service["WatchdogSec"], service["Restart"]) == ("60", "always")


def test_worker_unit_has_settings_of_service_unit() -> None:
    """The two differ only in settings for HTTP, the console and hashes."""
    service, worker = ((DEPLOY / name).read_text().splitlines() for name in (SERVICE, WORKER))
    own = {line for line in service if line and line[0] != "#"} - set(worker)
    assert {line.partition("=")[0] for line in own} == {
        "Description", "After", "Environment", "ExecStart", "KillMode", "OOMPolicy",
        "RuntimeDirectory",
        "RuntimeDirectoryMode", "SystemCallFilter",
    }  # fmt: skip
    assert "ExecStart=/opt/fw/bin/fw worker --metrics 127.0.0.1:%i" in worker


def test_prometheus_scrapes_documented_worker() -> None:
    jobs = {job["job_name"]: job for job in load("prometheus/prometheus.yml")["scrape_configs"]}
    assert jobs["fw-worker"]["static_configs"] == [{"targets": ["127.0.0.1:9101"]}]
    page = (DEPLOY.parent / "docs" / "operating.md").read_text()
    assert "systemctl enable --now fw-worker@9101" in page


def lines_of(key: str) -> list[str]:
    """Return the values of `key` in the unit, in order: later lines add to earlier ones."""
    unit = (DEPLOY / "fw.service").read_text().splitlines()
    return [line.removeprefix(f"{key}=") for line in unit if line.startswith(f"{key}=")]


def test_unit_survives_loss_of_one_process_to_lack_of_memory() -> None:
    """systemd would otherwise stop all processes of the service (OOMPolicy=stop, its default)."""
    assert lines_of("OOMPolicy") == ["continue"]


@pytest.mark.parametrize("name", [SERVICE, WORKER])
def test_unit_keeps_all_log_entries(name: str) -> None:
    """journald drops what exceeds 10,000 lines in 30 s, warnings too; a busy service has more."""
    assert "LogRateLimitIntervalSec=0" in (DEPLOY / name).read_text().splitlines()


def test_unit_allows_setpriority_and_refuses_calls_with_eperm() -> None:
    """@resources holds setpriority, which each hashing thread calls; and what a filter refuses
    kills the process unless it is given an error."""
    assert lines_of("SystemCallFilter")[-1] == "setpriority"
    assert lines_of("SystemCallErrorNumber") == ["EPERM"]


def test_malloc_tunables_are_same_in_all_starts() -> None:
    """With other settings a hash is slower there, and the benchmark measures another service."""
    setting = f"GLIBC_TUNABLES={TUNABLES}"
    root = DEPLOY.parent
    assert lines_of("Environment")[-1] == setting
    assert setting in (DEPLOY / "Dockerfile").read_text().split()
    assert f"{{GLIBC_TUNABLES:-{TUNABLES}}}" in (root / "scripts" / "venv.bash").read_text()
    assert f"`{setting}`" in (root / "docs" / "operating.md").read_text()


def test_unit_gives_console_socket_runtime_directory() -> None:
    assert lines_of("PrivateTmp") == ["yes"]
    assert lines_of("RuntimeDirectory") == ["fw"]
    assert lines_of("RuntimeDirectoryMode") == ["0700"]


def test_unit_passes_key_as_credential_only() -> None:
    (credential,) = lines_of("LoadCredential")
    assert credential == f"{CREDENTIAL}:/etc/fw/secret.key"
    assert lines_of("EnvironmentFile") == ["-/etc/fw/secrets.env"]
    page = (DEPLOY.parent / "docs" / "operating.md").read_text()
    assert f"--property=LoadCredential={credential}" in page
    assert "FW_SECRET_KEY=" not in (DEPLOY / "fw.service").read_text() + page


def test_unit_writes_folder_created_by_operating_page() -> None:
    """systemd starts no unit whose ReadWritePaths= is not there."""
    page = (DEPLOY.parent / "docs" / "operating.md").read_text()
    (writable,) = lines_of("ReadWritePaths")
    assert f"install -d -o fw -g fw -m 0700 {writable} " in page


def test_backup_unit_is_confined_like_worker_unit() -> None:
    """It starts another program, has no key, and its own folder beside the site's data."""
    backup, worker = ((DEPLOY / name).read_text().splitlines() for name in (BACKUP, WORKER))
    missing = {line for line in worker if line and line[0] != "#"} - set(backup)
    assert {line.partition("=")[0] for line in missing} == {
        "Description", "After", "Type", "LoadCredential", "Environment", "ExecStart", "WatchdogSec",
        "TimeoutStartSec", "TimeoutStopSec", "Restart", "RestartSec", "LimitNOFILE", "[Install]",
        "WantedBy", "LogRateLimitIntervalSec",
    }  # fmt: skip


def backup_commands(fw: Path) -> list[str]:
    """The commands of the unit as systemd gives them to the shell, with another `fw`."""
    unit = (DEPLOY / BACKUP).read_text()
    lines = re.findall(r"^ExecStart(?:Post)?=/bin/sh -c '(.*)'$", unit, re.MULTILINE)
    return [line.replace("%%", "%").replace("/opt/fw/bin/fw", str(fw)) for line in lines]


def test_backup_unit_creates_backup_and_deletes_old_ones(
    tmp_path: Path, installed_wheel: InstalledWheel
) -> None:
    site, kept = tmp_path / "site", tmp_path / "kept"
    site.mkdir()
    kept.mkdir()
    (site / "fw.json").write_text('{"site": {"name": "desk"}}')
    old, recent, other = kept / "old.backup", kept / "recent.backup", kept / "notes.txt"
    begun, killed = kept / ".begun.backup.part", kept / ".killed.backup.part-journal"
    for file, days in ((old, 16), (recent, 13), (other, 16), (begun, 0), (killed, 3)):
        file.touch()
        os.utime(file, (time.time() - days * 86_400,) * 2)
    environ = installed_wheel.environ(STATE_DIRECTORY=str(kept))
    fw = installed_wheel.venv / "bin" / "fw"
    subprocess.run([fw, "migrate"], cwd=site, env=environ, check=True)
    commands = backup_commands(fw)
    assert len(commands) == 2
    for command in commands:
        subprocess.run(["/bin/sh", "-c", command], cwd=site, env=environ, check=True)
    made = {file.name for file in kept.iterdir()} - {recent.name, other.name, begun.name}
    assert [re.sub(r"\d", "0", name) for name in made] == ["00000000T000000Z.backup"]


def test_operating_page_keeps_key_before_its_replacement() -> None:
    """Backups from before a rotation need the old key."""
    page = (DEPLOY.parent / "docs" / "operating.md").read_text()
    kept = page.index("mv /etc/fw/secret.key /etc/fw/secret.key.old\n")
    assert kept < page.index("mv /srv/fw/new.key /etc/fw/secret.key ")


def test_operating_page_starts_backup_timer() -> None:
    page = (DEPLOY.parent / "docs" / "operating.md").read_text()
    assert f"cp deploy/{BACKUP} deploy/{TIMER} " in page
    assert f"systemctl enable --now {TIMER}\n" in page


@pytest.mark.parametrize("name", [SERVICE, WORKER, BACKUP, TIMER])
def test_systemd_verifies_units(tmp_path: Path, name: str) -> None:
    """Runs where systemd is installed; elsewhere the tests above check the units."""
    if shutil.which("systemd-analyze"):
        for each in (BACKUP, TIMER):  # a timer names its service
            (tmp_path / each).write_text(
                (DEPLOY / each).read_text().replace("/opt/fw/bin/fw", "true")
            )
        unit = tmp_path / name.replace("@", "@9101")
        text = (DEPLOY / name).read_text()
        unit.write_text(text.replace("/opt/fw/bin/fw ", "/bin/true "))
        done = subprocess.run(
            ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "configuration", [(DEPLOY / "nginx.conf").read_text(), balancer()], ids=["deploy", "scaling"]
)
def test_nginx_accepts_proxy_configuration(configuration: str, tmp_path: Path) -> None:
    certificate = trustme.CA().issue_cert("fw.example.org")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "fullchain.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "privkey.pem")
    site = configuration.replace("/etc/ssl/fw", str(tmp_path))
    main = tmp_path / "nginx.conf"
    main.write_text(
        f"pid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{ access_log off;\n{site} }}"
    )
    program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    assert program is not None, "./scripts/test installs what tests/debian-packages.txt names"
    done = subprocess.run(
        [program, "-t", "-q", "-p", str(tmp_path), "-c", str(main)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_proxy_redirects_to_the_name_of_the_site_only(tmp_path: Path) -> None:
    """The Host header is the client's: a cache would keep a redirect to another site."""
    plain, _, _ = (DEPLOY / "nginx.conf").read_text().partition("    listen 443")
    server = plain[plain.index("server {\n    listen 80;") : plain.rindex("server {")]
    port = free_port()
    server = server.replace("listen 80;", f"listen 127.0.0.1:{port};").replace(
        "listen [::]:80;", ""
    )
    with nginx(tmp_path, server, port):
        answer = httpx.get(
            f"http://127.0.0.1:{port}/app?x=1", headers={"Host": "evil.example"}, timeout=30
        )
    assert answer.status_code == 301
    assert answer.headers["location"] == "https://fw.example.org/app?x=1"


def test_proxy_overwrites_forwarding_headers_of_client() -> None:
    """Forwarded headers that a client sends must not come through (O-40, H-92)."""
    site = (DEPLOY / "nginx.conf").read_text()
    assert "proxy_set_header X-Forwarded-For $remote_addr;" in site
    assert "proxy_set_header X-Forwarded-Proto $scheme;" in site
    assert "$proxy_add_x_forwarded_for" not in site


def test_image_runs_as_own_user_and_checks_readiness() -> None:
    image = (DEPLOY / "Dockerfile").read_text()
    assert "\nUSER fw\n" in image
    assert 'CMD ["fw", "serve"]' in image


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (None, 1)])
def test_image_health_check_exits_by_readiness(status: int | None, code: int) -> None:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path != "/api/ready" else status or 0)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    image = (DEPLOY / "Dockerfile").read_text().replace("\\\n", "")
    (command,) = re.findall(r"^HEALTHCHECK .*? CMD (.*)$", image, re.MULTILINE)
    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        port = str(server.server_address[1])
        thread = threading.Thread(target=server.handle_request, daemon=True)
        if status is None:
            server.server_close()
        else:
            thread.start()
        _, *options, program = json.loads(command)
        done = subprocess.run(
            [sys.executable, *options, program.replace("8000", port)],
            capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr


def test_image_installs_by_hashes_only() -> None:
    image = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    installs = re.findall(r"pip install [^&\n]*", image)
    assert len(installs) == 3
    for install in installs:
        assert "--require-hashes" in install or "--no-deps --no-index /wheels/" in install
    assert set(re.findall(r"constraints[\w-]*\.txt", "".join(installs))) == {
        "constraints.txt", "constraints-build.txt",
    }  # fmt: skip


def copied_into_the_image() -> list[str]:
    """The sources of the COPY lines of the image's first part."""
    image = (DEPLOY / "Dockerfile").read_text().partition("\nFROM ${PYTHON_IMAGE}\n")[0]
    lines = re.findall(r"^COPY (.*) \S+$", image, re.MULTILINE)
    return [each for line in lines for each in line.split()]


def test_dockerignore_admits_exactly_copied_files() -> None:
    lines = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    assert lines[0] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == set(copied_into_the_image())


def test_image_builds_whole_wheel(tmp_path: Path, installed_wheel: InstalledWheel) -> None:
    """Its steps without an engine: the wheel of what it copies has what every wheel has."""
    source = tmp_path / "src"
    source.mkdir()
    for name in copied_into_the_image():
        each = DEPLOY.parent / name
        copy = shutil.copytree if each.is_dir() else shutil.copy
        copy(each, source / name)
    wheel = build_wheel(source, tmp_path / "wheels")
    built, whole = (
        {name for name in ZipFile(each).namelist() if ".dist-info/" not in name}
        for each in (wheel, installed_wheel.wheel)
    )
    assert {name for name in built if "__pycache__" not in name} == whole


def build_of(sources: Path) -> str:
    """Return version and commit of what is built from a folder of sources."""
    command = [sys.executable, "hatch_build.py"]
    return subprocess.run(command, cwd=sources, capture_output=True, text=True, check=True).stdout


def test_source_archive_has_deployment_and_image_files(
    tmp_path: Path,
) -> None:
    """The page of operating names files of deploy/, which the wheel does not have. A wheel that is
    built from it names its commit."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)],
        cwd=DEPLOY.parent, capture_output=True, check=True,
    )  # fmt: skip
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    subprocess.run(["tar", "-xf", archive, "-C", tmp_path], check=True)
    ours = {str(each.relative_to(DEPLOY.parent)) for each in DEPLOY.rglob("*.*") if each.is_file()}
    assert {*ours, "deploy/Dockerfile", ".dockerignore"} <= names
    tops = {name.partition("/")[0] for name in names}
    assert set(copied_into_the_image()) <= names | tops
    of_archive = tmp_path / archive.name.removesuffix(".tar.gz")
    assert build_of(of_archive) == build_of(DEPLOY.parent)


def test_images_and_actions_are_pinned_by_digest() -> None:
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


def test_dependabot_updates_digests_and_commits() -> None:
    """A pinned image keeps the defects of its day."""
    updates = yaml.safe_load((DEPLOY.parent / ".github" / "dependabot.yml").read_text())["updates"]
    assert {(each["package-ecosystem"], each["directory"]) for each in updates} == {
        ("github-actions", "/"), ("docker", "/deploy"), ("docker-compose", "/deploy"),
    }  # fmt: skip


def test_workflow_tests_oldest_and_newest_python() -> None:
    root = DEPLOY.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    versions = re.findall(r":: Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    jobs = yaml.safe_load((root / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == [versions[0], versions[-1]]
    assert jobs["alone"]["strategy"]["matrix"]["python"] == versions


def test_image_has_pg_dump_of_documented_server() -> None:
    """pg_dump refuses a newer server; Debian 13 has client programs of version 17 alone."""
    image = (DEPLOY / "Dockerfile").read_text()
    assert re.search(r"^ARG PYTHON_IMAGE=python:[\d.]+-slim-trixie@", image, re.MULTILINE)
    assert re.findall(r"postgresql-client-(\d+)", image) == ["17"]
    page = (DEPLOY.parent / "docs" / "operating.md").read_text()
    assert "`pg_dump` of PostgreSQL 17" in page
    database: str = load("compose.yaml")["services"]["database"]["image"]
    assert int(database.removeprefix("postgres:").partition("-")[0]) <= 17


def test_install_pages_require_hashes() -> None:
    for name in ("operating.md", "getting-started.md"):
        page = (DEPLOY.parent / "docs" / name).read_text()
        assert "pip install --require-hashes -r constraints.txt" in page
        assert "pip install --no-deps fw_actors-*.whl" in page


def test_image_data_folder_is_owned_before_volume() -> None:
    image = (DEPLOY / "Dockerfile").read_text()
    made = image.index("install --directory --owner fw --group fw --mode 0700 /srv/fw/data")
    assert made < image.index("USER fw") < image.index("VOLUME /srv/fw/data")


def test_composition_keeps_key_from_database_container() -> None:
    services = load("compose.yaml")["services"]
    assert services["database"]["env_file"] == "database.env"
    assert services["fw"]["env_file"] == "secrets.env"
    assert services["fw"]["read_only"] is True


def test_composition_limits_logs_of_containers() -> None:
    """Docker's default driver, json-file, never deletes a line."""
    for service in load("compose.yaml")["services"].values():
        assert service["logging"]["driver"] == "local"
        assert set(service["logging"]["options"]) == {"max-size", "max-file"}


def test_composition_waits_for_database_and_opens_loopback() -> None:
    services = load("compose.yaml")["services"]
    assert services["fw"]["depends_on"]["database"]["condition"] == "service_healthy"
    assert services["fw"]["ports"] == ["127.0.0.1:8000:8000"]
    assert services["fw"]["cap_drop"] == ["ALL"]


def test_composition_trusts_only_proxy_of_its_machine() -> None:
    """A container of the network could otherwise choose the address that is throttled."""
    composition = load("compose.yaml")
    (network,) = composition["networks"]["default"]["ipam"]["config"]
    trusted = composition["services"]["fw"]["environment"]["FW_TRUST_PROXY"]
    assert trusted == network["gateway"]
    assert ip_address(trusted) in ip_network(network["subnet"])
