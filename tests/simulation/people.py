"""The clients' knowledge of accounts, sessions and links, and what they may expect.

A change whose answer was lost leaves two possibilities; nothing is expected of those.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from fw_actors.runtime.clock import MS_PER_DAY

SESSION_DAYS: Final = 1
SESSION_MS: Final = SESSION_DAYS * MS_PER_DAY


@dataclass(kw_only=True)
class Changing:
    """Something that clients change side by side, and whose state is certain only in between."""

    changing: int = 0
    version: int = 0

    @contextmanager
    def change(self) -> Iterator[int]:
        """While a change is under way nothing is certain; afterwards it is another one.

        Gives the version that `alone` asks for.
        """
        self.changing += 1
        self.version += 1
        try:
            yield self.version
        finally:
            self.changing -= 1
            self.version += 1

    def alone(self, version: int) -> bool:
        """Whether no other change began, was under way or ended meanwhile: the last one to be
        answered need not be the last one to be written."""
        return self.changing == 1 and self.version == version

    def same(self, version: int) -> bool:
        """Whether nothing changed since it had this version, and nothing is about to."""
        return not self.changing and self.version == version


@dataclass
class SimulatedAccount(Changing):
    """One account; `passwords` are all that may be right at this moment."""

    name: str
    email: str
    passwords: list[str]
    enabled: bool | None = True  # None: unknown
    invited: bool = False  # it may have no password yet
    sessions: list[KnownSession] = field(default_factory=list)
    keys: list[KnownKey] = field(default_factory=list)

    @property
    def certain(self) -> bool:
        """Whether its one password and its state are known."""
        known = len(self.passwords) == 1 and not self.invited
        return known and not self.changing and self.enabled is not None

    def sessions_end(self, *, certainly: bool) -> None:
        """Something ended all of its sessions, or may have."""
        for session in self.sessions:
            session.state = "ended" if certainly else "unknown"

    def keys_end(self, *, certainly: bool) -> None:
        """Something ended all of its API keys, or may have."""
        for key in self.keys:
            key.state = "ended" if certainly else "unknown"


@dataclass
class KnownSession:
    """A sid of a user; `state` is live, ended or unknown.

    It lasts until `expires`, and at least until `certain_until`: after the clock was set back, the
    service may shorten it to a lifetime from then on (O-163).
    """

    sid: str
    expires: int
    certain_until: int
    state: str = "live"


@dataclass
class KnownKey:
    """An API key that was shown to a user; `state` as of a session. It never expires here."""

    name: str
    text: str
    state: str = "live"


@dataclass
class Auditor(Changing):
    """A System Manager with or without access scopes; None while that is unknown."""

    name: str = "auditor"
    scoped: bool | None = False


@dataclass
class Directory:
    """All accounts of a run, by name, and the one that is temporarily scoped."""

    auditor: Auditor = field(default_factory=Auditor)
    accounts: dict[str, SimulatedAccount] = field(default_factory=dict)

    def add(self, name: str, *passwords: str) -> SimulatedAccount:
        """Note an account that was made."""
        account = SimulatedAccount(
            name, f"{name}@mail.example", list(passwords), invited=not passwords
        )
        self.accounts[name] = account
        return account

    def clock_was_set(self, now: int) -> None:
        """Note that no session is certain to last longer than its lifetime from now on."""
        for account in self.accounts.values():
            for session in account.sessions:
                session.certain_until = min(session.certain_until, now + SESSION_MS)

    def of_email(self, email: str) -> SimulatedAccount | None:
        """Return whose address this is."""
        return next((a for a in self.accounts.values() if a.email == email), None)


@dataclass
class Guesses:
    """Every wrong password that was hashed, by the identifier that it was a guess for."""

    limit: int
    window_ms: int
    hashed: dict[str, list[int]] = field(default_factory=dict)
    clearings: dict[str, list[int]] = field(default_factory=dict)

    @staticmethod
    def password(identifier: str, number: int | str) -> str:
        """Return a wrong password that names the account it was used for."""
        return f"guess {number} at {identifier}"

    def note(self, password: str, now: int) -> str | None:
        """A password is hashed; return what that breaks."""
        if not password.startswith("guess "):
            return None
        identifier = password.partition(" at ")[2]
        times = self.hashed.setdefault(identifier, [])
        times.append(now)
        allowed = self.limit * (1 + self._recent(self.clearings.get(identifier, []), now))
        counted = self._recent(times, now)
        if counted > allowed:
            return f"{counted} guesses at {identifier} were hashed; {allowed} are allowed"
        return None

    def clock_corrected(self, now: int) -> None:
        """Attempts that would have been made in the future count as made now (O-163)."""
        for times in (*self.hashed.values(), *self.clearings.values()):
            times[:] = [min(at, now) for at in times]

    def forgiven(self, now: int, *identifiers: str) -> None:
        """A success, an unlock or a new password cleared the counters of these.

        What was admitted before it may be hashed after it, so that the budget counts once more.
        """
        for identifier in identifiers:
            self.clearings.setdefault(identifier, []).append(now)
            # A clock that was set back since: they leave the window with what forgave them.
            self.hashed[identifier] = [min(at, now) for at in self.hashed.get(identifier, [])]

    def _recent(self, times: list[int], now: int) -> int:
        return sum(at > now - self.window_ms for at in times)
