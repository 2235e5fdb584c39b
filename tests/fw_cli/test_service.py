"""`serve`, `start`, `stop`, `restart`, `status`, `worker`, as real processes (C-106 to C-109)."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlsplit

import httpx
import pytest

from fw_actors import __version__
from fw_cli.context import CommandContext
from fw_cli.errors import CommandFailed
from fw_cli.service import run_logged, warn_of_environment
from tests.fw_cli.conftest import CommandLine
from tests.live_site import NO_TLS, eventually
from tests.mail_kit import RecordingLog


@pytest.fixture(autouse=True)
def nothing_left(fw: CommandLine) -> Iterator[None]:
    yield
    fw.run("stop")


def served(fw: CommandLine) -> tuple[subprocess.Popen[str], str]:
    process = fw.process("serve")
    assert process.stdout is not None
    word, url = process.stdout.readline().split()
    assert word == "ready"
    return process, url


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for its end; return exit code and the rest of stdout and stderr."""
    stdout, stderr = process.communicate(timeout=30)
    return process.returncode, stdout, stderr


def facts(fw: CommandLine) -> dict[str, Any]:
    known: dict[str, Any] = fw.json("status", "--json")
    assert set(known) == {"state", "pid", "url", "version"}
    return known


def accepts(url: str) -> bool:
    where = urlsplit(url)
    try:
        socket.create_connection((where.hostname, where.port), timeout=5).close()
    except OSError:
        return False
    return True


def test_serve_prints_ready_once_and_exits_0(fw: CommandLine) -> None:
    process, url = served(fw)
    assert accepts(url)
    assert facts(fw) == {
        "state": "running", "pid": process.pid, "url": url, "version": __version__,
    }  # fmt: skip
    process.send_signal(signal.SIGTERM)
    code, stdout, log = ended(process)
    assert (code, stdout) == (0, ""), log
    assert "service.ready" in log
    assert not accepts(url)
    assert facts(fw)["state"] == "stopped"


def test_second_serve_exits_1_and_names_process(fw: CommandLine) -> None:
    process, url = served(fw)
    code, stdout, said = ended(fw.process("serve"))
    assert (code, stdout) == (1, "")
    assert f"process {process.pid} already serves" in said
    assert "Traceback" not in said
    assert "internal error" not in said
    assert accepts(url)
    process.terminate()
    assert ended(process)[0] == 0


