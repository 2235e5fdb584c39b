"""The doctor's findings on the running service and its files."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path

import pytest

from fw_actors.config import ProxyTrustPolicy
from fw_actors.rules.findings import Level
from supervisors.service import doctor, site_files
from supervisors.service.background import RunState, ServiceStatus
from supervisors.service.console_socket import listening
from supervisors.service.control_channel import GATHER_SECONDS
from supervisors.service.doctor import ServiceFacts, evaluate_service, service_facts
from supervisors.service.metrics import BACKLOG_SECONDS
from supervisors.service.process import ServingRecord, ServingState
from supervisors.service.site_files import PidFile, ServeLock, SitePaths
from tests.site_kit import make_config

RUNNING = ServiceStatus(RunState.RUNNING, 7, "http://127.0.0.1:8000", "1.0")

IN_TWO = ServiceStatus(RunState.RUNNING, 7, "http://127.0.0.1:8000", "1.0", 2)


def test_doctor_accepts_a_stopped_service() -> None:
    section = evaluate_service(ServiceFacts(ServiceStatus(RunState.STOPPED), "1.0", (), ()))
    assert [finding.text for finding in section.findings] == ["the service is stopped"]


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        (ServiceFacts(RUNNING, "1.1", (), ()), "version 1.0, and this is 1.1"),
        (ServiceFacts(RUNNING, "1.0", ("fw.json",), ()), "changed since the service was started"),
        (ServiceFacts(RUNNING, "1.0", (), (".env",)), "can read .env"),
        (ServiceFacts(RUNNING, "1.0", (), (), 3), "headers so far: 3"),
        (ServiceFacts(RUNNING, "1.0", (), (), 0, 300 << 20), "has grown to 300 MiB"),
        (ServiceFacts(RUNNING, "1.0", (), (), untrusted_proxy=True), "opens /metrics to them"),
        (ServiceFacts(IN_TWO, "1.0", (), (), silent_processes=1), "1 of 2 processes of the serv"),
        (ServiceFacts(RUNNING, "1.0", (), (), unanswered=True), "nor at http://127.0.0.1:8000/met"),
        (ServiceFacts(RUNNING, "1.0", (), (), scarce_files=(90, 100)), "90 files and connections"),
        (ServiceFacts(RUNNING, "1.0", (), (), longest_write_seconds=21), "has run for 21 s"),
        (ServiceFacts(RUNNING, "1.0", (), (), 3, trusted=("10.0.0.0/8",)), "not trust: 3"),
    ],
)
def test_doctor_warns_of_service_problems(facts: ServiceFacts, word: str) -> None:
    (only,) = evaluate_service(facts).texts(Level.WARNING)
    assert word in only


def test_doctor_reports_a_service_of_which_no_process_answers() -> None:
    """O-145: it runs, but it is not ok."""
    facts = ServiceFacts(IN_TWO, "1.0", (), (), silent_processes=2, unanswered=True)
    section = evaluate_service(facts)
    assert section.texts(Level.PROBLEM) == [
        "the service is running at http://127.0.0.1:8000, in 2 processes; no process responds"
    ]
    assert "If the database answers, end each hanging process" in section.findings[0].todo
    assert section.texts(Level.OK) == section.texts(Level.WARNING) == []


def test_doctor_names_the_proxies_that_are_trusted() -> None:
    """O-137: an entry that names the wrong network is as bad as none."""
    facts = ServiceFacts(RUNNING, "1.0", (), (), 3, trusted=("10.0.0.0/8", "::1/128"))
    (todo,) = [finding.todo for finding in evaluate_service(facts).findings if finding.todo]
    assert "FW_TRUST_PROXY is 10.0.0.0/8, ::1/128" in todo


def test_service_facts_have_the_trusted_networks(tmp_path: Path) -> None:
    networks = (ip_network("10.0.0.0/8"),)
    config = make_config(tmp_path, trust_proxy=ProxyTrustPolicy(networks=networks))
    SitePaths(tmp_path).prepare()
    assert service_facts(config, "1.0").trusted == ("10.0.0.0/8",)


def test_doctor_says_how_to_end_a_hanging_process() -> None:
    """O-49: without a watchdog, as after `fw start`, nobody else ends it."""
    section = evaluate_service(ServiceFacts(IN_TWO, "1.0", (), (), silent_processes=1))
    (todo,) = [finding.todo for finding in section.findings if finding.todo]
    assert "fw status" in todo
    assert "kill -9" in todo


def test_service_facts_use_the_record_of_the_supervisor(tmp_path: Path) -> None:
    """O-49: it says which process is silent, also if none gives the metrics."""
    config, paths = make_config(tmp_path), SitePaths(tmp_path)
    paths.prepare()
    silent = tuple(ServingRecord(n, ServingState.SILENT, 1) for n in (1, 2))
    record = PidFile(os.getpid(), None, "1.0", "http://127.0.0.1:1", 2, silent)
    with ServeLock(paths.lock) as lock:
        assert lock.acquire()
        site_files.write(paths.pid, record)
        facts = service_facts(config, "1.0")
    assert (facts.silent_processes, facts.unanswered) == (2, True)


def test_service_facts_measure_the_background_log(tmp_path: Path) -> None:
    config, paths = make_config(tmp_path), SitePaths(tmp_path)
    paths.prepare()
    assert service_facts(config, "1.0").log_bytes == 0
    paths.log.write_text("a line\n")
    assert service_facts(config, "1.0").log_bytes == 7


@pytest.mark.parametrize(
    ("url", "trust", "warned"),
    [
        ("https://fw.example.org", ProxyTrustPolicy(), True),
        ("https://fw.example.org", ProxyTrustPolicy(every_peer=True), False),
        ("http://127.0.0.1:8000", ProxyTrustPolicy(), False),
        (None, ProxyTrustPolicy(), False),
    ],
)
def test_service_facts_detect_an_untrusted_https_proxy(
    tmp_path: Path, url: str | None, trust: ProxyTrustPolicy, warned: bool
) -> None:
    """TLS ends in a proxy, so an https URL implies one."""
    config = make_config(tmp_path, public_url=url, trust_proxy=trust)
    SitePaths(tmp_path).prepare()
    assert service_facts(config, "1.0").untrusted_proxy is warned


SAMPLES = (
    'fw_forwarded_ignored_total{process="1"} 2.0\n'
    'fw_forwarded_ignored_total{process="2"} 1.0\n'
    'fw_process_up{process="1"} 1.0\n'
    'fw_store_longest_write_seconds{process="1"} 0.0\n'
    'fw_store_longest_write_seconds{process="2"} 31.5\n'
    'fw_process_up{process="2"} 0.0\n'
    'process_open_fds{process="1"} 25.0\n'
    'process_open_fds{process="2"} 900.0\n'
    'process_max_fds{process="1"} 1024.0\n'
    'process_max_fds{process="2"} 1024.0\n'
)


@contextmanager
def running(paths: SitePaths, url: str) -> Iterator[None]:
    """Be a running service that says nothing."""
    paths.prepare()
    with ServeLock(paths.lock) as lock:
        assert lock.acquire()
        site_files.write(paths.pid, site_files.own_pid_file("1.0", url))
        yield


@contextmanager
def answering(paths: SitePaths, line: bytes) -> Iterator[None]:
    """Answer one question at the console's socket with `line`."""
    with listening(paths.console) as listener:
        listener.setblocking(True)

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(100) == b'{"do": "metrics"}\n'
                connection.sendall(line)

        thread = threading.Thread(target=answer)
        thread.start()
        yield
        thread.join(30)


