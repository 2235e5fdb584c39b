"""Declared state: Webhooks, roles, users and scopes in a file, compared with a site and applied.

A document is found by its name, so that applying a file twice changes nothing the second time.
Anything that a file does not mention is not changed. Secrets are never in a file: it names the
FW_SECRET_<NAME> of the environment that holds one.

The module has more than 500 lines because export and apply read and write the same form.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from typing import Any, Final, TypeVar

import msgspec

from fw_actors.access.accounts import FIRST_ROLES
from fw_actors.access.users import add_user
from fw_actors.config import SITE_KEY_VARIABLES
from fw_actors.config.policy import nearest
from fw_actors.documents import rest
from fw_actors.documents.core import CUSTOM, DOCUMENT
from fw_actors.documents.doctype import Meta
from fw_actors.documents.fields import ShapeError
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import SYSTEM_MANAGER
from fw_actors.documents.query import names_of
from fw_actors.documents.vault import UnreadableError
from fw_actors.errors import (
    BadRequestError,
    ConfigurationError,
    ConflictError,
    DuplicateError,
    FwError,
    OverloadedError,
    ValidationError,
    required_type,
)
from fw_actors.webhooks.subscriptions import never_occurring

T = TypeVar("T")
StructT = TypeVar("StructT", bound=msgspec.Struct)

WEBHOOK, ROLE, USER, SCOPE = "Webhook", "Role", "User", "User Permission"
SECRET_PREFIX: Final = "FW_SECRET_"
HIDDEN: Final = "(secret)"
_MAX_COMPARED_ROLES: Final = 10_000

_COMMON_MISTAKES: Final = {"event": "custom_event", "doctype": "webhook_doctype"}
"""The fields that are meant by options of `fw webhooks add`."""

SecretOf = Callable[[str], str | None]
"""Returns a secret by its name in lower case, without the prefix; None if it is not set."""


class DeclaredScope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, order=True):
    """A document that a user may see, as in a User Permission."""

    allow: str
    for_value: str


class DeclaredUser(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True
):
    """An account; unset fields are not changed. `roles` and `scopes` are complete lists."""

    email: str | msgspec.UnsetType = msgspec.UNSET
    full_name: str | msgspec.UnsetType = msgspec.UNSET
    enabled: bool | msgspec.UnsetType = msgspec.UNSET
    roles: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    scopes: tuple[DeclaredScope, ...] | msgspec.UnsetType = msgspec.UNSET


class DeclaredState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The declared documents, by name. A Webhook has the fields of its DocType."""

    webhooks: dict[str, dict[str, Any]] = {}
    roles: tuple[str, ...] = ()
    users: dict[str, DeclaredUser] = {}


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    webhooks: dict[str, dict[str, Any]] = {}
    roles: tuple[str, ...] = ()
    users: dict[str, Any] = {}


def state_of(content: object) -> DeclaredState:
    """Return the state that a decoded file declares. Raises: ValidationError naming the place."""
    file = _convert(content, _File, "")
    users = {name: _convert(v, DeclaredUser, f"users.{name}") for name, v in file.users.items()}
    return DeclaredState(file.webhooks, file.roles, users)


def _convert(content: object, kind: type[StructT], place: str) -> StructT:
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        required = required_type(error)
        if required is not None:
            where = f"{place}{required[0]}".lstrip(".") or "The content"
            raise ValidationError(f"{where} must be {required[1]}.") from None
        problem, _, path = str(error).replace("`", "").partition(" - at $")
        # The fields of inner objects are those of another struct.
        unknown = problem.partition(" unknown field ")[2]
        problem += "." if path else _suggestion(unknown, kind.__struct_fields__)
        place = f"{place}{path}".lstrip(".")
        raise ValidationError(f"{place}: {problem}" if place else problem) from None


