"""Checks the durable state after every commit, and its difference from the previous state.

A connection of its own reads the rows; the tables of the contract are written out once more.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.simulation.environment import BrokenPromise
from tests.simulation.incarnation import Incarnation
from tests.simulation.pacing import Pacing
from tests.simulation.replays import ReplayCounts
from tests.simulation.stored import Delivery, JobRow, PasswordRow, StoredState, WebhookRow, read

OPEN: Final = ("Queued", "Retrying")
FINAL: Final = ("Sent", "Failed")
DAY_MS: Final = 86_400_000
CLAIMS: Final = 3  # a clock that is set forward ends leases of attempts that go on
FAR_SECONDS: Final = 300.0  # beyond the cap and this much, a time is one of a clock that was wrong


@dataclass(frozen=True)
class Rules:
    """Of the site's configuration."""

    backoff: float
    cap: float
    retention_days: int

    def wait_ms(self, attempt: int) -> int:
        """30 s, then doubled each time, up to the cap (B-190), with the site's numbers."""
        return round(min(self.backoff * 2.0 ** (attempt - 1), self.cap) * 1000)


class Ledger:
    """Call `check` after each commit. Raises BrokenPromise through `broken`."""

    def __init__(self, path: Path, rules: Rules, now: Callable[[], int]) -> None:
        self._db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
        self._rules, self._now = rules, now
        self._version = -1
        self._owners: dict[str, str] = {}
        self.state = StoredState()
        self.replays = ReplayCounts()
        self._pacing = Pacing()
        self.bodies: dict[str, str] = {}
        """The body of each delivery, kept from before its erasure."""
        self.claimed: dict[str, tuple[WebhookRow, ...]] = {}
        """The Webhook of each delivery as it was at its latest claims, the last one last."""
        self.switched_off: set[str] = set()
        """Webhooks that were disabled at some time."""
        self.anew: set[str] = set()
        """Deliveries that began anew in the last commit."""
        self.cancelled: Counter[str] = Counter()
        """How often each delivery was cancelled."""
        self.minted: dict[str, int] = {}
        """Links, each as its kind and its token's hash in hex, by the commit that made them."""
        self.commits = 0

    def check(self, incarnation: Incarnation) -> list[str]:
        """Compare with the last state; return what the commit of `incarnation` broke."""
        version = self._db.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version:
            return []
        self._version = version
        self.commits += 1
        self.anew.clear()
        before, after = self.state, read(self._db)
        self.state = after
        try:
            self._judge(before, after, incarnation)
        except BrokenPromise as broken:
            return [str(broken)]
        return []

    def leases_of(self, incarnation: Incarnation) -> list[int]:
        """Return the jobs that a process holds."""
        return [
            number
            for number, job in self.state.jobs.items()
            if job.lease is not None and self._owners.get(job.lease) == incarnation.label
        ]

    def rows(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        """Run SQL of one's own."""
        return self._db.execute(text, values).fetchall()

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def _judge(self, before: StoredState, after: StoredState, incarnation: Incarnation) -> None:
        leased = [
            (number, job)
            for number, job in after.jobs.items()
            if self._judge_lease(before.jobs.get(number), job, incarnation, after)
        ]
        for _, job in leased:
            if job.queue == "webhook" and job.partition in after.hooks:
                earlier = self.claimed.get(job.subject, ())
                self.claimed[job.subject] = (*earlier, after.hooks[job.partition])[-CLAIMS:]
        self._pacing.check(self._now(), leased, before, after)
        self.switched_off.update(name for name, hook in after.hooks.items() if not hook.enabled)
        self._judge_pairs(after)
        _expect(not after.impossible, f"there is {'; '.join(after.impossible)}")
        for name, new in after.deliveries.items():
            old = before.deliveries.get(name)
            if old is None:
                _expect(new.status == "Queued" and new.attempts == 0, f"{name} began as {new}")
                self.bodies[name] = new.payload or ""
            elif old != new:
                self._judge_step(name, old, new, after)
                self._judge_cancellation(name, old, new, before)
        for name in before.deliveries.keys() - after.deliveries.keys():
            self._judge_sweep(name, before.deliveries[name])
        for gone in before.jobs.keys() - after.jobs.keys():
            self._judge_end(before.jobs[gone], incarnation, after)
        for user, password in after.passwords.items():
            _judge_password(user, before.passwords.get(user), password)
            for link in password.links - self.minted.keys():
                self.minted[link] = self.commits

    def _judge_lease(
        self, old: JobRow | None, new: JobRow, incarnation: Incarnation, after: StoredState
    ) -> bool:
        """Return whether the commit leased the job."""
        if new.lease is not None and (old is None or old.lease != new.lease):
            self._owners[new.lease] = incarnation.label
            due = old.next_at if old is not None else None
            wrong = due is None or self._now() < due <= self._now() + self._horizon_ms()
            _expect(not wrong, f"job of {new.subject} was leased before it was due, at {due}")
            return True
        if old is not None and old.lease != new.lease:
            self._judge_end(old, incarnation, after)
        return False

    def _judge_end(self, old: JobRow, incarnation: Incarnation, after: StoredState) -> None:
        """An outcome by a lost lease: written by a process that does not hold it."""
        about = after.deliveries.get(old.subject)
        if old.queue == "webhook" and about is not None and _cancelled(about):
            return  # see `_judge_cancellation`
        if old.lease is not None and old.next_at is not None:
            owner = self._owners.get(old.lease)
            _expect(
                owner in (None, incarnation.label),
                f"{incarnation.label} wrote the outcome of {old.subject}, which {owner} held",
            )

    def _judge_pairs(self, after: StoredState) -> None:
        """No row is half-written: exactly the open deliveries have a waiting job."""
        waiting: dict[tuple[str, str], int] = {}
        for job in after.jobs.values():
            if job.waits:
                pair = (job.queue, job.subject)
                waiting[pair] = waiting.get(pair, 0) + 1
                about = after.deliveries.get(job.subject) if job.queue == "webhook" else None
                same = about is None or about.webhook == job.partition
                _expect(same, f"{job.subject} waits among those of {job.partition}")
        for queue, statuses in (
            ("webhook", {name: d.status for name, d in after.deliveries.items()}),
            ("mail", after.mails),
        ):
            for name, status in statuses.items():
                jobs = waiting.pop((queue, name), 0)
                _expect(jobs == (status in OPEN), f"{name} is {status} and has {jobs} jobs")
        left = [pair for pair in waiting if pair[0] != "app"]
        _expect(not left, f"jobs without a delivery: {left}")

    def _judge_step(self, name: str, old: Delivery, new: Delivery, after: StoredState) -> None:
        if new.erased is not None and old.erased is None:
            gone = old._replace(payload=None, answer=None, erased=new.erased)
            _expect(old.status in FINAL, f"{name} was erased while {old.status}")
            return _expect(new == gone, f"{name} was erased, and changed: {old} to {new}")
        _expect(old.payload == new.payload, f"the body of {name} changed")
        _expect(old.erased == new.erased, f"{name} is not erased any more")
        _expect(new.attempts <= new.max_attempts, f"{name} has {new.attempts} attempts")
        if old.webhook != new.webhook:
            renamed = old.webhook not in after.hooks and new.webhook in after.hooks
            _expect(renamed, f"{name} went from {old.webhook} to {new.webhook}")
        if old.status in FINAL and new.status == "Queued":
            return self._judge_replay(name, new, after)
        if (old.status, old.attempts) == (new.status, new.attempts):
            moved = old._replace(reference=new.reference, webhook=new.webhook)
            return _expect(moved == new, f"{name} changed without an attempt: {old} to {new}")
        _expect(old.status in OPEN, f"{name} went from {old.status} to {new.status}")
        _expect(new.attempts == old.attempts + 1, f"{name}: {old.attempts}, {new.attempts}")
        return self._judge_outcome(name, new)

    def _judge_replay(self, name: str, new: Delivery, after: StoredState) -> None:
        """Id and body are kept, attempts begin at 1 with the Webhook's numbers (B-251)."""
        self.anew.add(name)
        _expect(new.erased is None, f"{name} is erased, and began anew")
        _expect(self.replays.began(name), f"{name} began anew, and nobody asked for it")
        hook = after.hooks.get(new.webhook)
        fresh = (0, None if hook is None else hook.max_attempts, None, None)
        begun = (new.attempts, new.max_attempts, new.error, new.sent)
        _expect(begun == fresh, f"{name} began anew with {begun} instead of {fresh}")

    def _judge_outcome(self, name: str, new: Delivery) -> None:
        if new.status == "Retrying":
            _expect(new.attempts < new.max_attempts, f"{name} retries after its last attempt")
            waits = (new.next_attempt or 0) - (new.last_attempt or 0)
            expected = self._rules.wait_ms(new.attempts)
            _expect(waits == expected, f"{name} waits {waits} ms after attempt {new.attempts}")
        else:
            _expect(new.status in FINAL, f"{name} became {new.status}")
            _expect(new.next_attempt is None, f"{name} is {new.status}, and has a next attempt")
            _expect((new.sent is not None) == (new.status == "Sent"), f"{name}: {new}")
            _expect(bool(new.error) == (new.status == "Failed"), f"{name}: {new}")

    def _judge_cancellation(
        self, name: str, old: Delivery, new: Delivery, before: StoredState
    ) -> None:
        """It was not being sent: it had no lease, or an expired one (B-366)."""
        if old.status in FINAL or not _cancelled(new):
            return
        self.cancelled[name] += 1
        for job in before.jobs.values():
            if job.queue == "webhook" and job.subject == name and job.lease is not None:
                ends = job.next_at or 0
                _expect(ends <= self._now(), f"{name} was cancelled while it was being sent")

    def _judge_sweep(self, name: str, old: Delivery) -> None:
        _expect(old.status in FINAL, f"{name} was deleted while {old.status}")
        age = self._now() - (old.last_attempt or 0)
        _expect(age >= self._rules.retention_days * DAY_MS, f"{name} was swept after {age} ms")

    def _horizon_ms(self) -> float:
        return (self._rules.cap + FAR_SECONDS) * 1000


def _cancelled(delivery: Delivery) -> bool:
    return delivery.status == "Failed" and (delivery.error or "").startswith("cancelled:")


def _judge_password(user: str, old: PasswordRow | None, new: PasswordRow) -> None:
    """A password that is set ends every other session and every link of its user."""
    if old is None or old.hashed == new.hashed:
        return
    kept = old.sessions & new.sessions
    _expect(len(kept) <= 1, f"the password of {user} was set, and {len(kept)} sessions live on")
    _expect(not old.links & new.links, f"the password of {user} was set, and links live on")


def _expect(kept: bool, otherwise: str) -> None:
    if not kept:
        raise BrokenPromise(otherwise)
