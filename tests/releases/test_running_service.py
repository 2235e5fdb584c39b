"""A service whose files are replaced while it runs, as the installation of another version does."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from pathlib import Path

import httpx
import pytest

from supervisors.service import site_files
from supervisors.service.process import ServingRecord, ServingState
from supervisors.service.site_files import SitePaths
from tests.installed_wheel import InstalledWheel
from tests.releases.full_site_kit import APP, PASSWORD
from tests.releases.upgrade_kit import Installed

PACKAGES = ("fw_actors", "fw_cli", "fw_client", "supervisors", "web")
PAGE = {"Accept": "text/html"}
PAGES = ("/app", "/app/Note", "/app/Webhook", "/app/User/admin", "/app/console", "/account")


def processes(site: Installed) -> tuple[ServingRecord, ...]:
    record = site_files.read(SitePaths(site.site).pid)
    return () if record is None else record.serving


@pytest.mark.timeout(120)
def test_running_service_needs_no_file_of_its_packages(
    installed_wheel: InstalledWheel, tmp_path: Path
) -> None:
    """O-356: templates, assets and modules of another version would not match those in memory. Here
    there are none at all, also for the process that replaces one that was killed."""
    site = Installed(tmp_path, FW_SECRET_KEY="k" * 40)
    site.install(installed_wheel.wheel)
    site.prepare({"desk": APP}, processes=2)
    manager = ("--role", "System Manager", "--password-stdin")
    site.fw("user", "add", "admin", "--email", "admin@x.test", *manager, stdin=PASSWORD)
    url = site.start()
    for name in PACKAGES:
        shutil.rmtree(site.packages / name)
    supervisor = site_files.read(SitePaths(site.site).pid)
    assert supervisor is not None
    try:
        with httpx.Client(base_url=url, headers={"X-FW-CSRF": "1"}, timeout=30) as client:
            signed_in = client.post("/api/login", json={"usr": "admin", "pwd": PASSWORD})
            assert signed_in.status_code == 200
            for _ in range(2):
                assert [client.get(page, headers=PAGE).status_code for page in PAGES] == [200] * 6
                assert client.get("/app/Nothing", headers=PAGE).status_code == 404
                style = re.search(r"/static/\w+/style\.css", client.get("/app", headers=PAGE).text)
                assert style is not None
                assert "immutable" in client.get(style[0]).headers["Cache-Control"]
                replace_each(site)
    finally:
        os.kill(supervisor.pid, signal.SIGTERM)
        while site_files.is_held(SitePaths(site.site).lock):
            time.sleep(0.02)


def replace_each(site: Installed) -> None:
    """Kill each process of the service in turn, and wait for the one that replaces it."""
    for number in (1, 2):
        (old,) = (each for each in processes(site) if each.number == number)
        assert old.pid
        os.kill(old.pid, signal.SIGKILL)
        end = time.monotonic() + 60
        while not any(
            each.number == number and each.pid != old.pid and each.state == ServingState.READY
            for each in processes(site)
        ):
            assert time.monotonic() < end, processes(site)
            time.sleep(0.02)
