"""`fw`, what application code gets: documents in one transaction for one user (D-190)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fw_actors.config import Secrets
from fw_actors.errors import (
    DuplicateError,
    FwError,
    NotFoundError,
    PermissionDeniedError,
    ValidationError,
)
from fw_actors.store import ConstraintViolation, Tx, UniqueViolation

if TYPE_CHECKING:
    from fw_actors.documents.lifecycle import Documents
    from fw_actors.documents.permissions import Rights

Filters = Sequence[Sequence[Any]] | Mapping[str, Any]

RightsOf = Callable[[Tx, str], "Rights"]
"""Returns the rights of a user. Raises: NotFoundError."""
Emit = Callable[["Fw", object, object, object, object], dict[str, list[str]]]
"""Records a custom event: name, data, reference, key; returns `{"deliveries": [id, …]}`."""
EmitMany = Callable[["Fw", object, bool], list[dict[str, Any]]]
"""Records events: a list, and whether all are refused with one; returns a result for each."""
Enqueue = Callable[["Fw", object, dict[str, object]], int]
"""Records a job that runs a function of an app later; returns its number.

Raises: ValidationError for a function that can't run later.
"""


@dataclass(frozen=True)
class SiteContext:
    """The parts of a site that its handles share."""

    documents: Documents
    emit: Emit
    emit_many: EmitMany
    rights_of: RightsOf
    enqueue: Enqueue
    secrets: Secrets


class Fw:
    """A handle on the site, bound to a transaction and a user."""

    def __init__(self, site: SiteContext, tx: Tx, rights: Rights, request_id: str = "") -> None:
        self._site = site
        self.tx = tx
        self.rights = rights
        self.request_id = request_id
        self.documents = site.documents

    @property
    def db(self) -> Database:
        """Raw SQL."""
        return Database(self.tx)

    @property
    def webhooks(self) -> Webhooks:
        """Custom events."""  # made when asked for: kept, it would hold the handle in a circle
        return Webhooks(self, self._site.emit, self._site.emit_many)

    @property
    def user(self) -> str:
        """The user whose permissions apply."""
        return self.rights.user

    def as_user(self, name: str) -> Fw:
        """Return a handle on the same transaction for another user. Raises: NotFoundError.

        Access scopes can't be lifted from inside: they limit the other name as well.
        """
        rights = self._site.rights_of(self.tx, name)
        return Fw(self._site, self.tx, rights.within(self.rights), self.request_id)

    def new_doc(self, /, doctype: str, **fields: Any) -> Any:
        """Return a new document that is not written yet."""
        meta = self.documents.registry.meta(doctype)
        return meta.cls(self, fields)

    def get_doc(self, doctype: str, name: str) -> Any:
        """Return a document. Raises: NotFoundError, PermissionDeniedError."""
        return self.documents.read(self, doctype, name, ignore_permissions=False)

    def get_list(
        self,
        doctype: str,
        filters: Filters = (),
        fields: list[str] | None = None,
        order_by: str | None = None,
        limit: int | None = None,
        start: int = 0,
        *,
        ignore_permissions: bool = False,
    ) -> list[dict[str, Any]]:
        """Return rows that the user may list, as dicts."""
        return self.documents.lists.rows(
            self, doctype, filters, fields, order_by, limit, start, ignore_permissions
        )

    def get_all(
        self,
        doctype: str,
        filters: Filters = (),
        fields: list[str] | None = None,
        order_by: str | None = None,
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return rows without checking permissions, but for the scope of Webhook and deliveries."""
        return self.get_list(doctype, filters, fields, order_by, limit, ignore_permissions=True)

    def count(self, doctype: str, filters: Filters = ()) -> int:
        """Return how many rows the filters match, whatever the permissions (as `get_all`)."""
        return self.documents.lists.count(self, doctype, filters)

    def get_value(self, doctype: str, name_or_filters: str | Filters | None, field: str) -> Any:
        """Return one field of the first row that matches, or None; no row has no name."""
        if name_or_filters is None:  # the value of an empty link
            return None
        if isinstance(name_or_filters, str):
            name_or_filters = [["name", "=", name_or_filters]]
        found = self.get_all(doctype, name_or_filters, [field], limit=1)
        return found[0][field] if found else None

    def exists(self, doctype: str, name_or_filters: str | Filters | None) -> str | None:
        """Return the name of the first row that matches, or None; no row has no name."""
        found: str | None = self.get_value(doctype, name_or_filters, "name")
        return found

    def secret(self, name: str) -> str:
        """Return the secret FW_SECRET_<NAME>. Raises: NotFoundError naming the variable."""
        value = self._site.secrets.get(str(name))
        if value is None:
            variable = f"FW_SECRET_{str(name).upper()[:60]}"
            raise NotFoundError(f"{variable} is not set, or not for apps; ask in lower case.")
        return value

    def enqueue(self, function: Any, /, **arguments: Any) -> int:
        """Run a function of an app later, as the same user; return the job's number.

        Raises: PermissionDeniedError where that would lift access scopes (see `as_user`).
        """
        if self.rights.scoped:
            own = self._site.rights_of(self.tx, self.user)
            if own.scopes != self.rights.scopes:
                raise PermissionDeniedError("A job would run without your access scopes.")
        return self._site.enqueue(self, function, arguments)


class Database:
    """`fw.db`: raw SQL inside the transaction."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx

    def sql(self, text: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Run one statement with `:name` parameters; return its rows as dicts.

        Raises: ValidationError for transaction, savepoint, ATTACH and PRAGMA statements, and for
            a row that breaks a rule of its table; DuplicateError for one that is there already.
        """
        _validate_sql(text, params)
        try:
            with self._tx.savepoint():
                return self._tx.raw(text, params or {})
        except UniqueViolation as taken:
            raise DuplicateError(str(taken)) from None
        except ConstraintViolation as broken:
            raise ValidationError(f"The database refused the SQL: {broken}") from None


def _validate_sql(text: object, params: object) -> None:
    if not isinstance(text, str) or not isinstance(params, Mapping | None):
        raise ValidationError('SQL must be text with a dict of values: {"name": value}.')
    if "\0" in text:  # PostgreSQL would run the text before it
        raise ValidationError("The SQL holds a NUL character.")


class Webhooks:
    """`fw.webhooks`: custom events."""

    def __init__(self, fw: Fw, emit: Emit, emit_many: EmitMany) -> None:
        self._fw, self._emit, self._emit_many = fw, emit, emit_many

    def emit(
        self,
        name: str,
        data: object,
        reference: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> dict[str, list[str]]:
        """Record an event for every subscription; returns `{"deliveries": [id, …]}`.

        Raises: ValidationError for a reserved or malformed name; DuplicateError for a used key.
        """
        with self._fw.tx.savepoint():
            return self._emit(self._fw, name, data, reference, key)

    def emit_many(
        self, events: Sequence[Mapping[str, Any] | FwError], all: bool = False
    ) -> list[dict[str, Any]]:
        """Record up to 1,000 events in this transaction.

        Args:
            events: mappings with the arguments of `emit`: name, data and, if wanted, reference
                and key. An FwError in place of an event becomes its result.
            all: record all of them, or none.

        Returns: for each event `{"deliveries": [id, …]}`, or `{"error": {"type", "message",
            "extra"}}` if it is refused.

        Raises: ValidationError if there are no events, or too many. With `all` also the refusal
            of the first refused event; `extra.field` begins with its place, `events[3]`.
        """
        with self._fw.tx.savepoint():
            return self._emit_many(self._fw, events, all)