def _suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: the known one that is most like it."""
    near = nearest(name, known)
    return f"; did you mean {near}?" if near else "."


def merged(states: Sequence[DeclaredState]) -> DeclaredState:
    """Join the declarations of several files. Raises: ValidationError for a name in two."""
    return DeclaredState(
        webhooks=_join(WEBHOOK, [state.webhooks for state in states]),
        roles=tuple(dict.fromkeys(role for state in states for role in state.roles)),
        users=_join(USER, [state.users for state in states]),
    )


def _join(doctype: str, parts: Sequence[Mapping[str, T]]) -> dict[str, T]:
    joined: dict[str, T] = {}
    for part in parts:
        for name, declared in part.items():
            if name in joined:
                raise ValidationError(f"Two files declare the {doctype} {name}.")
            joined[name] = declared
    return joined


@dataclass(frozen=True)
class PlannedValue:
    """A field with its values before and after, as JSON shows them; secrets are `HIDDEN`."""

    field: str
    old: Any
    new: Any


@dataclass(frozen=True)
class Change:
    """A step of a plan: `kind` is create, change or delete."""

    kind: str
    doctype: str
    name: str
    fields: tuple[PlannedValue, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the step for programs."""
        fields = [{"field": each.field, "old": each.old, "new": each.new} for each in self.fields]
        return {"change": self.kind, "doctype": self.doctype, "name": self.name, "fields": fields}


