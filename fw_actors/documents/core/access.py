"""The DocTypes of access: User, Role, Has Role, User Permission, API Key."""

from __future__ import annotations

from fw_actors.documents.document import DocType
from fw_actors.documents.fields import SURROGATES, Check, Data, Link, Password, Table
from fw_actors.documents.special_fields import Datetime


class Role(DocType, naming="given"):
    """A role; DocTypes and whitelisted functions name who may do what by it."""


class HasRole(DocType, name="Has Role", child=True):
    """One role of a user."""

    role = Link(options="Role", required=True)


class NewPassword(Password):
    """A password to be set: written only, kept nowhere but as its hash (A-294).

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


class UserPermission(DocType, name="User Permission", naming="random"):
    """One document that a user may see. Rows of one user and DocType add up.

    A user with any row is scoped: of each DocType in `allow`, and of documents that link to it,
    only what the rows name is within reach; Webhook and Webhook Delivery are out of reach.
    """

    unique_together = (("allow", "for_value", "user"),)

    user = Link(options="User", required=True)
    allow = Data(required=True)
    for_value = Data(required=True)


class APIKey(DocType, name="API Key", naming="given"):
    """Made by `core.services.api_keys.createMyAPIKey` alone; its name is the key's public part.

    A System Manager may delete one, which ends it at once.
    """

    user = Link(options="User", required=True, read_only=True)
    label = Data(required=True, read_only=True)
    expires = Datetime(read_only=True)
    last_used = Datetime(read_only=True)
