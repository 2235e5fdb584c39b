"""The handle `fw` of application code: one user's documents in one transaction (D-190).

A document has its fields as attributes, its child rows as objects, and the verbs of its lifecycle
as methods.

The module has more than 500 lines because it is the whole interface that an app's code has to its
documents, with its documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Self

from fw_actors.config import Secrets
from fw_actors.documents.doctype import ROW_ID, DocTypeBase
from fw_actors.documents.fields import Table, Vault, iso_or_none, shown_vault
from fw_actors.errors import (
    BadRequestError,
    ConflictError,
    DuplicateError,
    FwError,
    NotFoundError,
    PermissionDeniedError,
    ValidationError,
)
from fw_actors.store import ConstraintViolation, Tx, UniqueViolation

if TYPE_CHECKING:
    from fw_actors.documents.doctype import Meta
    from fw_actors.documents.fields import Field
    from fw_actors.documents.lifecycle import Documents
    from fw_actors.documents.permissions import Rights


class DocType(DocTypeBase, abstract=True):
    """Derive from it to declare a DocType; an instance is one document, bound to a transaction.

    Every verb takes `ignore_permissions`. Each verb runs in its own savepoint, so the transaction
    can continue after a caught error. Verbs raise the errors of `fw_actors.errors`.
    """

    name: str | None
    owner: str | None
    creation: str | None
    modified: str | None
    modified_by: str | None
    docstatus: int
    idx: int
    parent: str | None
    parenttype: str | None
    parentfield: str | None

    def __init__(self, fw: Fw, values: Mapping[str, Any] | None = None) -> None:
        self._fw = fw
        self._stored: dict[str, Any] | None = None
        self._before: DocType | None = None
        meta = self.meta
        self.name = self.owner = self.creation = self.modified = self.modified_by = None
        self.docstatus = self.idx = 0
        if meta.child:
            self.parent = self.parenttype = self.parentfield = None
        self.__dict__.update(meta.groups.blank)
        for name, make in meta.groups.blank_made:
            self.__dict__[name] = make()
        for key, value in (values or {}).items():
            if key not in meta.fields and key not in ("name", "idx", "docstatus"):
                raise unknown_field(meta, key)
            setattr(self, key, value)
        for table in meta.tables:
            rows_of(self, table)

    @classmethod
    def from_row(cls, fw: Fw, row: dict[str, Any]) -> Self:
        """Return the document of a row of its table; child rows are not read here."""
        doc = cls.__new__(cls)
        doc._fw = fw
        doc._stored = row
        doc._before = None
        doc._take(row)
        return doc

    @property
    def doctype(self) -> str:
        return self.meta.name

    def _take(self, row: Mapping[str, Any]) -> None:
        state, meta = self.__dict__, self.meta
        state.update(row)
        del state[ROW_ID]
        state["creation"] = iso_or_none(row["creation"])
        state["modified"] = iso_or_none(row["modified"])
        state["docstatus"], state["idx"] = row["docstatus"] or 0, row["idx"] or 0
        for field in meta.unstored:
            state[field.name] = None
        for name, read in meta.groups.decoded:
            state[name] = read(row[name])

    def is_new(self) -> bool:
        """Whether the document was never written."""
        return self._stored is None

    def insert(self, *, ignore_permissions: bool = False) -> Self:
        """Write a new document."""
        self._fw.documents.insert(self._fw, self, ignore_permissions)
        return self

    def save(self, *, ignore_permissions: bool = False) -> Self:
        """Write the changes of a draft, or of `allow_on_submit` fields of a submitted document."""
        self._fw.documents.save(self._fw, self, ignore_permissions)
        return self

    def submit(self, *, ignore_permissions: bool = False) -> Self:
        """Make a draft of a submittable DocType final."""
        self._fw.documents.submit(self._fw, self, ignore_permissions)
        return self

    def cancel(self, *, ignore_permissions: bool = False) -> Self:
        """Cancel a submitted document."""
        self._fw.documents.cancel(self._fw, self, ignore_permissions)
        return self

    def delete(self, *, ignore_permissions: bool = False) -> None:
        """Delete the document; a submitted one must be cancelled first."""
        self._fw.documents.delete(self._fw, self, ignore_permissions)

    def rename(self, name: str, *, ignore_permissions: bool = False) -> Self:
        """Rename the document; links, child rows and references are updated. No event is sent."""
        self._fw.documents.rename(self._fw, self, name, ignore_permissions)
        return self

    def db_set(self, field: str, value: Any, *, ignore_permissions: bool = False) -> None:
        """Write one field directly, without hooks and events (D-130); `modified` is updated.

        Other changes on the object are not written.
        """
        self._fw.documents.db_set(self._fw, self, field, value, ignore_permissions)

    def reload(self, *, ignore_permissions: bool = False) -> Self:
        """Read the document again. Raises: ConflictError if it has no name yet."""
        if self.name is None:
            raise ConflictError(f"This {self.doctype} has not been inserted yet.")
        fresh = self._fw.documents.read(self._fw, self.doctype, self.name, ignore_permissions)
        self.__dict__.update(fresh.__dict__)
        return self

    def vault(self, field: str) -> str | None:
        """Return the decrypted text of a Vault field, for application code only.

        Raises: UnreadableError when the key is missing or was changed; BadRequestError if `field`
            is not a Vault field.
        """
        if not any(each.name == field for each in self.meta.groups.sealed):
            raise BadRequestError(f"{self.doctype} has no Vault field {str(field)[:60]}.")
        value = self.__dict__[field]
        if isinstance(value, str):
            return value or None  # written in this transaction, not stored yet
        sealed = (self._stored or {}).get(field)
        if sealed is None or self._stored is None:
            return None
        return self._fw.documents.vault.open(sealed, self.doctype, field, self._stored[ROW_ID])

    def as_dict(self) -> dict[str, Any]:
        """Return the document as in JSON: standard fields, fields and child rows; secrets are
        blank."""
        meta = self.meta
        shown: dict[str, Any] = {"doctype": meta.name}
        shown.update(zip(meta.shown, meta.groups.pick(self.__dict__), strict=True))
        for table in meta.tables:
            shown[table.name] = [row.as_dict() for row in rows_of(self, table)]
        for field in meta.groups.secrets:
            shown[field.name] = shown_value(self, field)
        return shown


def rows_of(doc: DocType, field: Table) -> list[DocType]:
    """Return a table's rows as objects; rows given as dicts become objects here.

    Raises: ValidationError if the value is not a list of rows; BadRequestError for an unknown
        field.
    """
    rows, child = doc.__dict__[field.name], child_of(field)
    if type(rows) is list:
        for row in rows:
            if not isinstance(row, child):
                break
        else:
            return rows
    if not isinstance(rows, list | tuple | None):
        raise ValidationError(f"{field.name} must be {field.expected}.", field=field.name)
    if not all(isinstance(row, child | Mapping) for row in rows or ()):
        raise ValidationError(f"{field.name} must be {field.expected}.", field=field.name)
    objects = [row if isinstance(row, child) else child(doc._fw, dict(row)) for row in rows or ()]
    doc.__dict__[field.name] = objects
    return objects


def shown_value(doc: DocType, field: Field) -> Any:
    """Return a field's value as in JSON; a secret is blank."""
    value = getattr(doc, field.name)
    if isinstance(field, Table):
        return [row.as_dict() for row in rows_of(doc, field)]
    if isinstance(field, Vault):
        return shown_vault(value)
    return None if field.secret else value


