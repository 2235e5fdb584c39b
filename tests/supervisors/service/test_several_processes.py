"""A service of several processes, as real processes (O-42 to O-48).

One service serves most tests. A process is frozen (SIGSTOP) where the other one has to answer.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisors.service import background, site_files
from supervisors.service.background import RunState
from supervisors.service.process import ServingState
from supervisors.service.site_files import SitePaths, is_held
from tests.live_site import NO_TLS, PASSWORD, SECRET, LiveReceiver, LiveSite, eventually
from tests.postgres_cluster import postgres_cluster
from tests.webhook_kit import make_webhook

pytestmark = pytest.mark.timeout(300)
UNUSED = "a secret that nothing uses"
DEVELOPMENT = {"FW_MODE": "development"}
CSRF = {"X-FW-CSRF": "1"}
READY = re.compile(r"process\.ready +pid=(\d+) process=(\d)")


def log_of(site: LiveSite) -> str:
    return (site.folder / "serve.log").read_text()


def pids(site: LiveSite) -> dict[int, int]:
    """Return the newest process of each number."""
    return {int(number): int(pid) for pid, number in READY.findall(log_of(site))}


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state != b"Z"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    with LiveSite(tmp_path_factory.mktemp("several"), ops={"processes": 2}) as site:
        site.add_manager()
        site.start(**DEVELOPMENT, FW_SECRET_UNUSED=UNUSED)
        yield site
        assert site.end() == 0, log_of(site)


@pytest.fixture(scope="module")
def cookie(site: LiveSite) -> dict[str, str]:
    with site.client() as client:
        return {"sid": client.cookies["sid"]}


@contextmanager
def client_of(
    site: LiveSite, cookie: dict[str, str], number: int, *, thaw: bool = True
) -> Iterator[httpx.Client]:
    """A client whose connection is that of one process: the others are frozen when it is made."""
    others = [pid for each, pid in pids(site).items() if each != number]
    with httpx.Client(
        base_url=site.url, headers=CSRF, cookies=cookie, timeout=60, verify=NO_TLS
    ) as client:
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        try:
            assert client.get("/api/health").status_code == 200
            if not thaw:
                yield client
        finally:
            for pid in others:
                os.kill(pid, signal.SIGCONT)
        if thaw:
            yield client


def samples(text: str, name: str) -> dict[str, float]:
    """Return the samples of a metric by their labels."""
    rows = (line.rpartition(" ") for line in text.splitlines() if line.startswith(f"{name}{{"))
    return {labels: float(value) for labels, _, value in rows}


def test_processes_accept_on_the_same_address(site: LiveSite, cookie: dict[str, str]) -> None:
    """One socket, of which each takes connections (O-42)."""
    before = samples(httpx.get(f"{site.url}/metrics").text, "fw_requests_total")
    for number in (1, 2):
        with client_of(site, cookie, number) as client:
            assert client.get("/api/ready").json() == {"ok": True}
    after = samples(httpx.get(f"{site.url}/metrics").text, "fw_requests_total")
    for number in (1, 2):
        label = f'fw_requests_total{{process="{number}",route="/api/ready",status="200"}}'
        assert after[label] == before.get(label, 0) + 1


def test_metrics_of_any_process_cover_all_processes(site: LiveSite, cookie: dict[str, str]) -> None:
    """Figures of the store appear once (O-122)."""
    for number in (1, 2):
        with client_of(site, cookie, number) as client:
            text = client.get("/metrics").text
        assert samples(text, "fw_process_up") == {
            'fw_process_up{process="1"}': 1.0,
            'fw_process_up{process="2"}': 1.0,
        }
        assert len(samples(text, "process_resident_memory_bytes")) == 2
        assert 'fw_queue_jobs{queue="webhook",state="ready"}' in text


def test_metrics_omit_a_process_that_does_not_answer(
    site: LiveSite, cookie: dict[str, str]
) -> None:
    with client_of(site, cookie, 1, thaw=False) as client:
        text = client.get("/metrics").text
    assert samples(text, "fw_process_up") == {
        'fw_process_up{process="1"}': 1.0,
        'fw_process_up{process="2"}': 0.0,
    }


@pytest.mark.parametrize(("saver", "writer"), [(1, 2), (2, 1)])
def test_saved_webhook_applies_to_the_next_write_of_another_process(
    site: LiveSite, cookie: dict[str, str], saver: int, writer: int
) -> None:
    """The save needs no other process, and the next write of that process uses it (B-46)."""
    event = f"saved.by_{saver}"
    custom = {"event_type": "Custom", "custom_event": event, "secret": SECRET}
    with client_of(site, cookie, saver) as saving, client_of(site, cookie, writer) as writing:
        body = {"name": event, "data": {}}
        emit = "/api/method/core.services.webhooks.emit"
        assert writing.post(emit, json=body).json() == {"deliveries": []}
        made = saving.post("/api/resource/Webhook", json={"url": "http://127.0.0.1:9", **custom})
        assert made.status_code == 201, made.text
        assert len(writing.post(emit, json=body).json()["deliveries"]) == 1
        hook = made.json()["data"]["name"]
        assert saving.put(f"/api/resource/Webhook/{hook}", json={"enabled": 0}).status_code == 200
        assert writing.post(emit, json=body).json() == {"deliveries": []}


def test_session_ended_in_one_process_is_ended_in_all(
    site: LiveSite, cookie: dict[str, str]
) -> None:
    with client_of(site, {}, 1) as one:
        assert one.post("/api/login", json={"usr": "admin", "pwd": PASSWORD}).status_code == 200
        own = {"sid": one.cookies["sid"]}
        with client_of(site, own, 2) as other:
            profile = "/api/method/core.services.profile.getMyProfile"
            assert other.get(profile).status_code == 200
            assert one.post("/api/logout").status_code == 200
            assert other.get(profile).status_code == 401


def test_lockout_counts_failures_of_all_processes(site: LiveSite, cookie: dict[str, str]) -> None:
    wrong = {"usr": "nobody@example.test", "pwd": "wrong"}
    with client_of(site, {}, 1) as one, client_of(site, {}, 2) as other:
        answers = [client.post("/api/login", json=wrong) for client in (one, other, one, other)]
        assert [answer.status_code for answer in answers] == [401] * 4
        assert one.post("/api/login", json=wrong).status_code == 429
        assert other.post("/api/login", json=wrong).status_code == 429
        with client_of(site, cookie, 2) as manager:
            fw = "/api/method/core.services.users.unlockUser"
            assert manager.post(fw, json={"user": "admin"}).status_code == 200
        assert other.post("/api/login", json=wrong).status_code == 429


def console(site: LiveSite, **line: object) -> dict[str, object]:
    """Ask the console's socket."""
    path = (site.folder / "data" / "console.address").read_bytes()
    with socket.socket(socket.AF_UNIX) as client, client.makefile("rb") as answers:
        client.settimeout(60)
        client.connect(path)
        client.sendall(json.dumps(line).encode() + b"\n")
        answer: dict[str, object] = json.loads(answers.readline())
    return answer


