"""Accounts as an administrator makes and lists them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fw_actors.documents.handle import Fw
from fw_actors.errors import ValidationError
from fw_actors.services.accounts import set_password


def add_user(
    fw: Fw,
    name: str,
    email: str,
    full_name: str = "",
    roles: Sequence[str] = (),
    password_hash: str | None = None,
) -> dict[str, Any]:
    """Make an account; without a hash it is invited and refuses every sign-in.

    Raises: DuplicateError for a taken name or e-mail; ValidationError for an unknown role.
    """
    for role in roles:
        if not fw.exists("Role", role):
            raise ValidationError(f"There is no role {role[:140]}.", field="roles")
    user = fw.new_doc(
        "User",
        name=name,
        email=email,
        fullName=full_name or None,
        roles=[{"role": role} for role in dict.fromkeys(roles)],
    )
    user.insert()
    if password_hash is not None:
        set_password(fw.tx, user.name, password_hash)
    return summary(fw, user.name)


def list_users(fw: Fw) -> list[dict[str, Any]]:
    """Return every account by name, with its roles."""
    return [summary(fw, row["name"]) for row in fw.get_list("User", order_by="name asc")]


def summary(fw: Fw, name: str) -> dict[str, Any]:
    """Return an account as a table shows it. Raises: NotFoundError."""
    user = fw.get_doc("User", name)
    return {
        "name": user.name,
        "email": user.email,
        "fullName": user.fullName or "",
        "enabled": bool(user.enabled),
        "roles": [row.role for row in user.roles],
        "created": user.creation,
    }