def child_of(field: Table) -> type[DocType]:
    """Return the DocType of a table's rows; the registry has validated it."""
    child: type[DocType] = field.child
    return child


def unknown_field(meta: Meta, key: object) -> Exception:
    """Return the error for a key that is not a field of the DocType."""
    shown = str(key)[:60]
    return BadRequestError(f"{meta.name} has no field {shown}.", field=shown)


Filters = Sequence[Sequence[Any]] | Mapping[str, Any]

RightsOf = Callable[[Tx, str], "Rights"]
"""Returns the rights of a user. Raises: NotFoundError."""
Emit = Callable[["Fw", object, object, object, object], dict[str, list[str]]]
"""Records a custom event: name, data, reference, key; returns `{"deliveries": [id, …]}`."""
EmitMany = Callable[["Fw", object, bool], list[dict[str, Any]]]
"""Records a list of events and returns a result for each; the flag refuses all of them if one is
refused."""
Enqueue = Callable[["Fw", object, dict[str, object]], int]
"""Records a job that runs a function of an app later; returns its number.

Raises: ValidationError for a function that cannot run later.
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

    def handle(self, tx: Tx, user: str, request_id: str = "") -> Fw:
        """Return a handle on a transaction for a user. Raises: NotFoundError."""
        return Fw(self, tx, self.rights_of(tx, user), request_id)


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
        """Custom events."""  # not cached, which would make a reference cycle
        return Webhooks(self, self._site.emit, self._site.emit_many)

    @property
    def user(self) -> str:
        """The user whose permissions apply."""
        return self.rights.user

    def as_user(self, name: str) -> Fw:
        """Return a handle on the same transaction for another user. Raises: NotFoundError.

        This does not lift the current user's access scopes: they also limit the other user.
        """
        rights = self._site.rights_of(self.tx, name)
        return Fw(self._site, self.tx, rights.within(self.rights), self.request_id)

    def new_doc(self, /, doctype: str, **fields: Any) -> Any:
        """Return a new document that is not written yet.

        Raises: NotFoundError for an unknown DocType; BadRequestError for an unknown field.
        """
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
        """Return rows that the user may list, as dicts.

        Args:
            doctype: the DocType.
            filters: triples `[field, operator, value]`, or a dict of equalities; all must match.
            fields: the fields of the rows; None: the standard fields.
            order_by: fields separated by commas, each with an optional `asc` or `desc`; None:
                `creation desc`.
            limit, start: the maximum number of rows, None for all, and the number to skip.
            ignore_permissions: also return rows and fields that the user may not see.

        Raises: NotFoundError for an unknown DocType; BadRequestError for invalid filters, fields or
            order; PermissionDeniedError.
        """
        return self.documents.lists.rows(
            self,
            doctype,
            filters,
            fields,
            order_by=order_by,
            limit=limit,
            start=start,
            ignore_permissions=ignore_permissions,
        )

    def get_all(
        self,
        doctype: str,
        filters: Filters = (),
        fields: list[str] | None = None,
        order_by: str | None = None,
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return rows as `get_list`, without permissions.

        DocTypes that the user's access scopes exclude, such as Webhook, have no rows.

        Raises: as `get_list`, but not PermissionDeniedError.
        """
        return self.get_list(doctype, filters, fields, order_by, limit, ignore_permissions=True)

    def count(self, doctype: str, filters: Filters = ()) -> int:
        """Return the number of rows that match, without checking permissions (as `get_all`).

        Raises: as `get_all`.
        """
        return self.documents.lists.count(self, doctype, filters)

    def get_value(self, doctype: str, name_or_filters: str | Filters | None, field: str) -> Any:
        """Return one field of the first matching row, without checking permissions.

        `name_or_filters`: a document's name, or filters as in `get_list`. None if there is no such
        row, or for the name None.

        Raises: as `get_all`; BadRequestError if `field` is not the name of one field, because
            `get_all` returns several.
        """
        if not isinstance(field, str):
            raise BadRequestError("field must be the name of one field.", field="field")
        if name_or_filters is None:  # such as the value of an empty link
            return None
        if isinstance(name_or_filters, str):
            name_or_filters = [["name", "=", name_or_filters]]
        rows = self.get_all(doctype, name_or_filters, [field], limit=1)
        return rows[0][field] if rows else None

    def exists(self, doctype: str, name_or_filters: str | Filters | None) -> str | None:
        """Return the name of the first matching row; arguments and None as in `get_value`."""
        name: str | None = self.get_value(doctype, name_or_filters, "name")
        return name

    def secret(self, name: str) -> str:
        """Return the secret FW_SECRET_<NAME>. Raises: NotFoundError naming the variable."""
        value = self._site.secrets.get(str(name))
        if value is None:
            variable = f"FW_SECRET_{str(name).upper()[:60]}"
            raise NotFoundError(f"{variable} is not set, or apps may not read it; use lower case.")
        return value

    def enqueue(self, function: Any, /, **arguments: Any) -> int:
        """Run a function of an app later, as the same user; return the job's number.

        Args:
            function: a plain function at the top level of an app's module. It gets a handle, and
                `arguments` by name.
            arguments: values of JSON.

        Raises: ValidationError for another function, or if it does not take the arguments;
            PermissionDeniedError if a job would lift access scopes (see `as_user`);
            AuthenticationError if the user has just been deleted or renamed.
        """
        if self.rights.scoped:
            unlimited = self._site.rights_of(self.tx, self.user)
            if unlimited.scopes != self.rights.scopes:
                raise PermissionDeniedError("A job would run without your access scopes.")
        return self._site.enqueue(self, function, arguments)