def test_serve_and_start_name_taken_address(fw: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        fw.environ["FW_BIND"] = f"127.0.0.1:{taken.getsockname()[1]}"
        code, stdout, said = ended(fw.process("serve"))
        assert (code, stdout) == (1, "")
        assert fw.environ["FW_BIND"] in said
        assert "Traceback" not in said
        assert "internal error" not in said
        assert "FW_BIND" in fw.refused("start")


def test_start_status_restart_and_stop_work_together(fw: CommandLine) -> None:
    assert fw.done("status") == "stopped\n"
    assert fw.done("start").startswith("running at http://127.0.0.1:")
    first = facts(fw)
    assert accepts(first["url"])
    assert fw.done("start").startswith("already running at http://127.0.0.1:")
    assert facts(fw) == first
    fw.done("restart")
    second = facts(fw)
    assert (second["state"], second["pid"] != first["pid"]) == ("running", True)
    assert fw.done("stop") == "stopped\n"
    assert facts(fw) == {"state": "stopped", "pid": None, "url": None, "version": None}
    assert not accepts(second["url"])
    assert fw.done("stop") == "was not running\n"


def test_stop_works_despite_broken_configuration(fw: CommandLine) -> None:
    fw.done("start")
    (fw.folder / "fw.json").write_text("{")
    assert facts(fw)["state"] == "running"
    fw.refused("restart")
    assert facts(fw)["state"] == "running"
    assert fw.done("stop") == "stopped\n"


@pytest.mark.parametrize(
    ("policy", "method", "reason"),
    [
        ('{"apps": ["broken"]}', "", "apps: broken cannot be imported"),
        ("{}", "broken.send", "FW_MAIL_METHOD: broken cannot be imported"),
        ('{"auth": {"breachedPasswords": "none.txt"}}', "", "none.txt cannot be read"),
    ],
)
def test_restart_keeps_service_if_app_or_file_of_policy_is_unusable(
    fw: CommandLine, policy: str, method: str, reason: str
) -> None:
    """Such an error would leave the site without a service."""
    fw.done("start")
    before = facts(fw)
    (fw.folder / "fw.json").write_text(policy)
    (fw.folder / "broken.py").write_text("raise RuntimeError\n")
    if method:
        fw.environ.update(FW_MAIL_TRANSPORT="method", FW_MAIL_METHOD=method)
    assert reason in fw.refused("restart")
    assert facts(fw) == before
    fw.done("stop")


def test_restart_keeps_service_if_database_does_not_answer(fw: CommandLine) -> None:
    """The new service could not start, and the old one may reach it again."""
    fw.done("start")
    before = facts(fw)
    said = fw.refused("restart", FW_DATABASE="postgresql://fw@127.0.0.1:1/fw")
    assert "The database cannot be opened: " in said
    assert facts(fw) == before


def test_start_reports_configuration_problem(fw: CommandLine) -> None:
    assert "FW_LOG" in fw.refused("start", FW_LOG="pigeon")
    assert not (fw.folder / "data").exists()


def test_unknown_variable_is_logged_by_service_and_worker(fw: CommandLine) -> None:
    """It is ignored with a warning (C-52)."""
    fw.environ["FW_PUBLIC_ULR"] = "https://x.test"
    said = "FW_PUBLIC_ULR is unknown and ignored; did you mean FW_PUBLIC_URL?"
    process, _ = served(fw)
    worker = fw.process("worker")
    assert worker.stderr is not None
    lines = [worker.stderr.readline()]
    while "worker.ready" not in lines[-1]:
        assert lines[-1], "it ended"
        lines.append(worker.stderr.readline())
    assert said in "".join(lines)
    worker.terminate()
    process.terminate()
    assert said in ended(process)[2]
    code, _, log = ended(worker)
    assert code == 0
    assert "worker.stopped" in log
    assert f"warning: environment: {said}" in fw.done("start")


def test_environment_that_shows_secrets_is_logged() -> None:
    """docs/operating.md: once if they could not be overwritten, and not otherwise."""
    log = RecordingLog()
    for exposed in (True, False):
        context = Mock(spec=CommandContext, exposed=exposed, config=Mock(warnings=()))
        warn_of_environment(context, log)  # type: ignore[arg-type]
    assert [event for event, _ in log.entries] == ["service.environment_shows_secrets"]


def test_defect_of_service_is_logged_and_ends_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/operating.md: `service.crashed` has the traceback; the command fails with a sentence."""
    for hook in ("threading.excepthook", "sys.unraisablehook"):
        monkeypatch.setattr(hook, None)  # set for the rest of the process, and put back
    log, defect = RecordingLog(), RuntimeError("a defect")

    async def run() -> None:
        raise defect

    with pytest.raises(CommandFailed, match="the service has crashed; see its log"):
        run_logged(run, log, tuned=False)  # type: ignore[arg-type]
    assert log.entries == [("service.crashed", {"exc_info": defect})]


def test_workers_join_service_and_exit_0(fw: CommandLine) -> None:
    """A worker serves its health at the given address; the doctor reports both workers."""
    process, _ = served(fw)
    workers = [fw.process("worker"), fw.process("worker", "--metrics", "127.0.0.1:0")]
    lines = []
    for worker in workers:
        assert worker.stderr is not None
        while "worker.ready" not in (line := worker.stderr.readline()):
            assert line, "it ended"
        lines.append(line)
    assert "url=" not in lines[0]
    assert accepts(lines[1].rpartition("url=")[2].strip())
    section = fw.json("doctor", "--json")["sections"]["service"]
    assert (section["workers"], section["warnings"]) == (2, [])
    for each in (*workers, process):
        each.terminate()
    assert [ended(each)[:2] for each in (*workers, process)] == [(0, "")] * 3
    assert list((fw.folder / "data" / "workers").iterdir()) == []


@pytest.mark.parametrize("address", ["9101", "127.0.0.1:x", "127.0.0.1:70000"])
def test_worker_refuses_invalid_metrics_address(fw: CommandLine, address: str) -> None:
    done = fw.run("worker", "--metrics", address)
    assert done.exit_code == 2
    assert "must be host:port" in done.stderr


def test_serve_logs_json_if_configured(fw: CommandLine) -> None:
    fw.environ["FW_LOG"] = "json"
    process, url = served(fw)
    process.terminate()
    events = [json.loads(line) for line in ended(process)[2].splitlines()]
    assert [e["url"] for e in events if e["event"] == "service.ready"] == [url]


@pytest.mark.parametrize("closed", ["1", "2", "0 1 2"])
def test_serve_works_with_closed_streams(fw: CommandLine, closed: str) -> None:
    """C-134; some schedulers and init scripts start programs like this."""
    closing = " ".join(f"{number}>&-" for number in closed.split())
    command = [sys.executable, "-P", "-m", "fw_cli", "serve"]
    process = subprocess.Popen(
        ["/bin/sh", "-c", f'exec "$@" {closing}', "sh", *command],
        cwd=fw.folder,
        env={**os.environ, **fw.environ},
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: process.poll() is not None or facts(fw)["state"] == "running")
        assert process.poll() is None
        opened = [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)]
        assert {opened[int(number)] for number in closed.split()} == {os.devnull}
        assert fw.done("stop") == "stopped\n"
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


def test_serve_answers_while_its_log_is_not_read(fw: CommandLine) -> None:
    """O-108: the reader of a pipe, such as a container's log driver, may stop."""
    read, write = os.pipe()
    try:
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
        process = fw.process("serve", stderr=write)
        os.close(write)
        assert process.stdout is not None
        _, url = process.stdout.readline().split()
        for _ in range(100):
            assert httpx.get(f"{url}/api/boot", timeout=10, verify=NO_TLS).status_code == 200
        assert fw.done("stop") == "stopped\n"
        assert ended(process)[0] == 0
    finally:
        os.close(read)


def test_command_works_with_closed_output(fw: CommandLine) -> None:
    """C-134: the exit code is all that it can report."""
    command = [sys.executable, "-P", "-m", "fw_cli", "user", "list"]
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&- 2>&-', "sh", *command],
        cwd=fw.folder,
        env={**os.environ, **fw.environ},
        check=False,
    )
    assert done.returncode == 0


