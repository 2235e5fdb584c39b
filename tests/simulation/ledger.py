"""Looks at the durable state after every commit, and at what each commit made of the one before.

A connection of its own reads the rows; the rules are the spec's tables, written out once more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.simulation.life import Life
from tests.simulation.surroundings import Broken

OPEN: Final = ("Queued", "Retrying")
FINAL: Final = ("Sent", "Failed")
DAY_MS: Final = 86_400_000
FAR_SECONDS: Final = 300.0  # beyond the cap and this much, a time is one of a clock that was wrong


class Delivery(NamedTuple):
    """A Webhook Delivery as it stands in the store."""

    status: str
    attempts: int
    max_attempts: int
    next_attempt: int | None
    last_attempt: int | None
    payload: str
    webhook: str
    event: str
    reference: str | None
    sent: int | None
    error: str | None


class Job(NamedTuple):
    """A row of the queue."""

    queue: str
    subject: str
    next_at: int | None
    lease: str | None
    attempts: int


class Password(NamedTuple):
    """A user's hash (two passwords may be set in one millisecond), sessions and open links."""

    hashed: str | None
    sessions: frozenset[str]
    links: frozenset[str]


@dataclass(frozen=True)
class State:
    """The rows that promises are about."""

    deliveries: Mapping[str, Delivery] = field(default_factory=dict)
    jobs: Mapping[int, Job] = field(default_factory=dict)
    mails: Mapping[str, str] = field(default_factory=dict)
    passwords: Mapping[str, Password] = field(default_factory=dict)


@dataclass(frozen=True)
class Rules:
    """Of the site's configuration."""

    backoff: float
    cap: float
    retention_days: int

    def wait_ms(self, attempt: int) -> int:
        """30 s, then doubled each time, up to the cap (spec, Limits), with the site's numbers."""
        return round(min(self.backoff * 2.0 ** (attempt - 1), self.cap) * 1000)


_DELIVERIES: Final = """SELECT name, status, attempts, max_attempts, next_attempt, last_attempt,
    payload, webhook, event, reference_name, sent, error FROM doc_webhook_delivery"""
_JOBS: Final = "SELECT id, queue, subject, next_at, lease, attempts FROM fw_job"
_MAILS: Final = "SELECT name, status FROM doc_email_delivery"
_PASSWORDS: Final = """SELECT u.name, p.hash,
    (SELECT group_concat(id) FROM fw_session s WHERE s.user = u.name),
    (SELECT group_concat(kind || ' ' || hex(hash)) FROM fw_token t
        WHERE t.user = u.name AND t.spent IS NULL)
    FROM doc_user u LEFT JOIN fw_password p ON p.user = u.name"""


