"""Workers beside the service: health, metrics, and how they are found (O-323 to O-326)."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest
import trio

from fw_actors.rules.findings import Level
from supervisors.service import site_files
from supervisors.service.background import RunState, ServiceStatus
from supervisors.service.doctor import (
    ServiceFacts,
    WorkerFacts,
    evaluate_service,
    service_facts,
)
from supervisors.service.site_files import ServeLock, SitePaths, registered, running_workers
from supervisors.service.tree import open_service
from tests.mail_kit import RecordingLog
from tests.site_kit import make_config
from web.listening import bind

STOPPED = ServiceStatus(RunState.STOPPED)


@pytest.fixture
def paths(tmp_path: Path) -> SitePaths:
    made = SitePaths(tmp_path)
    made.prepare()
    return made


def test_worker_serves_health_and_metrics_only(tmp_path: Path) -> None:
    trio.run(ask_worker, tmp_path)  # over a real socket


async def ask_worker(folder: Path) -> None:
    bound = bind("127.0.0.1", 0)
    opened = open_service(
        make_config(folder), log=RecordingLog(), front=False, bound=bound, inline=True
    )
    async with opened as service, httpx.AsyncClient(base_url=bound.url) as client:
        assert service.url == bound.url
        for path in ("/api/health", "/api/ready"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()) == (200, {"ok": True})
        text = (await client.get("/metrics")).text
        for name in ("fw_info{", "fw_deliveries_total{", "fw_queue_jobs{", "process_cpu_seconds"):
            assert f"\n{name}" in text
        forwarded = {"X-Forwarded-For": "192.0.2.1"}
        assert (await client.get("/metrics", headers=forwarded)).status_code == 403
        for path in ("/", "/login", "/api/boot", "/api/resource/User"):
            assert (await client.get(path)).status_code == 404
        service.gateway.drain()
        assert (await client.get("/api/ready")).status_code == 503
        assert (await client.get("/api/health")).status_code == 200


def test_worker_without_a_listener_has_no_url(tmp_path: Path) -> None:
    async def url_of_worker() -> str:
        async with open_service(
            make_config(tmp_path), log=RecordingLog(), front=False, inline=True
        ) as service:
            assert await service.answers(5.0)
            return service.url

    assert trio.run(url_of_worker) == ""


def test_running_workers_have_a_locked_file(paths: SitePaths) -> None:
    assert running_workers(paths) == []
    with registered(paths, "1.0", "http://127.0.0.1:9"):
        killed = paths.workers / "7-7.json"
        killed.write_text('{"pid":7,"born":7,"version":"1.0"}')
        (found,) = running_workers(paths)
        assert (found.process.pid, found.process.url) == (os.getpid(), "http://127.0.0.1:9")
        assert not killed.exists()
    assert running_workers(paths) == []
    assert list(paths.workers.iterdir()) == []


def test_unusable_worker_folder_is_named(paths: SitePaths) -> None:
    paths.workers.write_text("no folder")
    with (
        pytest.raises(site_files.UnusableDataFolder, match="workers"),
        registered(paths, "1.0", None),
    ):
        pass


def worker(pid: int = 7, *, ready: bool | None = True, **changes: object) -> WorkerFacts:
    url = None if ready is None else "http://127.0.0.1:9101"
    return WorkerFacts(pid, "1.0", url, ready, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "level", "text"),
    [
        (worker(), Level.OK, "the worker of process 7 runs at http://127.0.0.1:9101"),
        (worker(ready=None), Level.OK, "the worker of process 7 runs without --metrics"),
        (worker(ready=False), Level.WARNING, "process 7 at http://127.0.0.1:9101 is not ready"),
        (worker(changed=("fw.json",)), Level.WARNING, "changed since the worker of process 7 was"),
        (WorkerFacts(7, "0.9"), Level.WARNING, "process 7 is version 0.9, and this is 1.0"),
    ],
)
def test_doctor_describes_a_worker(found: WorkerFacts, level: Level, text: str) -> None:
    """O-325."""
    section = evaluate_service(ServiceFacts(STOPPED, "1.0", (), (), workers=(found,)))
    assert any(text in each for each in section.texts(level))
    assert section.facts["workers"] == 1


def test_service_facts_find_the_workers_of_the_site(tmp_path: Path, paths: SitePaths) -> None:
    """A starting worker does not answer yet, and one with an older configuration is found."""
    config = make_config(tmp_path)
    config.file.write_text("{}")
    with registered(paths, "1.0", "http://127.0.0.1:9"):
        (found,) = service_facts(config, "1.0").workers
        assert (found.pid, found.ready, found.changed) == (os.getpid(), False, ())
        later = running_workers(paths)[0].began + 1
        os.utime(config.file, (later, later))
        assert service_facts(config, "1.0").workers[0].changed == ("fw.json",)
    assert service_facts(config, "1.0").workers == ()


def test_worker_leaves_the_lock_to_the_service(paths: SitePaths) -> None:
    with registered(paths, "1.0", None), ServeLock(paths.lock) as lock:
        assert lock.acquire()
