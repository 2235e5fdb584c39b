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
_SCOPES_THEMSELVES: Final = "User Permission"
_NONE: Final[Mapping[str, frozenset[str]]] = MappingProxyType({})


@dataclass(frozen=True)
class Rights:
    """A user with roles, and the access scopes (User Permission rows) that limit them.

    `scopes`: the names of the documents within reach, by DocType; see `fw_actors.documents.scopes`.
    """

    user: str
    roles: frozenset[str]
    scopes: Mapping[str, frozenset[str]] = field(default_factory=lambda: _NONE, hash=False)

    @property
    def scoped(self) -> bool:
        """Whether access scopes limit the user."""
        return bool(self.scopes)

    @property
    def manages(self) -> bool:
        """Whether the user has every permission."""
        return self.user == ADMINISTRATOR or SYSTEM_MANAGER in self.roles

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
        if self.scoped and meta.name == _SCOPES_THEMSELVES:
            raise PermissionDeniedError("Who has access scopes can't change access scopes.")

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

        Part of the scope, so `ignore_permissions` does not lift it.
        """
        return self.scoped and meta.name in MANAGERS_ONLY

    def within(self, other: Rights) -> Rights:
        """Return these rights, limited by the scopes of another user as well."""
        scopes = dict(self.scopes)
        for doctype, names in other.scopes.items():
            scopes[doctype] = scopes.get(doctype, names) & names
        return replace(self, scopes=MappingProxyType(scopes))