def test_console_shows_and_controls_actors_of_all_processes(site: LiveSite) -> None:
    """An actor is named with its process (H-176)."""
    view = console(site, do="view")["view"]
    assert isinstance(view, dict)
    assert {"process 1", "process 2", "dispatcher@1", "dispatcher@2"} <= {
        node["name"] for node in view["tree"]
    }
    assert view["slots"] == 512
    for number in (1, 2):
        assert console(site, do="restart", name=f"replayer@{number}") == {"ok": True}
    for unknown in ("replayer", "replayer@3", "replayer@x", "nobody@2"):
        assert "error" in console(site, do="restart", name=unknown)


def test_receiver_pause_applies_to_all_processes(site: LiveSite, cookie: dict[str, str]) -> None:
    """A process that has sent nothing to the receiver pauses too (H-176)."""
    with LiveReceiver() as receiver, client_of(site, cookie, 1) as one:
        hook = make_webhook(one, receiver.url)
        assert one.post("/api/resource/Note", json={"title": "first"}).status_code == 201
        eventually(lambda: len(receiver.got) == 1)
        origin = receiver.url.removesuffix("/hook")
        assert console(site, do="pause", name=origin) == {"ok": True}
        with client_of(site, cookie, 2) as other:
            for client in (one, other):
                assert client.post("/api/resource/Note", json={"title": "later"}).status_code == 201
        time.sleep(1.3)  # each process has polled
        assert len(receiver.got) == 1
        assert console(site, do="resume", name=origin) == {"ok": True}
        eventually(lambda: len(receiver.got) == 3)
        one.delete(f"/api/resource/Webhook/{hook}")