@dataclass(frozen=True)
class StatePlan:
    """The steps from a site to a declared state, in their order; `notes` are sentences."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()


class DeclaredStates:
    """Compares a site with a declared state, and applies it, in a transaction of the caller."""

    def __init__(self, secret_of: SecretOf) -> None:
        self._secret_of = secret_of

    def plan(self, fw: Fw, state: DeclaredState, *, prune: bool = False) -> StatePlan:
        """Return the steps to a state.

        `prune`: also delete the Webhooks that it does not declare.

        Raises: ConfigurationError with all unusable declarations.
        """
        notes: list[str] = []
        faults = _unknown_names(fw, state)
        scopes = list(_scopes(fw, state))
        # In an order in which the site always has a System Manager without scopes, if it has one
        # before and after.
        changes = [*_roles(fw, state), *(each for each in scopes if each.kind == "delete")]
        accounts: list[Change] = []
        for name, user in state.users.items():
            with _collecting(faults):
                accounts += _user(fw, name, user)
        changes += _ordered(accounts)
        for name, webhook in state.webhooks.items():
            with _collecting(faults):
                changes += self._webhook(fw, name, webhook, notes)
        # After everything that they may name.
        changes += (each for each in scopes if each.kind == "create")
        if faults:
            raise ConfigurationError(faults)
        if prune:
            stored = names_of(fw, WEBHOOK)
            changes += [
                Change("delete", WEBHOOK, name) for name in stored if name not in state.webhooks
            ]
        return StatePlan(tuple(changes), tuple(notes))

    def check(self, fw: Fw, state: DeclaredState, plan: StatePlan) -> None:
        """Carry out a plan in a transaction that the caller rolls back, to find what it breaks.

        Raises: ConfigurationError with everything that `apply` would refuse.
        """
        faults: list[str] = []
        refused: set[tuple[str, str]] = set()
        for change in plan.changes:
            if change.doctype == SCOPE and not refused.isdisjoint(_needs_of_scope(change)):
                continue  # it would only be refused for what it names
            try:
                with fw.tx.savepoint():
                    self._apply_named(fw, state, change)
            except OverloadedError:  # the store has failed, whatever the change
                raise
            except FwError as error:
                faults.append(str(error))
                refused.add((change.doctype, change.name))
        if faults:
            raise ConfigurationError(faults)

    def apply(self, fw: Fw, state: DeclaredState, plan: StatePlan, *, prune: bool = False) -> None:
        """Carry out a plan that was shown before.

        Raises: ConflictError if the site has changed since; BadRequestError, ConflictError,
            DuplicateError or ValidationError naming the document that is refused; other errors of
            the writes of documents.
        """
        if self.plan(fw, state, prune=prune) != plan:
            raise ConflictError("The site has changed since the plan was shown; run it again.")
        for change in plan.changes:
            self._apply_named(fw, state, change)

    def _apply_named(self, fw: Fw, state: DeclaredState, change: Change) -> None:
        """Carry out a step; the error of a refused one names its document."""
        try:
            self._apply_change(fw, state, change)
        except (BadRequestError, ConflictError, DuplicateError, ValidationError) as error:
            raise type(error)(f"{change.doctype} {_name_of(change)}: {error}") from error

    def _apply_change(self, fw: Fw, state: DeclaredState, change: Change) -> None:
        if change.doctype == WEBHOOK:
            self._apply_webhook(fw, state, change)
        elif change.doctype == USER:
            _apply_user(fw, state, change)
        elif change.doctype == SCOPE:
            _apply_scope(fw, change)
        else:
            fw.new_doc(ROLE, name=change.name).insert()

    def _webhook(
        self, fw: Fw, name: str, declared: Mapping[str, Any], notes: list[str]
    ) -> Iterator[Change]:
        """Yield the step for a Webhook, if it differs; add to `notes`. Raises: ValidationError."""
        meta = fw.documents.registry.meta(WEBHOOK)
        place = f"webhooks.{name}"
        _check_webhook_fields(meta, declared, place)
        exists = fw.exists(WEBHOOK, name) is not None
        stored = rest.read(fw, WEBHOOK, name) if exists else {}
        fields = [
            PlannedValue(key, stored.get(key), value)
            for key, value in _webhook_values(declared).items()
            if not exists or not _is_same(meta.fields[key], value, stored[key], place)
        ]
        warning = never_occurring(
            fw.documents.registry, {**stored, **{each.field: each.new for each in fields}}
        )
        if warning is not None:
            notes.append(f"{place}: {warning}")
        secret = self._planned_secret(declared, place, notes, exists=exists)
        if secret is not None and not (exists and _has_secret(fw, name, secret)):
            fields.append(PlannedValue("secret", HIDDEN if exists else None, HIDDEN))
        if fields:
            yield Change("change" if exists else "create", WEBHOOK, name, tuple(fields))

    def _planned_secret(
        self, declared: Mapping[str, Any], place: str, notes: list[str], *, exists: bool
    ) -> str | None:
        """Return the declared secret; None if a stored one stays. Raises: ValidationError."""
        secret = self._secret(declared, place)
        if secret is not None:
            return secret
        if "secret" not in declared:
            if not exists:
                raise ValidationError(
                    f"{place}: a new Webhook needs the key secret, with the name of a variable, "
                    f"{SECRET_PREFIX}<NAME>."
                )
        elif exists:
            notes.append(f"{place}: {declared['secret']} is not set; the secret stays.")
        else:
            raise ValidationError(
                f"{place}: {declared['secret']} is not set, and a new Webhook needs its secret."
            )
        return None

    def _secret(self, declared: Mapping[str, Any], place: str) -> str | None:
        if "secret" not in declared:
            return None
        named = declared["secret"]
        if not isinstance(named, str) or not named.startswith(SECRET_PREFIX):
            raise ValidationError(
                f"{place}: secret must be the name of a variable, {SECRET_PREFIX}<NAME>; a secret "
                "itself must not be in a file."
            )
        if named.upper() in SITE_KEY_VARIABLES:
            raise ValidationError(
                f"{place}: {named} is the site's own key; a Webhook must not use it."
            )
        return self._secret_of(named.removeprefix(SECRET_PREFIX).lower())

    def _apply_webhook(self, fw: Fw, state: DeclaredState, change: Change) -> None:
        if change.kind == "delete":
            rest.delete(fw, WEBHOOK, change.name)
            return
        declared = state.webhooks[change.name]
        changed = {each.field for each in change.fields}
        values = {k: v for k, v in _webhook_values(declared).items() if k in changed}
        if "secret" in changed:
            values["secret"] = self._secret(declared, f"webhooks.{change.name}")
        if change.kind == "create":
            rest.insert(fw, WEBHOOK, {**values, "name": change.name})
        else:
            rest.save(fw, WEBHOOK, change.name, values)


def _check_webhook_fields(meta: Meta, declared: Iterable[str], place: str) -> None:
    """Raise ValidationError for a field that a Webhook does not have, or that no user writes."""
    for key in declared:
        if key not in meta.fields:
            correct_name = _COMMON_MISTAKES.get(key)
            suggestion = (
                f"; did you mean {correct_name}?" if correct_name else _suggestion(key, meta.fields)
            )
            raise ValidationError(f"{place}: a Webhook has no field {key[:60]}{suggestion}")
        if meta.fields[key].read_only:
            raise ValidationError(f"{place}: only the service writes {key}.")


def _webhook_values(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declared fields but the secret; the kind of event follows from the others."""
    values = {key: value for key, value in declared.items() if key != "secret"}
    if "event_type" not in values:
        if "custom_event" in values:
            values["event_type"] = CUSTOM
        elif "webhook_doctype" in values:
            values["event_type"] = DOCUMENT
    return values


