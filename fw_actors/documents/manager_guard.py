"""Which documents make a System Manager, and who may write them.

A user with access scopes gives and takes no more than they have. So such a user, even one who is
a System Manager, is refused every write by which an account becomes, stops being, or is taken
over from a System Manager: of the account, of its API keys, and of the role itself. Source: spec,
Webhook rule 3; the refusal is part of the scope, so `ignore_permissions` does not lift it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fw_actors.documents.doctype import Meta
from fw_actors.documents.document import DocType
from fw_actors.documents.fields import Table
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import SYSTEM_MANAGER

_PROFILE: Final = frozenset({"fullName", "language"})  # what self-service writes (spec)


def require_write(fw: Fw, doc: DocType) -> None:
    """Refuse to insert or change what makes a System Manager.

    `doc` is the document as it will be, `doc._before` as it is stored. The own name and language
    are everybody's. Raises: PermissionDeniedError.
    """
    if fw.rights.scoped and _concerns_managers(fw, doc) and not _changes_own_profile(fw, doc):
        fw.rights.require_power_over_managers()


def require_removal(fw: Fw, doc: DocType, new_name: object = None) -> None:
    """Refuse to delete or rename (to `new_name`) what makes a System Manager.

    Raises: PermissionDeniedError.
    """
    named_as_role = doc.doctype == "Role" and new_name == SYSTEM_MANAGER
    if fw.rights.scoped and (named_as_role or _concerns_managers(fw, doc)):
        fw.rights.require_power_over_managers()


def require_account(fw: Fw, account: DocType) -> None:
    """Refuse an act on an account: a link to it, the end of its sessions or of its lockout.

    Raises: PermissionDeniedError for a System Manager's account, where scopes limit the user.
    """
    if fw.rights.scoped and concerns_managers(fw, account.doctype, account.as_dict()):
        fw.rights.require_power_over_managers()


def leaves_writable(fw: Fw, meta: Meta, values: Mapping[str, Any]) -> bool:
    """Whether scopes let the user write a stored document, for pages that offer to."""
    if not fw.rights.scoped:
        return True
    return fw.rights.reaches_for_writing(meta) and not concerns_managers(fw, meta.name, values)


def concerns_managers(fw: Fw, doctype: str, values: Mapping[str, Any]) -> bool:
    """Whether a document, `values` as JSON shows it, is a System Manager's or the role itself.

    A disabled or invited account counts too: it has the role as soon as it is opened. An own API
    key does not: whoever has it has nothing that its user lacks.
    """
    if doctype == "Role":
        return bool(values["name"] == SYSTEM_MANAGER)
    if doctype == "User":
        return any(row["role"] == SYSTEM_MANAGER for row in values["roles"])
    if doctype == "API Key":
        return not fw.rights.owns(values["user"]) and _is_manager(fw, values["user"])
    return False


def _is_manager(fw: Fw, user: object) -> bool:
    held = {"parent": user, "parenttype": "User", "role": SYSTEM_MANAGER}
    return fw.documents.lists.count(fw, "Has Role", held) > 0


def _concerns_managers(fw: Fw, doc: DocType) -> bool:
    forms = (doc, doc._before)
    return any(concerns_managers(fw, doc.doctype, f.as_dict()) for f in forms if f is not None)


def _changes_own_profile(fw: Fw, doc: DocType) -> bool:
    """Whether nothing but the profile of the handle's user differs from what is stored."""
    before = doc._before
    if doc.doctype != "User" or not fw.rights.owns(doc.name) or before is None:
        return False
    fields = (field for field in doc.meta.fields.values() if field.name not in _PROFILE)
    return all(
        _roles(doc) == _roles(before)
        if isinstance(field, Table)
        else doc.__dict__[field.name] == before.__dict__[field.name]
        for field in fields
    )


def _roles(user: DocType) -> list[str]:
    return [row["role"] for row in user.as_dict()["roles"]]