def test_killed_process_is_replaced_while_others_serve(
    site: LiveSite, cookie: dict[str, str]
) -> None:
    """Nothing that was committed is lost (O-34, O-44). The log says how the process ended, without
    a traceback, which would report a defect of the supervisor."""
    before = pids(site)
    with LiveReceiver() as receiver, client_of(site, cookie, 1) as one:
        hook = make_webhook(one, receiver.url)
        os.kill(before[2], signal.SIGKILL)
        for _ in range(5):
            answer = httpx.post(
                f"{site.url}/api/resource/Note",
                json={"title": "x"},
                cookies=cookie,
                headers=CSRF,
                verify=NO_TLS,
            )
            assert answer.status_code == 201
        eventually(lambda: pids(site)[2] != before[2])
        eventually(lambda: len(set(receiver.ids)) == 5)
        with client_of(site, cookie, 2) as replaced:
            assert replaced.post("/api/resource/Note", json={"title": "y"}).status_code == 201
            text = replaced.get("/metrics").text
        eventually(lambda: len(set(receiver.ids)) == 6)
        one.delete(f"/api/resource/Webhook/{hook}")
    assert pids(site)[1] == before[1]
    assert f"process 2 (pid {before[2]}) was ended by SIGKILL" in log_of(site)
    assert "Traceback" not in log_of(site)
    assert samples(text, "fw_process_restarts_total") == {
        'fw_process_restarts_total{process="1"}': 0.0,
        'fw_process_restarts_total{process="2"}': 1.0,
    }


def test_process_is_replaced_after_the_fork_server_was_killed(site: LiveSite) -> None:
    """O-355"""
    before = pids(site)
    [fork_server] = site.children() - set(before.values())
    os.kill(fork_server, signal.SIGKILL)
    ended = Path(f"/proc/{fork_server}/stat")
    eventually(lambda: ended.read_text().rpartition(") ")[2].startswith("Z"))
    os.kill(before[2], signal.SIGKILL)
    eventually(lambda: pids(site)[2] != before[2])
    [another] = site.children() - set(pids(site).values())
    assert another != fork_server
    assert "ForkServerEnded" not in (site.folder / "serve.log").read_text()


def test_replaced_process_keeps_the_configuration_of_the_others(
    site: LiveSite, cookie: dict[str, str]
) -> None:
    """The supervisor has read the files once."""
    before, file = pids(site), site.folder / "fw.json"
    kept = file.read_text()
    file.write_text("not a policy")
    try:
        os.kill(before[2], signal.SIGKILL)
        eventually(lambda: pids(site)[2] != before[2])
    finally:
        file.write_text(kept)
    with client_of(site, cookie, 2) as client:
        assert client.get("/api/boot").json()["site"]["name"] == "live"


def test_terminated_process_drains_and_is_replaced(site: LiveSite) -> None:
    before = pids(site)
    os.kill(before[2], signal.SIGTERM)
    eventually(lambda: pids(site)[2] != before[2])
    assert 'process.stopped how="work in progress has ended or was released"' in log_of(site)
    assert not is_alive(before[2])


