"""The busy service as a process, its share of a core, and one console that watches it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from benchmarks.console.service import ACTORS, DELIVERIES_A_SECOND, MANAGER, PASSWORD
from benchmarks.nginx import Nginx

WINDOW_SECONDS: Final = 4.0
STOP_SECONDS: Final = 60.0
FEWEST: Final = 0.75
"""Of the deliveries that are due in a window; with fewer the service was not as busy."""
_ROOT: Final = Path(__file__).parents[2]
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class TooFewDeliveries(Exception):
    """Raised when fewer deliveries arrived than were to."""


class ConsoleNotUpdated(Exception):
    """Raised when the console did not show one view after the other."""


@dataclass(frozen=True)
class BusyService:
    """A busy service, and the receiver of its deliveries."""

    url: str
    sid: str
    pid: int
    nginx: Nginx

    def share(self) -> float:
        """Return how much of a core the process takes in a window, in per cent.

        Raises: TooFewDeliveries.
        """
        arrived, spent, began = self.nginx.requests(), _cpu_seconds(self.pid), time.monotonic()
        time.sleep(WINDOW_SECONDS)
        seconds = time.monotonic() - began
        spent = _cpu_seconds(self.pid) - spent
        rate = (self.nginx.requests() - arrived) / seconds
        if rate < FEWEST * DELIVERIES_A_SECOND:
            raise TooFewDeliveries(f"{rate:.0f} deliveries a second arrived.")
        return 100 * spent / seconds


@contextmanager
def busy_service(folder: Path, nginx: Nginx, actors: int = ACTORS) -> Iterator[BusyService]:
    """Run the service with its site in `folder`, and so many actors."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FW_")}
    arguments = [str(folder), nginx.hook, str(actors)]
    command = [sys.executable, "-m", "benchmarks.console.service", *arguments]
    with subprocess.Popen(
        command, cwd=_ROOT, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            yield BusyService(url, _signed_in(url), process.pid, nginx)
            process.stdin.close()
            process.wait(STOP_SECONDS)
        finally:
            process.kill()


@contextmanager
def watching(busy: BusyService, fewest: float = 0.5) -> Iterator[None]:
    """Hold one console open, as a page does: views come as server-sent events.

    Raises: ConsoleNotUpdated when there were fewer views a second than `fewest`.
    """
    seen, over = [0], threading.Event()
    thread = threading.Thread(target=_take_views, args=(busy, seen, over), daemon=True)
    thread.start()
    began = time.monotonic()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if seen[0] < fewest * (time.monotonic() - began):
        raise ConsoleNotUpdated(f"{seen[0]} views came.")


def _take_views(busy: BusyService, seen: list[int], over: threading.Event) -> None:
    with httpx.stream(
        "GET", f"{busy.url}/app/console/events", cookies={"sid": busy.sid}, timeout=None
    ) as answer:
        for line in answer.iter_lines():
            seen[0] += line.startswith("data:")
            if over.is_set():
                return


def _signed_in(url: str) -> str:
    who = {"usr": MANAGER, "pwd": PASSWORD}
    answer = httpx.post(f"{url}/api/login", json=who, headers={"X-FW-CSRF": "1"})
    return str(answer.raise_for_status().cookies["sid"])


def _cpu_seconds(pid: int) -> float:
    """Return the processor time of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
