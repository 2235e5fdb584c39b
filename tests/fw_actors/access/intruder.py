"""A System Manager with access scopes attempts, by any call, to get rid of them.

The intruder keeps the results of all calls: chosen passwords, links, API keys. Their
rights are read from the store itself, so that no rule of the service decides what is an escape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import argon2

from fw_actors.access import links, recovery, users
from fw_actors.access.links import Links
from fw_actors.access.recovery import LinkMail
from fw_actors.documents import rest, rows
from fw_actors.documents.handle import Fw
from fw_actors.errors import FwError, InvalidTokenError, NotFoundError
from fw_actors.mail import LogTransport
from fw_actors.ops.audit import Action
from fw_actors.ops.site import Site
from fw_actors.rules.identifiers import parse_api_key
from tests.mail_kit import RecordingLog

CHOSEN: Final = "a password of the intruder"
SCOPE: Final = "User Permission"


@dataclass
class Intruder:
    """`fw` gives the transaction in which all happens; `acting` is the current account."""

    site: Site
    fw: Fw
    acting: str
    chosen_hash: str
    links: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    borrowed: str | None = None

    def __post_init__(self) -> None:
        self._start = self.acting
        self._links = Links(self.site.config.auth, self.site.entropy, "x:/")
        self._mail = LinkMail(self._links, self.site.mail_queue, LogTransport(RecordingLog()))

    def run(self, calls: list[Callable[[Intruder], None]]) -> None:
        """Make the calls in order; a refusal undoes only its call."""
        for call in calls:
            try:
                with self.fw.tx.savepoint():
                    call(self)
            except FwError:
                continue

    def handle(self) -> Fw:
        """The handle of the current account, or of the user that an app's code acts as."""
        own = self.site.handle(self.fw.tx, self.acting)
        if self.borrowed is None or not own.rights.scoped:
            return own
        return own.as_user(self.borrowed)

    def opened(self) -> set[str]:
        """Return every account that the intruder can use at this moment."""
        tx, found = self.fw.tx, {self._start}
        for row in self.fw.db.sql('SELECT "user", hash FROM fw_password'):
            if _fits(row["hash"]):
                found.add(row["user"])
        for token in self.links:
            try:
                found.add(self._links.facts(tx, token).user)
            except InvalidTokenError:
                continue
        for text in self.keys:
            key = parse_api_key(text)
            live = self.site.api_keys.live(tx, key) if key is not None else None
            if live is not None:
                found.add(live.user)
        return found

    def sees_webhooks(self, user: str) -> bool:
        """Whether a session or key of the account reads a Webhook."""
        try:
            fw = self.site.handle(self.fw.tx, user)
            return bool(rest.list_documents(fw, "Webhook", {})["total"])
        except FwError:
            return False

    # The calls. An app that ignores permissions, or acts as another user, for a user without
    # scopes may do anything: `ignore` and `borrow` count within scopes only.

    def become(self, number: int) -> None:
        """Continue as another account that is open to the intruder."""
        known = sorted(self.opened())
        self.acting = known[number % len(known)]

    def borrow(self, user: str | None) -> None:
        """Have an app call `fw.as_user` from here on."""
        self.borrowed = user

    def insert(self, doctype: str, values: dict[str, Any], ignore: bool) -> None:
        fw = self.handle()
        fw.new_doc(doctype, **values).insert(ignore_permissions=ignore and fw.rights.scoped)

    def save(self, doctype: str, name: str, values: dict[str, Any], ignore: bool) -> None:
        fw = self.handle()
        if not (ignore and fw.rights.scoped):
            rest.save(fw, doctype, name, values)
            return
        doc = rows.load(fw.documents, fw, doctype, name)
        for key, value in values.items():
            setattr(doc, key, value)
        doc.save(ignore_permissions=True)

    def db_set(self, doctype: str, name: str, values: dict[str, Any], ignore: bool) -> None:
        fw = self.handle()
        for key, value in values.items():
            doc = rows.load(fw.documents, fw, doctype, name)
            doc.db_set(key, value, ignore_permissions=ignore and fw.rights.scoped)

    def delete(self, doctype: str, name: str, ignore: bool) -> None:
        fw = self.handle()
        doc = rows.load(fw.documents, fw, doctype, name)
        doc.delete(ignore_permissions=ignore and fw.rights.scoped)

    def rename(self, doctype: str, name: str, new: str, ignore: bool) -> None:
        fw = self.handle()
        doc = rows.load(fw.documents, fw, doctype, name)
        doc.rename(new, ignore_permissions=ignore and fw.rights.scoped)

    def any_of(self, doctype: str, number: int) -> str:
        """Return the name of an existing document."""
        names = [row["name"] for row in self.fw.get_all(doctype, order_by="creation asc")]
        if not names:
            raise NotFoundError(f"There is no {doctype}.")
        return str(names[number % len(names)])

    def invite(self, name: str, roles: list[str]) -> None:
        made = recovery.invite(
            self.handle(), self._mail, f"{name}@new.test", name, roles=tuple(roles)
        )
        self._keep(made.sent.url)

    def resend(self, user: str) -> None:
        self._keep(recovery.resend(self.handle(), self._mail, user).url)

    def reset(self, user: str) -> None:
        self._keep(recovery.send_reset(self.handle(), self._mail, user).url)

    def unlock(self, user: str) -> None:
        users.unlock(self.handle(), self.site.accounts, self.site.installation_key, user)

    def set_enabled(self, user: str, enabled: bool) -> None:
        users.set_enabled(self.handle(), self.site.accounts, user, enabled)

    def spend(self, number: int) -> None:
        """Choose a password by a link that a call returned."""
        if not self.links:
            raise InvalidTokenError
        token = self.links[number % len(self.links)]
        kind = self._links.facts(self.fw.tx, token).kind
        user = links.spend(self.fw.tx, kind, token)
        self.site.passwords.replace(
            self.site.handle(self.fw.tx, user), user, self.chosen_hash, Action.RESET_PASSWORD
        )

    def make_key(self) -> None:
        """Make an API key of the current account."""
        own = self.site.handle(self.fw.tx, self.acting)
        self.keys.append(self.site.api_keys.make(own, "mine", None, 0).key)

    def _keep(self, url: str | None) -> None:
        assert url is not None  # the transport is the log
        self.links.append(url.partition("#token=")[2])


def _fits(password_hash: str) -> bool:
    try:
        return bool(argon2.PasswordHasher().verify(password_hash, CHOSEN))
    except argon2.exceptions.VerificationError:
        return False
