"""A site of an older build with everything in it, killed at work and upgraded."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fw_actors.store.statement import POSTGRESQL, SQLITE
from supervisors.service import site_files
from supervisors.service.site_files import SitePaths
from tests.live_site import eventually
from tests.releases.full_site_kit import (
    APP,
    KEY,
    LEASED_TIMEOUT,
    PASSWORD,
    changed,
    fill,
    rows_of,
)
from tests.releases.upgrade_kit import ALL_BUILDS, Installed, UpgradeReceiver

CSRF = {"X-FW-CSRF": "1"}
AFTER_THE_LEASES = {  # 30 seconds longer than the attempts, B-210
    "FW_MODE": "development",
    "FW_CLOCK_OFFSET": str(LEASED_TIMEOUT + 31),
}


@pytest.fixture(params=(SQLITE, POSTGRESQL) if ALL_BUILDS else (SQLITE,))
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Installed:
    """An empty site on each store. Mails wait: nothing listens at the port of the mail server."""
    environ = {
        "FW_SECRET_KEY": KEY,
        "FW_MAIL_TRANSPORT": "smtp",
        "FW_SMTP_HOST": "127.0.0.1",
        "FW_SMTP_PORT": "9",
        "FW_SMTP_SECURITY": "none",
    }
    if request.param == POSTGRESQL:
        environ["FW_DATABASE"] = request.getfixturevalue("postgres_url")
    site = Installed(tmp_path, **environ)
    site.prepare({"desk": APP}, backoffSeconds=0.5, backoffCapSeconds=1, traceContext=True)
    return site


def sign_in(url: str, user: str, password: str = PASSWORD) -> int:
    """Return the status of one attempt."""
    body = {"usr": user, "pwd": password}
    return httpx.post(f"{url}/api/login", headers=CSRF, json=body, timeout=30).status_code


@pytest.fixture
def admin() -> Iterator[httpx.Client]:
    """A client without a session yet."""
    with httpx.Client(headers=CSRF, timeout=30) as client:
        yield client


def called(client: httpx.Client, operation: str, **body: object) -> Any:
    done = client.post(f"/api/method/core.services.{operation}", json=body)
    assert done.status_code == 200, done.text
    return done.json()


def kill(site: Installed) -> None:
    record = site_files.read(SitePaths(site.site).pid)
    assert record is not None
    os.kill(record.pid, signal.SIGKILL)
    while site_files.is_held(SitePaths(site.site).lock):
        time.sleep(0.02)


def states(site: Installed) -> set[tuple[str, str]]:
    listed = json.loads(site.fw("webhooks", "list", "--json", "--limit", "200"))
    return {(row["webhook"], row["status"]) for row in listed}


@pytest.mark.timeout(300)
def test_full_site_keeps_each_row_in_an_upgrade(
    site: Installed, wheels: tuple[Path, Path], receiver: UpgradeReceiver, admin: httpx.Client
) -> None:
    """O-167: a service of an older build is killed while its deliveries are in all states. The
    newer one changes no stored row, continues the deliveries in their order, and keeps sessions,
    keys, locks, secrets and failed jobs; a second migration does nothing."""
    old, new = wheels
    site.install(old)
    fill(site, receiver.url)
    url = site.start()
    try:
        key = work(admin, url, receiver)
    finally:
        kill(site)
    before = rows_of(site)

    site.install(new)
    plan = site.fw("migrate", "--plan")  # opens the site, which migrates its store
    after = rows_of(site)
    assert "rename" in plan
    assert changed(before, after, but=["fw_meta"]) == {}
    site.fw("migrate")
    assert set(changed(after, rows_of(site))) == {"doc_note", "fw_data_migration"}
    assert "no data migration" in site.fw("migrate", "--plan")

    receiver.failing = set()
    receiver.over.set()
    url = site.start(**AFTER_THE_LEASES)
    try:
        expect_access(admin, url, key)
        expect_deliveries(site, receiver)
        # The kill may have come before the last attempt of one.
        eventually(lambda: re.search(r"^app +0 +0 +0 +3 ", site.fw("jobs", "stats"), re.MULTILINE))
    finally:
        site.process("stop")


def work(admin: httpx.Client, url: str, receiver: UpgradeReceiver) -> str:
    """Bring deliveries into all states, and lock an account; return an API key."""
    receiver.failing, receiver.hanging = {"/retried", "/ordered"}, {"/leased"}
    admin.base_url = httpx.URL(url)
    admin.post("/api/login", json={"usr": "admin", "pwd": PASSWORD})
    called(admin, "webhooks.pause", webhook="paused")
    called(admin, "webhooks.rotate", webhook="sent", overlap=24)
    key: str = called(admin, "api_keys.createMyAPIKey", label="of a program")["key"]
    for name in ("one", "two"):
        admin.post("/api/resource/Note", json={"name": name, "title": "new", "n": 0})
    for n in range(1, 4):
        for name in ("one", "two"):
            admin.put(f"/api/resource/Note/{name}", json={"n": n})
    for n in range(3):
        called(admin, "webhooks.emit", name="a", data={"n": n}, options={"key": f"key {n}"})
    for _ in range(6):
        sign_in(url, "dora", "wrong")
    assert admin.post("/api/method/desk.defect").status_code == 500
    admin.post("/api/auth/forgot-password", json={"usr": "ann"})
    receiver.until("/sent", 3)
    receiver.until("/leased", 3)
    receiver.until("/retried", 4)
    return key


def expect_access(admin: httpx.Client, url: str, key: str) -> None:
    """Sessions, keys, locks and the keys of events are as before."""
    admin.base_url = httpx.URL(url)
    assert admin.get("/api/boot").json()["user"]["name"] == "admin"
    bearer = {"Authorization": f"Bearer {key}"}
    assert httpx.get(f"{url}/api/resource/Note", headers=bearer).status_code == 200
    assert sign_in(url, "dora") == 429
    repeated = {"name": "a", "data": {}, "options": {"key": "key 1"}}
    emitted = admin.post("/api/method/core.services.webhooks.emit", json=repeated)
    assert emitted.status_code == 409


def expect_deliveries(site: Installed, receiver: UpgradeReceiver) -> None:
    """All but those of the paused Webhook arrive, those of a document in its order."""
    arrived = {(name, "Sent") for name in ("sent", "retried", "leased", "limited", "ordered")}
    receiver.until("/leased", 6)  # again: the clock is after the leases of the killed process
    end = time.monotonic() + 60
    while (found := states(site)) != arrived | {("paused", "Queued")}:
        assert time.monotonic() < end, found
        time.sleep(0.5)
    assert orders(receiver) == {"one": [0, 1, 2, 3], "two": [0, 1, 2, 3]}


def orders(receiver: UpgradeReceiver) -> dict[str, list[Any]]:
    """Return the numbers of each note in the order of their first delivery.

    All were refused before the upgrade, so that the first one of each document is repeated.
    """
    found: dict[str, dict[Any, None]] = {}
    for post in receiver.got:
        doc = post.body["data"].get("doc")
        if post.path == "/ordered" and doc["name"] != "old":
            found.setdefault(doc["name"], {})[doc["n"]] = None
    return {name: list(numbers) for name, numbers in found.items()}
