"""Rounds of load and faults on real processes of one site.

Each round begins with the clocks of its processes a lease later, so that what the killed ones
held is due at once.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

import httpx

from tests.crash.aftermath import broken_promises
from tests.crash.load import CSRF, VICTIM, ClientAnswers, Load
from tests.fork_server import ForkedProcess
from tests.live_site import NO_TLS, PASSWORD, LiveReceiver, LiveSite, eventually
from tests.postgres_cluster import PostgresCluster
from tests.webhook_kit import make_webhook

TIMEOUT_SECONDS: Final = 60  # of the Webhook: no machine is too slow for it
LEASE_SECONDS: Final = TIMEOUT_SECONDS + 35
OPS: Final = {"backoffSeconds": 0.2}


class Rounds:
    """A round is: start, load, fault, kill. The subclasses differ in `inject_fault`."""

    excused = frozenset[int]()
    """The statuses of inserts that a round may see."""
    patience = 30.0
    """Seconds that a client waits for an answer."""

    def __init__(self, sites: Sequence[LiveSite], receiver: LiveReceiver, seed: int) -> None:
        """`sites`: the nodes, folders of their own over one database; or the one there is."""
        self.sites, self.receiver = tuple(sites), receiver
        self.rng, self.answers = random.Random(seed), ClientAnswers()
        self.rounds = self.faults = 0
        self._cookie: dict[str, str] = {}

    def prepare(self) -> None:
        """Make a manager, a victim for the guesses, and a Webhook that watches Note."""
        first = self.sites[0]
        first.add_manager()
        first.prepare("user", "add", VICTIM, "--email", "victim@example.test",
                      "--password-stdin", stdin=PASSWORD)  # fmt: skip
        self.start(first)
        with first.client() as client:
            make_webhook(client, self.receiver.url, max_attempts=3, timeout=TIMEOUT_SECONDS)
            # One session for all rounds: a sign-in that a kill cuts off stays a failed one.
            self._cookie = {"sid": client.cookies["sid"]}
        first.end()

    def round(self) -> None:
        """Start the processes, run a load, inject a fault, and kill the processes."""
        up = self.start_all()
        token = self._invite(up[0])
        load = Load(
            lambda: [site.url for site in up], self._cookie, token, self.answers, self.excused,
            self.patience,
        )  # fmt: skip
        before = len(self.answers.notes)
        with self.during_load(), load:
            eventually(lambda: len(self.answers.notes) > before)  # however slow the machine is
            time.sleep(self.rng.uniform(0.2, 1.5))  # the fault must come at a random moment
            self.inject_fault(up)
            self.faults += 1
            for site in up:
                self.kill(site)
        self.rounds += 1

    def violations(self) -> list[str]:
        """Start again, wait for the end of all deliveries, and return the violations."""
        self.rounds += 1
        first = self.sites[0]
        self.start(first)
        with self._client(first) as client:
            seconds = self.rounds * LEASE_SECONDS
            found = broken_promises(
                client, self.receiver, self.answers, faults=self.faults, seconds=seconds
            )
        first.end()
        return found

    def start_all(self) -> list[LiveSite]:
        """Start the nodes; return those that are up."""
        up = self.to_start()
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.start, up))
        return up

    def to_start(self) -> list[LiveSite]:
        """Return the nodes that a round begins with."""
        return list(self.sites)

    def start(self, site: LiveSite) -> None:
        """Start a node, with the clock of this round."""
        site.start(**self.environ)

    @property
    def environ(self) -> dict[str, str]:
        """The environment of this round's processes."""
        return {
            "FW_MODE": "development",
            "FW_CLOCK_OFFSET": str(LEASE_SECONDS * self.rounds),
        }

    def kill(self, site: LiveSite) -> None:
        """Kill a node where it stands."""
        if site.process is not None:
            site.end(signal.SIGKILL)

    @contextmanager
    def during_load(self) -> Iterator[None]:
        """Surround the load of a round."""
        yield

    def inject_fault(self, up: Sequence[LiveSite]) -> None:
        """Inject the fault of a round; the processes that are up are killed afterwards."""

    def _client(self, site: LiveSite) -> httpx.Client:
        return httpx.Client(
            base_url=site.url, headers=CSRF, cookies=self._cookie, timeout=30, verify=NO_TLS
        )

    def _invite(self, site: LiveSite) -> str:
        """Return the token of a new account's invitation."""
        with self._client(site) as client:
            body = {"email": f"guest{self.rounds}@example.test"}
            answer = client.post("/api/method/core.services.users.invite", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["link"]).partition("#token=")[2]