def _is_same(field: Any, declared: Any, stored: Any, place: str) -> bool:
    try:
        return bool(field.is_same(field.hold(declared), stored))
    except ShapeError:
        raise ValidationError(f"{place}: {field.name} must be {field.expected}.") from None


def _has_secret(fw: Fw, name: str, secret: str) -> bool:
    try:
        stored: str | None = fw.get_doc(WEBHOOK, name).vault("secret")
    except UnreadableError:
        return False
    return stored is not None and hmac.compare_digest(stored.encode(), secret.encode())


@contextmanager
def _collecting(faults: list[str]) -> Iterator[None]:
    """Add a ValidationError of the block to `faults`."""
    try:
        yield
    except ValidationError as error:
        faults.append(str(error))


class _ExistingRoles:
    """The roles that a site has, or will have with the declared ones.

    A site may have more than fit into memory: only the names in question are looked up, and the
    nearest one is sought among the first `_MAX_COMPARED_ROLES`.
    """

    def __init__(self, fw: Fw, state: DeclaredState) -> None:
        self._fw = fw
        self._exists = dict.fromkeys(state.roles, True)

    def __contains__(self, role: str) -> bool:
        if role not in self._exists:
            self._exists[role] = self._fw.exists(ROLE, role) is not None
        return self._exists[role]

    def __iter__(self) -> Iterator[str]:
        declared = (role for role, exists in self._exists.items() if exists)
        return chain(declared, islice(names_of(self._fw, ROLE), _MAX_COMPARED_ROLES))


def _unknown_names(fw: Fw, state: DeclaredState) -> list[str]:
    """Return a sentence for each declared role and DocType that does not exist.

    A stored Webhook or scope may name a DocType that no app declares any more, and stay (B-16).
    """
    roles = _ExistingRoles(fw, state)
    doctypes = fw.documents.registry.metas
    named: list[tuple[str, str, Any, _ExistingRoles | Mapping[str, Meta]]] = []
    for name, user in state.users.items():
        place = f"users.{name}"
        if not isinstance(user.roles, msgspec.UnsetType):
            named += [(place, "Role", role, roles) for role in user.roles]
        if not isinstance(user.scopes, msgspec.UnsetType):
            stored = _stored_scopes(fw, name)
            added = (scope for scope in user.scopes if scope not in stored)
            named += [(place, "DocType", scope.allow, doctypes) for scope in added]
    for name, webhook in state.webhooks.items():
        watched = webhook.get("webhook_doctype")
        if watched and fw.get_value(WEBHOOK, name, "webhook_doctype") != watched:
            named.append((f"webhooks.{name}", "DocType", watched, doctypes))
    return [
        f"{place}: there is no {kind} {name[:140]}{_suggestion(name, known)}"
        for place, kind, name, known in named
        if isinstance(name, str) and name not in known
    ]


