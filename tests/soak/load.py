"""The load of a soak, its measurements, and the series that must stay flat."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

import httpx

from tests.live_site import NO_TLS, LiveReceiver, LiveSite
from tests.webhook_kit import make_webhook

WRITERS: Final = 2
WARM_SECONDS: Final = 60.0
_TABLES: Final = ("fw_job", "fw_session", "fw_login_attempt", "fw_token", "doc_note")
# The growth that is allowed after the first minute: a share of the value, and a constant.
MAY_GROW: Final = {
    "memory MB": (0.15, 16.0), "descriptors": (0.1, 16.0), "threads": (0.0, 4.0),
    "WAL MB": (0.5, 16.0), "fw_job rows": (0.5, 200.0), "fw_session rows": (0.0, 2.0),
    "fw_login_attempt rows": (0.0, 100.0), "fw_token rows": (0.0, 2.0), "doc_note rows": (0.0, 8.0),
}  # fmt: skip


@dataclass
class Soak:
    """One run: `series` by name, a value for each sample."""

    site: LiveSite
    receiver: LiveReceiver
    series: dict[str, list[float]] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    writes: int = 0

    def run(self, seconds: float, every: float = 1.0) -> None:
        """Load a site that runs, and sample it."""
        over = threading.Event()
        with self.site.client() as client:
            make_webhook(client, self.receiver.url)
            threads = [
                threading.Thread(target=self._until, args=(over, load, client.cookies["sid"]))
                for load in (*[self._write] * WRITERS, self._guess)
            ]
            for thread in threads:
                thread.start()
            began = time.monotonic()
            while time.monotonic() - began < seconds:
                self._sample(time.monotonic() - began)
                time.sleep(every)
            over.set()
            for thread in threads:
                thread.join(60)

    def violations(self) -> list[str]:
        """Say what grew after the first minute, and which answers were strange."""
        found = list(self.strange[:5])
        for name, (share, more) in MAY_GROW.items():
            late = [v for t, v in zip(self.times, self.series[name], strict=True)
                    if t >= WARM_SECONDS]  # fmt: skip
            part = max(1, len(late) // 5)
            if len(late) < 10:
                continue  # too short for a comparison
            first, last = median(late[:part]), median(late[-part:])
            if last > first * (1 + share) + more:
                found.append(f"{name} grew from {first:.1f} to {last:.1f}")
        return found

    def _sample(self, at: float) -> None:
        process = self.site.process
        assert process is not None
        home = Path(f"/proc/{process.pid}")
        status = dict(
            line.split(":", 1) for line in (home / "status").read_text().splitlines() if ":" in line
        )
        data = self.site.folder / "data"
        seen = {
            "memory MB": int(status["VmRSS"].split()[0]) / 1024,
            "descriptors": float(len(os.listdir(home / "fd"))),
            "threads": float(status["Threads"]),
            "WAL MB": (data / "fw.db-wal").stat().st_size / 2**20,
        }
        with closing(sqlite3.connect(f"file:{data / 'fw.db'}?mode=ro", uri=True)) as database:
            for table in _TABLES:
                (count,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
                seen[f"{table} rows"] = float(count)
        self.times.append(at)
        for name, value in seen.items():
            self.series.setdefault(name, []).append(value)

    def _until(self, over: threading.Event, load: Callable[[httpx.Client], None], sid: str) -> None:
        options = {"base_url": self.site.url, "headers": {"X-FW-CSRF": "1"}}
        with httpx.Client(**options, cookies={"sid": sid}, timeout=30) as client:  # type: ignore[arg-type]
            while not over.is_set():
                load(client)

    def _write(self, client: httpx.Client) -> None:
        """Insert a note and delete it: two events are none, but the one that is watched is sent."""
        made = client.post("/api/resource/Note", json={"title": "soaked"})
        if made.status_code != 201:
            self.strange.append(made.text)
            return
        name = made.json()["data"]["name"]
        client.get("/api/resource/Note", params={"limit": "5"})
        gone = client.delete(f"/api/resource/Note/{name}")
        if gone.status_code != 200:
            self.strange.append(gone.text)
        self.writes += 1

    def _guess(self, client: httpx.Client) -> None:
        body = {"usr": "somebody", "pwd": "wrong"}
        answer = httpx.post(
            f"{self.site.url}/api/login",
            json=body,
            headers={"X-FW-CSRF": "1"},
            timeout=30,
            verify=NO_TLS,
        )
        if answer.status_code not in (401, 429):
            self.strange.append(answer.text)
        time.sleep(0.05)  # a load, not a flood
