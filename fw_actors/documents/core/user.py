"""Users and their roles. Their passwords, sessions and keys are no fields: they rest elsewhere."""

from __future__ import annotations

from fw_actors.documents.document import DocType
from fw_actors.documents.fields import Check, Data, Link, Table


class Role(DocType, naming="given"):
    """A role; DocTypes and whitelisted functions name who may do what by it."""


class HasRole(DocType, name="Has Role", child=True):
    """One role of a user."""

    role = Link(options="Role", required=True)


class User(DocType, naming="given"):
    """An account. Only a System Manager writes it; self-service goes through operations."""

    email = Data(required=True, unique=True)
    fullName = Data()
    language = Data(length=20)
    enabled = Check(default=1)
    roles = Table(HasRole)