def test_background_json_log_contains_only_json(fw: CommandLine) -> None:
    """Log shippers of a background service read JSON (C-106)."""
    fw.environ["FW_LOG"] = "json"
    fw.done("start")
    fw.done("stop")
    log = (fw.folder / "data" / "serve.log").read_text()
    assert "service.ready" in {json.loads(line)["event"] for line in log.splitlines()}


def test_start_succeeds_after_service_was_killed(fw: CommandLine) -> None:
    fw.done("start")
    os.kill(facts(fw)["pid"], signal.SIGKILL)
    while facts(fw)["state"] != "stopped":
        pass
    fw.done("start")
    assert facts(fw)["state"] == "running"


def test_start_names_undecryptable_secrets(fw: CommandLine) -> None:
    """A key that is missing burns deliveries for good, so the start says it (C-132)."""
    webhook = (
        'fw.new_doc("Webhook", event_type="Custom", custom_event="a", url="http://127.0.0.1:9/",'
        ' secret="a secret of some length").insert().name'
    )
    fw.done("eval", "--commit", webhook)
    assert "warning" not in fw.done("start")
    fw.done("stop")
    del fw.environ["FW_SECRET_KEY"]
    said = fw.done("start")
    assert said.startswith("running at ")
    assert (
        "warning: 1 of the values in Webhook, field secret, cannot be decrypted: "
        "FW_SECRET_KEY is not set\n" in said
    )
    assert "fail permanently" in said
    log = (fw.folder / "data" / "serve.log").read_text()
    assert log.count("service.secrets_unreadable") == 1
    (fw.folder / "secret.key").write_text("k" * 40)  # as fw init puts it
    (fw.folder / "secret.key").chmod(0o600)
    assert "warning" not in fw.done("restart")
