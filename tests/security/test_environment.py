"""No secret stands in the environment of a process that runs, or in its core dump:
docs/security.md, V13.3."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fw_cli.own_environment import take_secrets
from tests.live_site import LiveSite, eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="requires /proc of Linux")

SECRETS = {
    "FW_SECRET_KEY": "a vault key of forty characters at least",
    "FW_SECRET_STRIPE": "sk_live_51Habcd",
    "FW_SMTP_PASSWORD": "the password of the mail account",
}
ENVIRONMENTS = """
import os, posix, subprocess
from pathlib import Path
from fw_actors.app import whitelist

@whitelist(roles=["System Manager"])
def read_environments(fw):
    child = subprocess.run(["cat", "/proc/self/environ"], capture_output=True).stdout
    parent = Path("/proc/self/environ").read_bytes()
    own = fw.secret("stripe")
    return {"own": own, "seen": [str(x) for x in (dict(os.environ), posix.environ, parent, child)]}
"""


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def found_in(block: bytes | str) -> list[str]:
    raw = block if isinstance(block, bytes) else block.encode()
    return [name for name, value in SECRETS.items() if value.encode() in raw]


@pytest.fixture
def site(tmp_path: Path) -> LiveSite:
    (tmp_path / "environments.py").write_text(ENVIRONMENTS)
    return LiveSite(tmp_path, apps=("environments",))


def allow_core_dumps() -> None:
    """Allow them as systemd does for services."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))


@contextmanager
def serving(site: LiveSite, **environ: str) -> Iterator[int]:
    """Run `fw serve` with environment and limits from the kernel, unlike a fork; give its process
    id."""
    process = subprocess.Popen(
        site.command("serve"), cwd=site.folder, env=site.environ(**environ),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=allow_core_dumps,  # noqa: PLW1509
    )  # fmt: skip
    with process:
        try:
            assert process.stdout is not None
            site.url = process.stdout.readline().split()[1]
            yield process.pid
        finally:
            process.terminate()


def test_service_writes_no_core_dump(site: LiveSite) -> None:
    """A dump has every secret of the process, and the watchdog of systemd would cause one."""
    with serving(site) as pid:
        limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
    (soft,) = (line.split()[4] for line in limits if line.startswith("Max core file size"))
    assert soft == "0"


def test_service_environment_contains_no_secret(site: LiveSite) -> None:
    with site:
        site.add_manager()
        with serving(site, FW_SMTP_USER="fw", **SECRETS) as pid, site.client() as client:
            block = environment_of(pid)
            assert found_in(block) == []
            assert b"FW_BIND=127.0.0.1:0\0" in block, "what is no secret stays readable"
            body = client.post("/api/method/environments.read_environments", json={}).json()
    assert body["own"] == SECRETS["FW_SECRET_STRIPE"]
    assert [found_in(seen) for seen in body["seen"]] == [[], [], [], []]


def test_background_service_environment_contains_no_secret(site: LiveSite) -> None:
    environ = {"FW_SMTP_USER": "fw", **SECRETS}
    site.fw("start", **environ)
    try:
        pid = json.loads(site.fw("status", "--json"))["pid"]
        assert found_in(environment_of(pid)) == []
    finally:
        site.fw("stop")


def test_worker_environment_contains_no_secret(site: LiveSite) -> None:
    worker = subprocess.Popen(
        site.command("worker"), cwd=site.folder,
        env=site.environ(FW_SMTP_USER="fw", **SECRETS), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert worker.stderr is not None
        eventually(lambda: "worker.ready" in (worker.stderr.readline() if worker.stderr else ""))
        assert found_in(environment_of(worker.pid)) == []
    finally:
        worker.terminate()
        worker.communicate(timeout=30)


def test_take_secrets_removes_database_password() -> None:
    """A process of its own, since the environment that is overwritten is the process's."""
    url = "postgresql://fw:hunter2@localhost/fw"
    script = (
        "import os, posix\n"
        "from fw_cli.own_environment import take_secrets\n"
        "before, gone = take_secrets(os.environ, posix.environ)\n"
        "print(before['FW_DATABASE'], gone, 'FW_DATABASE' in os.environ)\n"
        "print('hunter2' in open('/proc/self/environ').read(), os.environ['FW_LOG'])\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script], env={"FW_DATABASE": url, "FW_LOG": "json", "E": ""},
        cwd=root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [f"{url} True False", "False json"]


def test_take_secrets_unsets_variables_without_proc(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("fw_cli.own_environment.STAT", tmp_path / "no-proc")
    environ = {"FW_SECRET_KEY": "x", "FW_LOG": "json"}
    raw = {b"FW_SECRET_KEY": b"x", b"FW_LOG": b"json"}
    before, gone = take_secrets(environ, raw)
    assert (environ, raw) == ({"FW_LOG": "json"}, {b"FW_LOG": b"json"})
    assert before["FW_SECRET_KEY"] == "x"
    assert not gone
    assert take_secrets({"FW_LOG": "json"}, {}) == ({"FW_LOG": "json"}, True)
