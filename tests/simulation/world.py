"""One simulated site with its environment, made from a seed; keeps the model of its promises."""

from __future__ import annotations

import importlib
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import trio

from fw_actors.config import Config, ProcessPlace
from fw_actors.http import Origin, parse_endpoint
from fw_actors.mail import MailMessage
from supervisors import SupervisorFailed
from supervisors.service.processes import shared_memory
from tests.simulation.environment import SimulatedEnvironment, SimulationTrace
from tests.simulation.faulty_store import InjectedDefect, StoreFaults
from tests.simulation.incarnation import Incarnation
from tests.simulation.ledger import Ledger, Rules
from tests.simulation.mail_server import ReceivedMail, SimulatedMailServer
from tests.simulation.node import NodeProcess, SimulatedNode
from tests.simulation.people import SESSION_DAYS, Directory, Guesses
from tests.simulation.receivers import ReceivedRequest, SimulatedReceiver, fault_of
from tests.simulation.signers import Signers
from tests.simulation.wall_clock import WallClock
from tests.site_kit import SECRET_KEY, make_config

DISTURBED_SECONDS: Final = 150.0
TIMESTAMP_MS: Final = 3000  # whole seconds, and up to two on the way
LEASE_SECONDS: Final = 61.0  # no lease is longer
RECEIVERS: Final = 4
PAYLOAD_SECONDS: Final = 10  # how long bodies stay, where they are swept
APP: Final = "tickets"
OTHER_KEY: Final = "another key of the same length"
DELIVERED: Final = frozenset(
    {"200", "202", "204", "200 kept", "200 slow", "early hints", "dribble", "stale", "short body",
     "late accept", "done then reset", "huge"}
)  # fmt: skip
"""Behaviours whose answer has a 2xx head; the head decides (B-141)."""


def site_config(folder: Path, rng: random.Random) -> Config:
    """Return a site whose limits are small, so that a minute reaches all of them."""
    return make_config(
        Path(__file__).parent / "apps",
        apps=(APP,),
        database=f"sqlite:///{folder / 'fw.db'}",
        max_login_attempts=rng.randint(1, 4),
        lockout_minutes=1,
        reset_minutes=rng.randint(1, 3),
        invite_hours=1,
        session_days=SESSION_DAYS,
        backoff_seconds=rng.choice((0.2, 0.5, 1.0)),
        backoff_cap_seconds=rng.choice((2.0, 4.0)),
        delivery_concurrency=rng.choice((1, 2, 8, 64)),
        per_receiver_concurrency=rng.choice((1, 2, 16)),
        address_attempts=rng.choice((10, 1000)),
        recovery_attempts=rng.choice((8, 1000)),
        receiver_notice=rng.choice((0, 2 / 3600, 30 / 3600)),
        disable_after_days=rng.choice((0, 0, 1 / 86_400, 10 / 86_400)),
        new_device_mail=rng.random() < 0.5,
    )


@dataclass
class Promises:
    """The promises that clients were given."""

    sent: dict[str, str] = field(default_factory=dict)  # delivery: the marker of its event
    refused: set[str] = field(default_factory=set)  # markers that must be nowhere
    events: Counter[tuple[str, str]] = field(default_factory=Counter)  # (title, event) for sure
    perhaps: Counter[tuple[str, str]] = field(default_factory=Counter)  # whose answer was lost
    jobs: dict[str, bool] = field(default_factory=dict)  # title: whether it is for sure
    spent: Counter[str] = field(default_factory=Counter)  # token: how often it set a password


