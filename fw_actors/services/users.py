"""Accounts as an administrator makes, lists, closes and opens them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fw_actors.documents import manager_guard
from fw_actors.documents.handle import Fw
from fw_actors.errors import NotFoundError, PermissionDeniedError, ValidationError
from fw_actors.rules.identifiers import UnusableIdentifierError, canonical
from fw_actors.services import attempts, sessions
from fw_actors.services.account_hold import hold
from fw_actors.services.accounts import Accounts, set_password


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


def named(fw: Fw, accounts: Accounts, identifier: str) -> Any:
    """Return the User document that a name or an e-mail belongs to, in any spelling.

    Raises: PermissionDeniedError for who is no System Manager; NotFoundError.
    """
    if not fw.rights.manages:
        raise PermissionDeniedError
    try:
        account = accounts.find(fw.tx, canonical(identifier))
    except UnusableIdentifierError:
        account = None
    if account is None:
        raise NotFoundError(f"There is no user {identifier[:140]}.")
    return fw.get_doc("User", account.user)


def unlock(fw: Fw, accounts: Accounts, installation_key: bytes, identifier: str) -> str:
    """Lift a lockout early, at both spellings (spec, Sign-in lockout); return the user's name.

    Raises: as `named`; PermissionDeniedError as `manager_guard.require_account`.
    """
    user = named(fw, accounts, identifier)
    manager_guard.require_account(fw, user)
    attempts.unlock_account(fw.tx, installation_key, name=user.name, email=user.email)
    return str(user.name)


def revoke_sessions(fw: Fw, user: str) -> int:
    """End all sessions of a user; return how many.

    Raises: PermissionDeniedError; NotFoundError.
    """
    if not fw.rights.manages:
        raise PermissionDeniedError
    account = fw.get_doc("User", user)
    manager_guard.require_account(fw, account)
    return sessions.end_all(fw.tx, str(account.name))


def set_enabled(fw: Fw, accounts: Accounts, identifier: str, enabled: bool) -> str:
    """Close or open an account; return the user's name. Closing ends sessions, keys and links.

    Raises: as `named`; ConflictError for the last System Manager.
    """
    user = named(fw, accounts, identifier)
    hold(fw.tx, user.name)
    user.reload()  # as whoever was at it leaves it: closing an account must not have to be repeated
    if bool(user.enabled) is not enabled:
        user.enabled = int(enabled)
        user.save()
    return str(user.name)
