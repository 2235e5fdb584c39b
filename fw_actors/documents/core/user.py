"""Users and their roles. Their passwords, sessions and keys are no fields: they rest elsewhere."""

from __future__ import annotations

from fw_actors.documents.document import DocType
from fw_actors.documents.field import SURROGATES
from fw_actors.documents.fields import Check, Data, Link, Password, Table


class Role(DocType, naming="given"):
    """A role; DocTypes and whitelisted functions name who may do what by it."""


class HasRole(DocType, name="Has Role", child=True):
    """One role of a user."""

    role = Link(options="Role", required=True)


class NewPassword(Password):
    """A password to be set: written only, kept nowhere but as its hash (interface §3).

    Judged by the password policy, not by the rules of text: any character but half a pair.
    """

    stored = False
    controls = SURROGATES


class User(DocType, naming="given"):
    """An account. Only a System Manager writes it; self-service goes through operations."""

    email = Data(required=True, unique=True)
    fullName = Data()
    language = Data(length=20)
    enabled = Check(default=1)
    roles = Table(HasRole)
    new_password = NewPassword()