def test_service_facts_use_the_console_socket(tmp_path: Path) -> None:
    """A service that is bound to another address gives no metrics over HTTP (O-147, O-148)."""
    config, paths = make_config(tmp_path), SitePaths(tmp_path)
    line = json.dumps({"metrics": SAMPLES}).encode() + b"\n"
    with running(paths, "http://127.0.0.1:1"), answering(paths, line):
        facts = service_facts(config, "1.0")
    assert (facts.forwarded_ignored, facts.silent_processes, facts.unanswered) == (3, 1, False)
    assert facts.scarce_files == (900, 1024)
    assert facts.longest_write_seconds == 31.5


@pytest.mark.parametrize(
    "line",
    [b'{"error": {"type": "BadRequestError", "message": "There is no action metrics."}}\n', b""],
    ids=["earlier version", "ends"],
)
def test_service_facts_fall_back_to_http(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    """Another process may answer while the one with the socket hangs (O-147)."""
    config, paths = make_config(tmp_path), SitePaths(tmp_path)
    monkeypatch.setattr(doctor, "http_lines", lambda url: SAMPLES.splitlines())
    with running(paths, "http://127.0.0.1:1"), answering(paths, line):
        facts = service_facts(config, "1.0")
    assert (facts.forwarded_ignored, facts.unanswered) == (3, False)


def test_doctor_waits_for_the_metrics_of_a_service_whose_database_is_silent() -> None:
    """O-147: they come later than usual, but such a service does not hang."""
    assert doctor.ASK_SECONDS > BACKLOG_SECONDS + GATHER_SECONDS


def test_service_facts_report_a_service_that_answers_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket of another user is not asked, and HTTP refuses (O-147)."""
    config, paths = make_config(tmp_path), SitePaths(tmp_path)
    monkeypatch.setattr(doctor, "peer_user", lambda _: os.geteuid() + 1)
    with running(paths, "http://127.0.0.1:1"), listening(paths.console):
        assert service_facts(config, "1.0").unanswered
    assert not service_facts(config, "1.0").unanswered  # it is stopped


def test_service_facts_list_files_changed_after_the_start(tmp_path: Path) -> None:
    config, paths = make_config(tmp_path), SitePaths(tmp_path)
    config.file.write_text("{}")
    paths.prepare()
    with ServeLock(paths.lock) as lock:
        assert lock.acquire()
        site_files.write(paths.pid, site_files.own_pid_file("1.0", "http://127.0.0.1:1"))
        begun = paths.pid.stat().st_mtime
        os.utime(config.file, (begun - 1, begun - 1))
        assert service_facts(config, "1.0").changed == ()
        os.utime(config.file, (begun + 1, begun + 1))
        facts = service_facts(config, "1.0")
    assert (facts.changed, facts.status.state) == (("fw.json",), RunState.RUNNING)
