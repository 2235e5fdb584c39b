"""A document in Python: fields as attributes, child rows as objects, and the verbs of its life."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from fw_actors.documents.doctype import ROW_ID, DocTypeBase
from fw_actors.documents.fields import CONFIGURED, Table, Vault, iso
from fw_actors.errors import BadRequestError, ValidationError

if TYPE_CHECKING:
    from fw_actors.documents.doctype import Meta
    from fw_actors.documents.fields import Field
    from fw_actors.documents.handle import Fw


class DocType(DocTypeBase, abstract=True):
    """Derive from it to declare a DocType; an instance is one document, bound to a transaction.

    Every verb takes `ignore_permissions`. Verbs run in a savepoint of their own: a refusal that
    is caught leaves the transaction usable. Refusals are those of `fw_actors.errors`.
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
                raise field_unknown(meta, key)
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
        state["creation"], state["modified"] = _iso(row["creation"]), _iso(row["modified"])
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
        """Give the document another name; links, child rows and references follow. No event."""
        self._fw.documents.rename(self._fw, self, name, ignore_permissions)
        return self

    def db_set(self, field: str, value: Any, *, ignore_permissions: bool = False) -> None:
        """Write one field directly: no hooks, no events (D-130); `modified` moves.

        What else was changed on the object is not written.
        """
        self._fw.documents.db_set(self._fw, self, field, value, ignore_permissions)

    def reload(self, *, ignore_permissions: bool = False) -> Self:
        """Read the document again."""
        fresh = self._fw.documents.read(self._fw, self.doctype, self.name or "", ignore_permissions)
        self.__dict__.update(fresh.__dict__)
        return self

    def vault(self, field: str) -> str | None:
        """Return the decrypted text of a Vault field, for application code only.

        Raises: UnreadableError when the key is missing or was changed; BadRequestError for what
            is no Vault field.
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
        """Return what JSON shows: standard fields, fields, child rows; secrets blank."""
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

    Raises: ValidationError for what is no list of rows; BadRequestError for an unknown field.
    """
    rows, child = doc.__dict__[field.name], child_of(field)
    if type(rows) is list:
        for row in rows:
            if not isinstance(row, child):
                break
        else:
            return rows
    if not isinstance(rows, list | tuple | None):
        raise ValidationError(f"{field.name} must be {field.wanted}.", field=field.name)
    if not all(isinstance(row, child | Mapping) for row in rows or ()):
        raise ValidationError(f"{field.name} must be {field.wanted}.", field=field.name)
    made = [row if isinstance(row, child) else child(doc._fw, dict(row)) for row in rows or ()]
    doc.__dict__[field.name] = made
    return made


def shown_value(doc: DocType, field: Field) -> Any:
    """Return what JSON shows of a field; secrets blank."""
    value = getattr(doc, field.name)
    if isinstance(field, Table):
        return [row.as_dict() for row in rows_of(doc, field)]
    if isinstance(field, Vault):
        return CONFIGURED if value else None
    return None if field.secret else value


def child_of(field: Table) -> type[DocType]:
    """Return the DocType of a table's rows; the registry has validated it."""
    child: type[DocType] = field.child
    return child


def field_unknown(meta: Meta, key: object) -> Exception:
    """Return the refusal of a key that the DocType does not have."""
    shown = str(key)[:60]
    return BadRequestError(f"{meta.name} has no field {shown}.", field=shown)


def _iso(ms: int | None) -> str | None:
    return None if ms is None else iso(ms)