class World:
    """Made for one run. `broke` ends it."""

    def __init__(self, seed: str, folder: Path, nursery: trio.Nursery) -> None:
        self.seed, self.nursery = seed, nursery
        self.clock, self.trace = WallClock(), SimulationTrace(trio.current_time())
        self.broken: list[str] = []
        self.store_faults, self.promises, self.people = StoreFaults(), Promises(), Directory()
        self.secrets: dict[str, list[str]] = {}  # of each Webhook, all that it ever had
        self.any_secret: list[str] = []  # of Webhooks whose name no response had
        self.not_to_pick: set[str] = set()  # names that Webhooks had, or are just being given
        self.steady: list[str] = []  # Webhooks that stay unchanged: for the event, for tickets
        self.answers: dict[str, list[str]] = {}
        self.disturbed_at = float("-inf")
        self.mail_server = SimulatedMailServer(self.rng("post office"), self._stamp)
        self.receivers = [self._receiver(number) for number in range(RECEIVERS)]
        self.config = site_config(folder, self.rng("config"))
        self._database = folder / "fw.db"
        self.guesses = Guesses(self.config.auth.max_login_attempts, 60_000)
        self.ledger: Ledger | None = None
        self.environment = SimulatedEnvironment(
            seed, self.clock, self.trace, nursery, self.store_faults, self._listeners(),
            self.mail_server, self._committed, self._hashed, self._process_failed, self._stopped,
            self._corrected,
        )  # fmt: skip
        self.one_service = self.rng("processes").random() < 0.5
        """Whether the two processes are those of one service, or one is a service of its own."""
        self.memory = shared_memory() if self.one_service else None
        self.nodes = [
            SimulatedNode(
                name,
                replace(self.config, place=ProcessPlace(number, 2)),
                self.environment,
                self.memory,
            )
            for number, name in enumerate(("a", "b"), 1)
        ]
        self._signers = Signers((SECRET_KEY, OTHER_KEY))

    def rng(self, what: str) -> random.Random:
        """Return a generator of its own. `what` is part of its seed: another name, other runs."""
        return random.Random(f"{self.seed}/{what}")

    def broke(self, promise: str) -> None:
        """Note a broken promise, and end the run."""
        self.broken.append(promise)
        self.trace("BROKEN", promise)
        self.nursery.cancel_scope.cancel()

    def open_ledger(self) -> Ledger:
        """Begin to check the durable state; the database exists."""
        ops = self.config.ops
        rules = Rules(ops.backoff_seconds, ops.backoff_cap_seconds, ops.webhook_retention_days)
        self.ledger = Ledger(self._database, rules, self.clock.now)
        self.ledger.check(Incarnation("the founder"))  # existing rows are no client's work
        return self.ledger

    def url(self, number: int) -> str:
        """Return a URL of a receiver; loopback, so that http is allowed."""
        return f"http://127.0.0.{number + 1}:8080/hook"

    def job(self) -> Any:
        """Return the function of the app that is run as a job; the app is found by its site."""
        return importlib.import_module(APP).write_ticket

    @property
    def disturbed(self) -> bool:
        """Whether a clock that was set, or a frozen process, may still have made one lease two."""
        latest = max(self.disturbed_at, self.clock.jumped_at)
        return trio.current_time() - latest < DISTURBED_SECONDS

    def _receiver(self, number: int) -> SimulatedReceiver:
        name = f"receiver {number}"
        return SimulatedReceiver(name, self.rng(name), self.nursery, self._posted, self._answered)

    def _listeners(self) -> dict[Origin, Any]:
        return {
            parse_endpoint(self.url(number), development=False).origin: receiver
            for number, receiver in enumerate(self.receivers)
        }

    def _stamp(self, message: MailMessage) -> ReceivedMail:
        self.trace("mail server", f"{message.template} to {message.recipient}")
        return ReceivedMail(trio.current_time(), self.clock.now(), self.clock.jumps, message)

    def _posted(self, receiver: SimulatedReceiver, post: ReceivedRequest) -> None:
        self.trace(receiver.name, f"got {post.delivery}")
        wrong = self._wrong_of(post)
        if wrong is not None:
            self.broke(f"{post.delivery} {wrong}")

    def _wrong_of(self, post: ReceivedRequest) -> str | None:
        """Return the fault of a request that reached a receiver, or None."""
        ledger = self.ledger
        row = ledger.state.deliveries.get(post.delivery) if ledger is not None else None
        if ledger is None or row is None:
            return "was sent, and is not in the store"
        second = int(post.headers["webhook-timestamp"])
        signers = [
            each
            for hook in ledger.claimed[post.delivery][0 if self.disturbed else -1 :]
            for each in self._signers.of(hook, second)
        ]
        wrong = fault_of(post, self.secrets.get(row.webhook, self.any_secret), signers)
        if wrong is None and post.body.decode() != ledger.bodies.get(post.delivery):
            wrong = "was sent with another body"
        if wrong is not None or self.disturbed:
            return wrong
        off = abs(second * 1000 - self.clock.now())
        if off > TIMESTAMP_MS:
            return f"says that it is sent {off} ms from now"
        if row.erased is not None or row.status in ("Sent", "Failed"):
            return f"was sent while {row.status}, erased: {row.erased is not None}"
        return None

    def _answered(self, receiver: SimulatedReceiver, post: ReceivedRequest, behaviour: str) -> None:
        self.trace(receiver.name, f"does {behaviour} to {post.delivery}")
        self.answers.setdefault(post.delivery, []).append(behaviour)

    def _committed(self, incarnation: Incarnation) -> None:
        if self.ledger is None:
            return
        before = self.ledger.state.passwords
        for broken in self.ledger.check(incarnation):
            self.broke(broken)
        for delivery in self.ledger.anew:
            self.answers.pop(delivery, None)  # an earlier acceptance was of an earlier replay
        for user, new in self.ledger.state.passwords.items():
            old = before.get(user)
            if (
                old is not None
                and old != new
                and (new.sessions - old.sessions or old.hashed != new.hashed)
            ):
                account = self.people.accounts.get(user)
                self.guesses.forgiven(
                    self.clock.now(), user, "" if account is None else account.email
                )

    def _hashed(self, password: str) -> None:
        broken = self.guesses.note(password, self.clock.now())
        if broken is not None:
            self.broke(broken)

    def _corrected(self) -> None:
        self.guesses.clock_corrected(self.clock.now())

    def _process_failed(self, incarnation: Incarnation, error: Exception) -> None:
        self.trace(incarnation.label, f"failed: {type(error).__name__}")
        if not self.is_injected_failure(error):
            self.broke(f"{incarnation.label} failed: {error!r}")

    def is_injected_failure(self, error: Exception) -> bool:
        """Return whether injected faults explain an error that ends a process."""
        return isinstance(error, SupervisorFailed | InjectedDefect)

    def _stopped(self, incarnation: Incarnation, up: NodeProcess) -> None:
        """Nothing is left of what ran, and no lease is kept."""
        seen = up.runtime.snapshot()
        left = [node.name for node in seen.walk()]
        if left or seen.deadlines or seen.workers - seen.workers_parked:
            self.broke(
                f"{incarnation.label} left {left}, {seen.deadlines} deadlines, {seen.workers}"
            )
        if up.sender.statistics().pool.in_use:
            self.broke(f"{incarnation.label} left connections in use")
        # An outcome that was not written within its deadline keeps its lease.
        excused_at = max(self.store_faults.struck_at, incarnation.thawed_at)
        excused = trio.current_time() - excused_at < LEASE_SECONDS
        if self.ledger is not None and (held := self.ledger.leases_of(incarnation)) and not excused:
            self.broke(f"{incarnation.label} stopped in order and kept the leases of {held}")