class Database:
    """`fw.db`: raw SQL inside the transaction."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx

    def sql(self, text: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Run one statement with `:name` parameters; return its rows as dicts.

        Values are None, finite numbers, text and bytes, as the columns hold them: a Date is the
        text `2026-01-31`, a Datetime milliseconds since 1970.

        Raises: ValidationError for another value, for a text without a statement, for transaction,
            savepoint, ATTACH and PRAGMA statements, and for a row that breaks a rule of its table;
            DuplicateError for a duplicate row.
        """
        _validate_sql(text, params)
        try:
            with self._tx.savepoint():
                return self._tx.raw(text, params or {})
        except UniqueViolation as taken:
            raise DuplicateError(str(taken)) from None
        except ConstraintViolation as broken:
            raise ValidationError(f"The database refused the SQL: {broken}") from None


_NO_STATEMENT: Final = re.compile(r"\s+|;|--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_MAX_COLUMN_INTEGER: Final = 2**63 - 1  # of a column


def _validate_sql(text: object, params: object) -> None:
    if not isinstance(text, str) or not isinstance(params, Mapping | None):
        raise ValidationError('SQL must be text with a dict of values: {"name": value}.')
    if "\0" in text:  # PostgreSQL would run the text before it
        raise ValidationError("SQL must not contain a NUL character.")
    end = 0
    while skipped := _NO_STATEMENT.match(text, end):
        end = skipped.end()
    if end == len(text):  # SQLite would return no rows
        raise ValidationError("SQL must contain a statement.")
    for name, value in (params or {}).items():
        if not _is_plain(value):
            raise ValidationError(
                f"The value of :{str(name)[:60]} must be None, an integer of 64 bits, a finite "
                "float, bytes, or text without NUL and lone surrogates. It is of type "
                f"{type(value).__name__[:60]}. Columns hold a Date as YYYY-MM-DD, and a Datetime "
                "as milliseconds since 1970."
            )


def _is_plain(value: object) -> bool:
    """Whether both stores take a value of SQL as it is: SQLite would make texts of datetimes,
    which equal no time in a column, and null of NaN."""
    if isinstance(value, str):
        return "\0" not in value and value.encode("utf-8", "ignore").decode() == value
    if isinstance(value, int):
        return -_MAX_COLUMN_INTEGER - 1 <= value <= _MAX_COLUMN_INTEGER
    return isinstance(value, bytes | None) or (isinstance(value, float) and isfinite(value))


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

        Raises: ValidationError if there are no events, or too many. With `all` also the error of
            the first refused event; its `extra.field` begins with the position, such as
            `events[3]`.
        """
        with self._fw.tx.savepoint():
            return self._emit_many(self._fw, events, all)