class KillRounds(Rounds):
    """One server, and a worker beside it in every second round; either may be killed first."""

    _worker: ForkedProcess | None = None

    @contextmanager
    def during_load(self) -> Iterator[None]:
        """Run the worker."""
        if self.rounds % 2:
            yield
            return
        site = self.sites[0]
        self._worker = site.begin("worker", environ=self.environ)
        try:
            yield
        finally:
            self._worker.kill()
            self._worker.wait(30)
            self._worker = None

    def inject_fault(self, up: Sequence[LiveSite]) -> None:
        """Kill the worker first, now and then."""
        if self._worker is not None and self.rng.random() < 0.5:
            self._worker.kill()
            time.sleep(self.rng.uniform(0.0, 0.3))


class ProcessRounds(Rounds):
    """One service of several processes: one of them is killed, or the fork server, or all.

    Processes whose supervisor was killed drain; the next round begins when they have ended.
    """

    excused = frozenset({503})  # what a process that drains answers

    def inject_fault(self, up: Sequence[LiveSite]) -> None:
        """Inject the faults in turn."""
        (site,) = up
        processes = sorted(site.children())
        assert site.process is not None
        victims = [[self.rng.choice(processes)], [*processes, site.process.pid], []]
        for pid in victims[self.rounds % len(victims)]:
            os.kill(pid, signal.SIGKILL)
        time.sleep(self.rng.uniform(0.0, 1.5))  # on the way, or replaced


class NodeRounds(Rounds):
    """Several nodes on one PostgreSQL: killed, frozen past their leases, restarted, or the server
    itself is."""

    excused = frozenset({503})  # the server of the database may be away
    patience = 5.0  # a frozen node does not respond

    def __init__(
        self,
        sites: Sequence[LiveSite],
        receiver: LiveReceiver,
        seed: int,
        server: PostgresCluster,
    ) -> None:
        super().__init__(sites, receiver, seed)
        self._server = server
        self._frozen: LiveSite | None = None
        self._faults = [self._kill, self._freeze, self._restart, self._restart_server]

    def to_start(self) -> list[LiveSite]:
        """The node that is frozen since the last round, past its leases, stays as it is."""
        return [site for site in self.sites if site is not self._frozen]

    def inject_fault(self, up: Sequence[LiveSite]) -> None:
        """Inject one fault under load. A thawed node continues with leases that it has lost."""
        thawed, self._frozen = self._frozen, None
        if thawed is not None and thawed.process is not None:
            thawed.process.send_signal(signal.SIGCONT)
        fault = self._faults[self.rounds % len(self._faults)]  # each has its turn
        fault(self.rng.choice(up))
        time.sleep(self.rng.uniform(0.2, 1.0))
        if thawed is not None:
            self.kill(thawed)

    def kill(self, site: LiveSite) -> None:
        """Kill a node, unless it is to stay frozen."""
        if site is not self._frozen:
            super().kill(site)

    def violations(self) -> list[str]:
        """See `Rounds.violations`; no node stays frozen."""
        frozen, self._frozen = self._frozen, None
        if frozen is not None:
            self.kill(frozen)
        return super().violations()

    def _kill(self, site: LiveSite) -> None:
        self.kill(site)

    def _freeze(self, site: LiveSite) -> None:
        assert site.process is not None
        site.process.send_signal(signal.SIGSTOP)
        self._frozen = site

    def _restart(self, site: LiveSite) -> None:
        code = site.end()
        if code != 0:
            self.answers.strange.append(f"a node that was stopped in order ended with {code}")
        self.start(site)

    def _restart_server(self, site: LiveSite) -> None:
        """Of the two ways, one is a crash."""
        self._server.stop(self.rng.choice(("immediate", "fast")))
        time.sleep(self.rng.uniform(0.0, 0.5))
        self._server.start()


def run(rounds: Rounds, count: int) -> list[str]:
    """Run so many rounds; return what was not as promised."""
    rounds.prepare()
    for _ in range(count):
        rounds.round()
    found = rounds.violations()
    if len(rounds.answers.notes) < count:
        found.append(f"only {len(rounds.answers.notes)} notes were answered in {count} rounds")
    return found