class Ledger:
    """Call `look` after each commit. Raises Broken through `broken`."""

    def __init__(self, path: Path, rules: Rules, now: Callable[[], int]) -> None:
        self._db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
        self._rules, self._now = rules, now
        self._version = -1
        self._owners: dict[str, str] = {}
        self.state = State()
        self.replays: set[str] = set()
        """Deliveries that somebody asked to be sent again."""
        self.minted: dict[str, int] = {}
        """Links, each as its kind and its token's hash in hex, by the commit that made them."""
        self.commits = 0

    def look(self, life: Life) -> list[str]:
        """Compare with the last look; return what the commit of `life` broke."""
        version = self._db.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version:
            return []
        self._version = version
        self.commits += 1
        before, after = self.state, self._read()
        self.state = after
        try:
            self._judge(before, after, life)
        except Broken as broken:
            return [str(broken)]
        return []

    def leases_of(self, life: Life) -> list[int]:
        """Return the jobs that a process holds."""
        return [
            number
            for number, job in self.state.jobs.items()
            if job.lease is not None and self._owners.get(job.lease) == life.label
        ]

    def rows(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        """Run SQL of one's own."""
        return self._db.execute(text, values).fetchall()

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def _read(self) -> State:
        self._db.execute("BEGIN")
        try:
            return State(
                {row[0]: Delivery(*row[1:]) for row in self._db.execute(_DELIVERIES)},
                {row[0]: Job(*row[1:]) for row in self._db.execute(_JOBS)},
                dict(self._db.execute(_MAILS).fetchall()),
                {row[0]: _password(row) for row in self._db.execute(_PASSWORDS)},
            )
        finally:
            self._db.execute("COMMIT")

    def _judge(self, before: State, after: State, life: Life) -> None:
        for number, job in after.jobs.items():
            self._judge_lease(before.jobs.get(number), job, life)
        self._judge_pairs(after)
        for name, new in after.deliveries.items():
            old = before.deliveries.get(name)
            if old is None:
                _expect(new.status == "Queued" and new.attempts == 0, f"{name} began as {new}")
            elif old != new:
                self._judge_step(name, old, new)
        for name in before.deliveries.keys() - after.deliveries.keys():
            self._judge_sweep(name, before.deliveries[name])
        for gone in before.jobs.keys() - after.jobs.keys():
            self._judge_end(before.jobs[gone], life)
        for user, password in after.passwords.items():
            _judge_password(user, before.passwords.get(user), password)
            for link in password.links - self.minted.keys():
                self.minted[link] = self.commits

    def _judge_lease(self, old: Job | None, new: Job, life: Life) -> None:
        if new.lease is not None and (old is None or old.lease != new.lease):
            self._owners[new.lease] = life.label
            due = old.next_at if old is not None else None
            wrong = due is None or self._now() < due <= self._now() + self._far_ms()
            _expect(not wrong, f"job of {new.subject} was leased before it was due, at {due}")
        elif old is not None and old.lease != new.lease:
            self._judge_end(old, life)

    def _judge_end(self, old: Job, life: Life) -> None:
        """An outcome by a lost lease: written by a process that does not hold it."""
        if old.lease is not None and old.next_at is not None:
            owner = self._owners.get(old.lease)
            _expect(
                owner in (None, life.label),
                f"{life.label} wrote the outcome of {old.subject}, which {owner} held",
            )

    def _judge_pairs(self, after: State) -> None:
        """No row is half-written: who is open has a job that waits, and nobody else has one."""
        waiting: dict[tuple[str, str], int] = {}
        for job in after.jobs.values():
            if job.next_at is not None:
                pair = (job.queue, job.subject)
                waiting[pair] = waiting.get(pair, 0) + 1
        for queue, statuses in (
            ("webhook", {name: d.status for name, d in after.deliveries.items()}),
            ("mail", after.mails),
        ):
            for name, status in statuses.items():
                jobs = waiting.pop((queue, name), 0)
                _expect(jobs == (status in OPEN), f"{name} is {status} and has {jobs} jobs")
        left = [pair for pair in waiting if pair[0] != "app"]
        _expect(not left, f"jobs without a delivery: {left}")

    def _judge_step(self, name: str, old: Delivery, new: Delivery) -> None:
        _expect(old.payload == new.payload, f"the body of {name} changed")
        _expect(new.attempts <= new.max_attempts, f"{name} has {new.attempts} attempts")
        if old.status in FINAL and new.status == "Queued":
            _expect(name in self.replays and not new.attempts, f"{name} began anew by itself")
            return
        if (old.status, old.attempts) == (new.status, new.attempts):
            same = old._replace(reference=None) == new._replace(reference=None)
            _expect(same, f"{name} changed without an attempt: {old} to {new}")
            return
        _expect(old.status in OPEN, f"{name} went from {old.status} to {new.status}")
        _expect(new.attempts == old.attempts + 1, f"{name}: {old.attempts}, {new.attempts}")
        self._judge_outcome(name, new)

    def _judge_outcome(self, name: str, new: Delivery) -> None:
        if new.status == "Retrying":
            _expect(new.attempts < new.max_attempts, f"{name} retries after its last attempt")
            waits = (new.next_attempt or 0) - (new.last_attempt or 0)
            wanted = self._rules.wait_ms(new.attempts)
            _expect(waits == wanted, f"{name} waits {waits} ms after attempt {new.attempts}")
        else:
            _expect(new.status in FINAL, f"{name} became {new.status}")
            _expect(new.next_attempt is None, f"{name} is {new.status}, and has a next attempt")
            _expect((new.sent is not None) == (new.status == "Sent"), f"{name}: {new}")
            _expect(bool(new.error) == (new.status == "Failed"), f"{name}: {new}")

    def _judge_sweep(self, name: str, old: Delivery) -> None:
        _expect(old.status in FINAL, f"{name} was deleted while {old.status}")
        age = self._now() - (old.last_attempt or 0)
        _expect(age >= self._rules.retention_days * DAY_MS, f"{name} was swept after {age} ms")

    def _far_ms(self) -> float:
        return (self._rules.cap + FAR_SECONDS) * 1000


def _judge_password(user: str, old: Password | None, new: Password) -> None:
    """A password that is set ends every other session and every link of its user."""
    if old is None or old.hashed == new.hashed:
        return
    kept = old.sessions & new.sessions
    _expect(len(kept) <= 1, f"the password of {user} was set, and {len(kept)} sessions live on")
    _expect(not old.links & new.links, f"the password of {user} was set, and links live on")


def _password(row: tuple[Any, ...]) -> Password:
    sessions, links = (frozenset((text or "").split(",")) - {""} for text in row[2:4])
    return Password(row[1], sessions, links)


def _expect(kept: bool, otherwise: str) -> None:
    if not kept:
        raise Broken(otherwise)