def _roles(fw: Fw, state: DeclaredState) -> Iterator[Change]:
    for role in state.roles:
        if fw.exists(ROLE, role) is None:
            yield Change("create", ROLE, role)


_ACCOUNT_FIELDS: Final = {"email": "email", "full_name": "fullName", "enabled": "enabled"}


def _user(fw: Fw, name: str, declared: DeclaredUser) -> Iterator[Change]:
    exists = fw.exists(USER, name) is not None
    if not exists and not declared.email:
        raise ValidationError(f"users.{name}: there is no such user; a new one needs an email.")
    stored = rest.read(fw, USER, name) if exists else {}
    fields = []
    for attribute, field in _ACCOUNT_FIELDS.items():
        value = getattr(declared, attribute)
        if value is not msgspec.UNSET and (stored.get(field) or None) != (value or None):
            fields.append(PlannedValue(field, stored.get(field), value))
    if not isinstance(declared.roles, msgspec.UnsetType):
        old_roles = sorted(row["role"] for row in stored.get("roles", ()))
        if old_roles != sorted(set(declared.roles)):
            fields.append(PlannedValue("roles", old_roles, sorted(set(declared.roles))))
    if fields or not exists:
        yield Change("change" if exists else "create", USER, name, tuple(fields))


def _ordered(accounts: Iterable[Change]) -> list[Change]:
    """Return the steps for accounts in an order in which each is accepted, if there is one.

    An account that may cease to be a System Manager comes after the others, and an account that
    gets the e-mail of another one after that one. An account with both has two steps.
    """
    planned = list(accounts)
    takers = {_email(step, of_new=True): step for step in planned}
    steps: list[Change] = []
    last: list[Change] = []
    for step in sorted(planned, key=_may_remove_manager):
        freed = _email(step, of_new=False)
        if freed and takers.get(freed, step) is not step and _may_remove_manager(step):
            with_email, with_rights = _parts(step)
            steps.append(with_email)
            last.append(with_rights)
        else:
            steps.append(step)
    holders = {_email(step, of_new=False): step for step in steps}
    ordered: dict[str, Change] = {}
    for first in steps:
        waiting: dict[str, Change] = {}  # each for the next one
        following: Change | None = first
        while following and following.name not in ordered and following.name not in waiting:
            waiting[following.name] = following
            email = _email(following, of_new=True)
            following = None if email is None else holders.get(email)
        ordered.update(reversed(waiting.items()))
    return [*ordered.values(), *last]


def _email(change: Change, *, of_new: bool) -> str | None:
    """Return the e-mail that a step gives to an account, or takes from it, in lower case."""
    for value in change.fields:
        if value.field == "email":
            email = value.new if of_new else value.old
            return email.casefold() if email else None
    return None


def _parts(change: Change) -> tuple[Change, Change]:
    """Divide a step into the one with the e-mail, and the one that may remove the manager."""
    fields = [value for value in change.fields if value.field not in _RIGHTS]
    rights = [value for value in change.fields if value.field in _RIGHTS]
    return replace(change, fields=tuple(fields)), replace(change, fields=tuple(rights))


_RIGHTS: Final = ("enabled", "roles")


def _may_remove_manager(change: Change) -> bool:
    """Return whether a step may take the role System Manager from an account, or disable it."""
    for value in change.fields:
        if value.field == "enabled" and not value.new:
            return True
        if value.field == "roles" and SYSTEM_MANAGER not in value.new:
            return True
    return False


def _apply_user(fw: Fw, state: DeclaredState, change: Change) -> None:
    values = {each.field: each.new for each in change.fields}
    if change.kind == "create":
        add_user(
            fw,
            change.name,
            values["email"],
            values.get("fullName") or "",
            values.get("roles") or (),
            enabled=values.get("enabled", state.users[change.name].enabled is not False),
        )
        return
    if "roles" in values:
        values["roles"] = [{"role": role} for role in values["roles"]]
    if "enabled" in values:
        values["enabled"] = int(values["enabled"])
    rest.save(fw, USER, change.name, values)