def test_receiver_pause_applies_to_a_later_process(site: LiveSite, cookie: dict[str, str]) -> None:
    """A new process asks the others for their pauses (H-176)."""
    before = pids(site)
    with LiveReceiver() as receiver, client_of(site, cookie, 1) as one:
        hook = make_webhook(one, receiver.url)
        assert one.post("/api/resource/Note", json={"title": "first"}).status_code == 201
        eventually(lambda: len(receiver.got) == 1)
        origin = receiver.url.removesuffix("/hook")
        assert console(site, do="pause", name=origin) == {"ok": True}
        os.kill(before[2], signal.SIGTERM)
        eventually(lambda: pids(site)[2] != before[2])
        with client_of(site, cookie, 2) as two:
            assert two.post("/api/resource/Note", json={"title": "later"}).status_code == 201
        time.sleep(1.2)  # each process has polled
        assert len(receiver.got) == 1
        assert console(site, do="resume", name=origin) == {"ok": True}
        eventually(lambda: len(receiver.got) == 2)
        one.delete(f"/api/resource/Webhook/{hook}")


def test_status_shows_supervisor_pid_and_process_count(site: LiveSite) -> None:
    """The supervisor is the process of the pid file (O-48)."""
    assert site.process is not None
    status = background.status(SitePaths(site.folder))
    assert (status.state, status.pid, status.processes) == (RunState.RUNNING, site.process.pid, 2)
    shown = json.loads(site.prepare("status", "--json"))
    assert (shown["pid"], shown["processes"]) == (site.process.pid, 2)


def serving(site: LiveSite) -> dict[int, dict[str, Any]]:
    """Return the serving processes that `fw status` shows, by number."""
    shown = json.loads(site.prepare("status", "--json"))
    return {process.pop("number"): process for process in shown["serving"]}


def test_status_shows_each_serving_process(site: LiveSite) -> None:
    """Its state, its pid and its restarts, as the supervisor knows them (O-49)."""
    eventually(lambda: {each["state"] for each in serving(site).values()} == {"ready"})
    before = serving(site)
    assert {number: each["pid"] for number, each in before.items()} == pids(site)
    os.kill(before[2]["pid"], signal.SIGKILL)
    eventually(lambda: serving(site)[2]["state"] == "restarting")
    assert re.search(r"1 of 2 serving processes ready", site.prepare("status"))
    eventually(lambda: serving(site)[2]["state"] == "ready")
    after = serving(site)
    assert after[2]["restarts"] == before[2]["restarts"] + 1
    assert (after[2]["pid"], after[1]) == (pids(site)[2], before[1])
    lines = site.prepare("status").splitlines()
    assert "2 of 2 serving processes ready" in lines[0]
    restarts = f"pid {after[2]['pid']}, restarts: {after[2]['restarts']}"
    assert lines[2] == f"  process 2: ready, {restarts}"


def test_status_shows_a_process_that_hangs(site: LiveSite) -> None:
    """The command asks no process, so it does not wait for one (O-49)."""
    eventually(lambda: {each["state"] for each in serving(site).values()} == {"ready"})
    frozen = serving(site)[2]["pid"]
    os.kill(frozen, signal.SIGSTOP)
    try:
        eventually(lambda: serving(site)[2]["state"] == "silent")
        assert serving(site)[1]["state"] == "ready"
        assert json.loads(site.prepare("status", "--json"))["ready"] == 1
    finally:
        os.kill(frozen, signal.SIGCONT)
    eventually(lambda: serving(site)[2] == {**serving(site)[2], "state": "ready", "pid": frozen})


def test_process_environment_contains_no_secret(site: LiveSite) -> None:
    """The assignment comes through a socket, and a fork has the overwritten environment of the
    supervisor (C-84, O-48)."""
    for pid in site.children():
        assert UNUSED.encode() not in Path(f"/proc/{pid}/environ").read_bytes()


@pytest.fixture(scope="module")
def other_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    with LiveSite(tmp_path_factory.mktemp("fragile"), ops={"processes": 2}) as site:
        site.add_manager()
        yield site


@pytest.fixture
def other_site(other_folder: LiveSite) -> LiveSite:
    """A service that a test may destroy; one that a test has left running serves the next."""
    if other_folder.process is None:
        (other_folder.folder / "serve.log").unlink(missing_ok=True)
        other_folder.start(**DEVELOPMENT)
    return other_folder


def test_processes_end_with_their_supervisor(
    other_site: LiveSite,
) -> None:
    """Processes hold the site's lock until they have ended (O-46)."""
    before = pids(other_site).values()
    other_site.end(signal.SIGKILL)
    other_site.start(**DEVELOPMENT)
    assert not any(is_alive(pid) for pid in before)


