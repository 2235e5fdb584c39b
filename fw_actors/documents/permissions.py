"""Who may do what with documents: roles per DocType and per permlevel (interface §3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from fw_actors.documents.doctype import Meta
from fw_actors.errors import PermissionDeniedError

SYSTEM_MANAGER: Final = "System Manager"
ADMINISTRATOR: Final = "Administrator"
GUEST: Final = "Guest"
MANAGERS_ONLY: Final = ("Webhook", "Webhook Delivery")
RECORDS: Final = ("Version", "Audit Event", "Email Delivery", "Error Log")
"""DocTypes that tell of other documents, or of what was done with them."""
USER_PERMISSION: Final = "User Permission"
_NONE: Final[Mapping[str, frozenset[str]]] = MappingProxyType({})


@dataclass(frozen=True)
class Rights:
    """A user with roles, and the access scopes (User Permission rows) that limit them.

    `scopes`: the names of the documents within reach, by DocType; see `fw_actors.documents.scopes`.
    `borrowed`: a user with scopes acts as this user (`as_user`), so that nothing is their own.
    """

    user: str
    roles: frozenset[str]
    scopes: Mapping[str, frozenset[str]] = field(default_factory=lambda: _NONE, hash=False)
    borrowed: bool = False

    @property
    def scoped(self) -> bool:
        """Whether access scopes limit the user."""
        return bool(self.scopes)

    @property
    def manages(self) -> bool:
        """Whether the user has every permission."""
        return self.user == ADMINISTRATOR or SYSTEM_MANAGER in self.roles

    @property
    def administers(self) -> bool:
        """Whether the user has every permission, and no access scopes."""
        return self.manages and not self.scoped

    def allows(self, meta: Meta, action: str) -> bool:
        """Whether a role of the user grants the action."""
        return self.manages or any(
            action in meta.permissions[role] for role in self.roles if role in meta.permissions
        )

    def require(self, meta: Meta, action: str) -> None:
        """Raises: PermissionDeniedError."""
        if not self.allows(meta, action):
            raise PermissionDeniedError(f"You may not {action} {meta.name}.")

    def require_reach(self, meta: Meta) -> None:
        """Refuse a DocType that scopes shut out. Raises: PermissionDeniedError."""
        if self.shut_out(meta):
            raise PermissionDeniedError(f"Your access scopes don't include {meta.name}.")

    def require_writable(self, meta: Meta) -> None:
        """Refuse what scopes never let be written: what they shut out, and scopes themselves.

        Source: spec, Webhook rule 3; interface §8, Scopes. Raises: PermissionDeniedError.
        """
        self.require_reach(meta)
        if not self.reaches_for_writing(meta):
            raise PermissionDeniedError("A user with access scopes can't change access scopes.")

    def reaches_for_writing(self, meta: Meta) -> bool:
        """Whether scopes leave the documents of this DocType to be written, by whatever role."""
        return not (self.shut_out(meta) or (self.scoped and meta.name == USER_PERMISSION))

    def owns(self, account: object) -> bool:
        """Whether an account is the user's own."""
        return account == self.user and not self.borrowed

    def require_power_over_managers(self) -> None:
        """Refuse a user with access scopes what makes, changes or ends a System Manager.

        Otherwise an account without scopes could be made or taken over, and the scopes would
        limit nobody. Raises: PermissionDeniedError.
        """
        if self.scoped:
            raise PermissionDeniedError(
                "Your access scopes don't let you make, change or sign out a System Manager."
            )

    def refuse_own_record(self, meta: Meta, name: str | None) -> None:
        """Nobody writes the own User record, a System Manager neither: its roles are a child
        table, so that to write it would be to promote oneself (spec, Self-service operations).

        Raises: PermissionDeniedError.
        """
        if meta.name == "User" and name == self.user:
            raise PermissionDeniedError(
                "Nobody writes the own User record; there are operations for what is yours."
            )

    def sees_level(self, meta: Meta, level: int, action: str = "read") -> bool:
        """Whether the user may read (or write) fields of a permlevel."""
        return level == 0 or self.allows(meta, f"{action}:{level}")

    def shut_out(self, meta: Meta) -> bool:
        """Whether scopes refuse this DocType altogether (spec, Webhook rule 3).

        The records too: they tell of documents that scopes hide, of Webhooks, and of what a
        document held before it came within reach. Part of the scope, so `ignore_permissions`
        does not lift it.
        """
        return self.scoped and meta.name in (*MANAGERS_ONLY, *RECORDS)

    def within(self, other: Rights) -> Rights:
        """Return these rights, limited by the scopes of another user as well."""
        scopes = dict(self.scopes)
        for doctype, names in other.scopes.items():
            scopes[doctype] = scopes.get(doctype, names) & names
        borrowed = other.borrowed or (other.scoped and other.user != self.user)
        return replace(self, scopes=MappingProxyType(scopes), borrowed=borrowed)