def _stored_scopes(fw: Fw, user: str) -> dict[DeclaredScope, str]:
    rows = fw.get_list(SCOPE, [["user", "=", user]], ["name", "allow", "for_value"])
    return {DeclaredScope(row["allow"], row["for_value"]): row["name"] for row in rows}


def _scopes(fw: Fw, state: DeclaredState) -> Iterator[Change]:
    for user, declared in state.users.items():
        if isinstance(declared.scopes, msgspec.UnsetType):
            continue
        stored = _stored_scopes(fw, user)
        for scope in sorted(set(declared.scopes) - set(stored)):
            yield _scope_change("create", user, scope)
        for scope in sorted(set(stored) - set(declared.scopes)):
            yield _scope_change("delete", user, scope, stored[scope])


def _scope_change(kind: str, user: str, scope: DeclaredScope, name: str = "") -> Change:
    values = {"user": user, "allow": scope.allow, "for_value": scope.for_value}
    fields = tuple(
        PlannedValue(
            field, value if kind == "delete" else None, None if kind == "delete" else value
        )
        for field, value in values.items()
    )
    return Change(kind, SCOPE, name, fields)


def _needs_of_scope(change: Change) -> tuple[tuple[str, str], ...]:
    """Return the documents without which a scope is refused."""
    user, allow, value = (each.new for each in change.fields)
    return (USER, user), (allow, value)


def _name_of(change: Change) -> str:
    """Return the document's name; a scope without one is described by its values."""
    return change.name or " ".join(str(each.new) for each in change.fields)


def _apply_scope(fw: Fw, change: Change) -> None:
    if change.kind == "delete":
        fw.get_doc(SCOPE, change.name).delete()
    else:
        fw.new_doc(SCOPE, **{each.field: each.new for each in change.fields}).insert()


def exported(fw: Fw) -> dict[str, Iterator[Any]]:
    """Return the state of a site in the form of a file; of secrets the names of variables.

    `roles` are names; the members of the other sections are pairs of a name and a value.
    """
    built_in = {*FIRST_ROLES, *fw.documents.registry.roles()}
    return {
        "webhooks": _exported_webhooks(fw),
        "roles": (role for role in names_of(fw, ROLE) if role not in built_in),
        "users": ((name, _exported_user(fw, name)) for name in names_of(fw, USER)),
    }


def _exported_webhooks(fw: Fw) -> Iterator[tuple[str, dict[str, Any]]]:
    meta = fw.documents.registry.meta(WEBHOOK)
    plain = [f for f in meta.fields.values() if f.plain and not f.read_only and not f.secret]
    used_variables = set(SITE_KEY_VARIABLES)
    for name in names_of(fw, WEBHOOK):
        stored = rest.read(fw, WEBHOOK, name)
        values = {f.name: stored[f.name] for f in plain if stored[f.name] != f.blank()}
        yield name, {**values, "secret": _variable(name, used_variables)}


def _exported_user(fw: Fw, name: str) -> dict[str, Any]:
    stored = rest.read(fw, USER, name)
    return {
        "email": stored["email"],
        "fullName": stored["fullName"] or "",
        "enabled": bool(stored["enabled"]),
        "roles": sorted(each["role"] for each in stored["roles"]),
        "scopes": [
            {"allow": scope.allow, "for_value": scope.for_value}
            for scope in sorted(_stored_scopes(fw, name))
        ],
    }


def _variable(name: str, used: set[str]) -> str:
    """Return the variable for a Webhook's secret, and add it to `used`.

    Two Webhooks never share one: the receiver of either could sign requests to the other.
    """
    plain = SECRET_PREFIX + "".join(c if c.isascii() and c.isalnum() else "_" for c in name).upper()
    numbered = (f"{plain}_{number}" for number in count(2))
    variable = next(each for each in chain([plain], numbered) if each not in used)
    used.add(variable)
    return variable
