"""Who may do what with documents: roles per DocType and per permlevel (interface §3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fw_actors.documents.doctype import Meta
from fw_actors.errors import PermissionDeniedError

SYSTEM_MANAGER: Final = "System Manager"
ADMINISTRATOR: Final = "Administrator"
GUEST: Final = "Guest"
MANAGERS_ONLY: Final = ("Webhook", "Webhook Delivery")


@dataclass(frozen=True)
class Rights:
    """A user with roles, and whether access scopes (User Permission rows) limit them."""

    user: str
    roles: frozenset[str]
    scoped: bool = False

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

    def sees_level(self, meta: Meta, level: int, action: str = "read") -> bool:
        """Whether the user may read (or write) fields of a permlevel."""
        return level == 0 or self.allows(meta, f"{action}:{level}")

    def shut_out(self, meta: Meta) -> bool:
        """Whether scopes refuse this DocType altogether (spec, Webhook rule 3).

        Part of the scope, so `ignore_permissions` does not lift it.
        """
        return self.scoped and meta.name in MANAGERS_ONLY