def test_process_that_ends_too_often_ends_the_service(other_site: LiveSite) -> None:
    """Five ends in 30 seconds are made good, the sixth is not (O-44)."""
    both = pids(other_site)
    killed, victim = {both[1]}, both[2]
    for _ in range(5):
        os.kill(victim, signal.SIGKILL)
        killed.add(victim)
        [victim] = eventually(lambda: other_site.processes() - killed)  # ready or not
    os.kill(victim, signal.SIGKILL)
    assert other_site.wait() == 1
    log = log_of(other_site)
    assert "'service' gave up because of 'process 2'" in log
    assert "was ended by SIGKILL" in log
    assert not is_held(SitePaths(other_site.folder).lock)


@pytest.mark.timeout(300)  # it makes, stops and starts a server, also on a slow machine
def test_process_that_finds_no_database_waits_for_it(tmp_path: Path) -> None:
    """O-14, O-44: an outage of the database during which a process ends is over by itself."""
    with postgres_cluster() as cluster, LiveSite(tmp_path, ops={"processes": 2}) as site:
        site.start(FW_DATABASE=cluster.url())
        both = site.processes()
        cluster.stop()
        os.kill(max(both), signal.SIGKILL)
        eventually(lambda: log_of(site).count("The database cannot be opened") > 6)
        assert site.process is not None
        assert site.process.poll() is None
        assert httpx.get(f"{site.url}/api/health", timeout=30).status_code == 200
        assert "process.waits_for_store" in log_of(site)
        cluster.start()
        eventually(lambda: len(ready_processes(site)) == 2)
        assert site.end() == 0


def ready_processes(site: LiveSite) -> list[int | None]:
    record = site_files.read(SitePaths(site.folder).pid)
    assert record is not None
    return [each.pid for each in record.serving if each.state == ServingState.READY]


def test_signal_during_the_first_start_ends_the_service(
    tmp_path: Path,
) -> None:
    with LiveSite(tmp_path, ops={"processes": 2}) as site:
        with (tmp_path / "serve.log").open("a") as log:
            site.process = site.begin("serve", stdout=log.fileno(), stderr=log.fileno())
        [first] = eventually(site.processes)
        site.process.terminate()
        assert site.wait() == 0
    assert not is_alive(first)
    assert not is_held(SitePaths(tmp_path).lock)


def test_stop_drains_requests_and_attempts_of_all_processes(other_site: LiveSite) -> None:
    """Each process drains, all at the same time (O-31, O-45)."""
    stopped = log_of(other_site).count("process.stopping")
    with other_site.client() as first, LiveReceiver(None) as receiver:
        cookie = {"sid": first.cookies["sid"]}
        make_webhook(first, receiver.url, timeout=60)
        for number in (1, 2):
            with client_of(other_site, cookie, number) as client:
                assert client.post("/api/resource/Note", json={"title": "n"}).status_code == 201
        eventually(lambda: len(receiver.got) == 2)
        assert other_site.process is not None
        other_site.process.terminate()
        eventually(lambda: log_of(other_site).count("process.stopping") == stopped + 2)
        receiver.release()
        assert other_site.wait() == 0
    shown = json.loads(other_site.prepare("webhooks", "list", "--json"))
    assert [row["status"] for row in shown] == ["Sent", "Sent"]


def test_stop_that_kills_a_process_is_not_called_graceful(tmp_path: Path) -> None:
    """O-45, O-32: what the process had leased is not given back."""
    with LiveSite(tmp_path, ops={"processes": 2}) as site:
        site.start()
        os.kill(pids(site)[2], signal.SIGSTOP)
        assert site.process is not None
        site.process.terminate()
        assert site.process.wait(60) == 1
        site.process = None
        assert "process 2 did not stop gracefully" in log_of(site)


def test_unusable_site_is_reported_once(tmp_path: Path) -> None:
    site = LiveSite(tmp_path, ops={"processes": 2})
    (tmp_path / "data").write_text("not a folder")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fw_cli", "serve"],
        cwd=tmp_path, env=site.environ(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "cannot open" in done.stderr
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
