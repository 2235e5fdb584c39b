"""`new_password` of a User: hashed, judged by the policy, set by an administrator's hand.

Source: interface §3 "written only; sets the hash", §4: one that comes over HTTP is hashed before
the transaction, one that app code sets inside it; §2: it clears the lockouts of name and e-mail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fw_actors.documents.document import DocType
from fw_actors.documents.handle import Fw
from fw_actors.documents.observers import Observer
from fw_actors.hashing import Hasher, PreparedPassword
from fw_actors.services.audit import AuditLog
from fw_actors.services.passwords import Passwords

FIELD: Final = "new_password"


class NewPasswords(Observer):
    """Observes User documents; hashes for requests before they begin their transaction."""

    def __init__(self, hasher: Hasher, passwords: Passwords, audit: AuditLog) -> None:
        self._hasher, self._passwords, self._audit = hasher, passwords, audit

    async def prepare(self, body: Mapping[str, Any], account: Mapping[str, Any]) -> dict[str, Any]:
        """Return a request's body with its new password hashed; `account` has the name and the
        e-mail of the User as it will be.

        Raises: PasswordPolicyError, OverloadedError.
        """
        name, email = str(account["name"] or ""), str(account["email"] or "")
        password = body[FIELD]
        hashed = await self._hasher.hash(password, name=name, email=email)
        return {**body, FIELD: PreparedPassword(password, hashed)}

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Judge it against the account as it will be. Raises: PasswordPolicyError."""
        if doc.doctype != "User" or event == "on_trash":
            return
        values = doc.__dict__
        password, account = values[FIELD], {"name": str(doc.name), "email": str(values["email"])}
        if isinstance(password, PreparedPassword):
            self._hasher.judge(password, **account)
        elif password is not None:
            values[FIELD] = PreparedPassword(password, self._hasher.hash_now(password, **account))

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """Set it; the document holds none any more."""
        password = doc.__dict__[FIELD] if doc.doctype == "User" else None
        if not isinstance(password, PreparedPassword):
            return
        with self._audit.suppressed(fw.tx):  # the event of the save names the password
            self._passwords.replace_and_unlock(fw, str(doc.name), password.hash)
        doc.__dict__[FIELD] = None
