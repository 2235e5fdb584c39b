"""Real processes under load, killed at random; and what has to be true of them afterwards."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from tests.interop.test_main_job import deliveries, make_webhook
from tests.live_site import PASSWORD, LiveReceiver, LiveSite, eventually

LEASE_SECONDS: Final = 45  # a timeout of 10 s and 30 more: by so much the clock goes on each round
LOCKOUT_SECONDS: Final = 900
WRITERS: Final = 4
CSRF: Final = {"X-FW-CSRF": "1"}
MOST_ANSWERED_401: Final = 4  # of five failures the last is answered 429


@dataclass
class Told:
    """What clients were answered; whatever was not answered is not here."""

    notes: set[str] = field(default_factory=set)  # names of Notes whose insert was answered 201
    guesses: Counter[int] = field(default_factory=Counter)  # status: how often
    spent: Counter[str] = field(default_factory=Counter)  # token: how often it was answered 200
    strange: list[str] = field(default_factory=list)  # answers that nobody should get


class Crashes:
    """Rounds of load and kill on one site."""

    def __init__(self, site: LiveSite, receiver: LiveReceiver, seed: int) -> None:
        self.site, self.receiver, self.dice = site, receiver, random.Random(seed)
        self.told, self.rounds, self.kills = Told(), 0, list[float]()
        self._over, self._cookie = threading.Event(), dict[str, str]()

    def prepare(self) -> None:
        """Make a manager, a victim for the guesses, and a Webhook that watches Note."""
        self.site.add_manager()
        self.site.fw("user", "add", "victim", "--email", "victim@example.test",
                     "--password-stdin", stdin=PASSWORD)  # fmt: skip
        self._start()
        with self.site.client() as client:
            make_webhook(client, self.receiver.url, max_attempts=3)
            # One session for all rounds: a sign-in that a kill cuts off stays a failed one.
            self._cookie = {"sid": client.cookies["sid"]}
        self.site.end()

    def round(self) -> None:
        """Start, load, kill."""
        token = self._invite()
        self._start()
        with self._worker() as worker:
            self._over = threading.Event()
            loads: list[Callable[[], None]] = [*[self._write] * WRITERS, self._guess]
            loads += [lambda: self._spend(token)] * 2
            threads = [threading.Thread(target=load, daemon=True) for load in loads]
            for thread in threads:
                thread.start()
            time.sleep(self.dice.uniform(0.2, 1.5))  # when the kill comes is the point
            if worker is not None and self.dice.random() < 0.5:
                worker.kill()
                time.sleep(self.dice.uniform(0.0, 0.3))
            self.kills.append(time.monotonic())
            self.site.end(signal.SIGKILL)
            self._over.set()
            for thread in threads:
                thread.join(60)
        self.rounds += 1

    def judge(self) -> list[str]:
        """Start once more, wait for the end of all deliveries, and say what is not as promised."""
        self.rounds += 1
        self._start()
        with self._client() as client:
            final = eventually(lambda: _all_final(client), 120.0)
            notes = {row["name"] for row in _all(client, "Note", ["name"])}
        self.site.end()
        return [*self._of_events(final, notes), *self._of_access(), *self.told.strange]

    def _of_events(self, final: list[dict[str, Any]], notes: set[str]) -> Iterator[str]:
        ids = {row["name"] for row in final}
        referred = Counter(row["reference_name"] for row in final)
        got = Counter(self.receiver.ids)
        for name in self.told.notes - notes:
            yield f"note {name} was answered, and is not there"
        for name in notes:
            if referred[name] != 1:
                yield f"note {name} has {referred[name]} deliveries"
        for row in final:
            if row["status"] != "Sent" or not got[row["name"]]:
                yield f"{row['name']} is {row['status']}, and arrived {got[row['name']]} times"
        for name in got.keys() - ids:
            yield f"{name} arrived, and is not in the store"
        twice = [name for name, count in got.items() if count > 1]
        most = self.rounds * (WRITERS + 2) * 4
        if len(twice) > most:
            yield f"{len(twice)} of {len(got)} arrived twice after {len(self.kills)} kills"

    def _of_access(self) -> Iterator[str]:
        if self.told.guesses[200]:
            yield "a wrong password was taken"
        windows = 1 + self.rounds * LEASE_SECONDS // LOCKOUT_SECONDS
        if self.told.guesses[401] > MOST_ANSWERED_401 * windows:
            yield f"{self.told.guesses[401]} guesses were answered 401: a failure was forgiven"
        for token, count in self.told.spent.items():
            if count > 1:
                yield f"the token {token[:4]}… was spent {count} times"

    def _client(self) -> httpx.Client:
        return httpx.Client(base_url=self.site.url, headers=CSRF, cookies=self._cookie, timeout=30)

    def _start(self) -> None:
        offset = str(LEASE_SECONDS * self.rounds)
        self.site.start(FW_MODE="development", FW_CLOCK_OFFSET=offset)

    def _invite(self) -> str:
        """Return the token of a new account's invitation."""
        name = f"guest{self.rounds}"
        said = self.site.fw("user", "add", name, "--email", f"{name}@example.test")
        return said.partition("#token=")[2].split()[0]

    @contextmanager
    def _worker(self) -> Iterator[subprocess.Popen[bytes] | None]:
        """A further delivery process, in every second round."""
        if self.rounds % 2:
            yield None
            return
        offset = str(LEASE_SECONDS * self.rounds)
        worker = subprocess.Popen(
            [sys.executable, "-P", "-m", "fw_cli", "worker"], cwd=self.site.folder,
            env=self.site.environ(FW_MODE="development", FW_CLOCK_OFFSET=offset),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield worker
        finally:
            worker.kill()
            worker.wait(30)

    def _write(self) -> None:
        """Insert notes until the kill."""
        try:
            with self._client() as client:
                while not self._over.is_set():
                    answer = client.post("/api/resource/Note", json={"title": "a note"})
                    if answer.status_code == 201:
                        self.told.notes.add(answer.json()["data"]["name"])
                    else:
                        self.told.strange.append(f"an insert was answered {answer.text}")
        except httpx.HTTPError:
            return  # no answer: nothing is promised

    def _guess(self) -> None:
        """Guess the victim's password until the kill."""
        try:
            with httpx.Client(base_url=self.site.url, headers=CSRF, timeout=30) as client:
                while not self._over.is_set():
                    answer = client.post("/api/login", json={"usr": "victim", "pwd": "wrong"})
                    self.told.guesses[answer.status_code] += 1
        except httpx.HTTPError:
            return

    def _spend(self, token: str) -> None:
        """Spend an invitation, against another who does so too, before and after the kill."""
        body = {"token": token, "password": f"{PASSWORD} {threading.get_ident()}"}
        try:
            answer = httpx.post(self.site.url + "/api/auth/accept-invite", json=body, timeout=30)
        except httpx.HTTPError:
            return
        self.told.spent[token] += answer.status_code == 200


def crash(site: LiveSite, rounds: int, seed: int) -> list[str]:
    """Run so many rounds; return what was not as promised."""
    with LiveReceiver() as receiver:
        crashes = Crashes(site, receiver, seed)
        crashes.prepare()
        for _ in range(rounds):
            crashes.round()
        found = crashes.judge()
    if len(crashes.told.notes) < rounds:
        found.append(f"only {len(crashes.told.notes)} notes were answered in {rounds} rounds")
    return found


def _all(client: httpx.Client, doctype: str, fields: list[str]) -> list[dict[str, Any]]:
    """Return all rows of a DocType, page by page."""
    rows: list[dict[str, Any]] = []
    while True:
        query = {"fields": str(fields).replace("'", '"'), "limit": "500", "start": str(len(rows))}
        query["order_by"] = "name asc"
        page = client.get(f"/api/resource/{doctype}", params=query).json()["data"]
        rows += page
        if len(page) < 500:
            return rows


def _all_final(client: httpx.Client) -> list[dict[str, Any]]:
    if any(row["status"] not in ("Sent", "Failed") for row in deliveries(client)):
        return []
    rows = _all(client, "Webhook Delivery", ["name", "status", "reference_name"])
    return rows if all(row["status"] in ("Sent", "Failed") for row in rows) else []
