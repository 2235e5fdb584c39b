"""The life of a document: insert, save, submit, cancel, delete, rename, db_set (interface §3, §4).

Each verb runs in a savepoint: permission, hooks in the order of §4, the rows, then the
observers; whatever raises undoes all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fw_actors.documents import rows, scopes
from fw_actors.documents.checks import check_links, check_values, normalize
from fw_actors.documents.document import DocType
from fw_actors.documents.field import Field
from fw_actors.documents.naming import name_for
from fw_actors.documents.observers import Observer
from fw_actors.documents.registry import Registry
from fw_actors.documents.rename import rename
from fw_actors.documents.times import iso
from fw_actors.documents.vault import Vault
from fw_actors.errors import ConflictError, DuplicateError, PermissionDeniedError, ValidationError
from fw_actors.runtime import Entropy
from fw_actors.store import UniqueViolation

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

DRAFT, SUBMITTED, CANCELLED = 0, 1, 2
DB_SET = "db_set"  # what observers are told of a field written directly; never an event


class Documents:
    """Carries out the verbs of documents for one site. Plain functions inside a transaction."""

    def __init__(
        self, registry: Registry, vault: Vault, entropy: Entropy, observers: Sequence[Observer] = ()
    ) -> None:
        self.registry = registry
        self.vault = vault
        self.entropy = entropy
        self._observers = tuple(observers)

    def insert(self, fw: Fw, doc: DocType, ignore_permissions: bool) -> None:
        """Write a new document and its child rows."""
        with self._step(fw, doc):
            self._require(fw, doc, "create", ignore_permissions)
            if not doc.is_new():
                raise ConflictError(f"{doc.doctype} {doc.name} was inserted before.")
            self._prepare(fw, doc)
            doc.name = name_for(doc, fw.tx, self.entropy)
            if self.registry.table(doc.doctype).exists(fw.tx, doc.name):
                raise DuplicateError(f"{doc.doctype} {doc.name} is there already.")
            doc.owner = doc.modified_by = fw.user
            doc.creation = doc.modified = iso(fw.tx.now)
            doc.docstatus = DRAFT
            self._require_scope(fw, doc, ignore_permissions)
            self._write(fw, doc, "on_insert", lambda: rows.insert(self, fw.tx, doc))

    def save(self, fw: Fw, doc: DocType, ignore_permissions: bool) -> None:
        """Write changes; a submitted document takes those of `allow_on_submit` fields only."""
        if doc.is_new():
            return self.insert(fw, doc, ignore_permissions)
        with self._step(fw, doc):
            self._require(fw, doc, "write", ignore_permissions)
            stored = self._unchanged_since(fw, doc)
            self._require_reach(fw, doc, ignore_permissions)
            if stored["docstatus"] == CANCELLED:
                raise ConflictError(f"{doc.doctype} {doc.name} is cancelled.")
            rows.adopt_children(self, fw.tx, doc)
            normalize(doc)
            if stored["docstatus"] == SUBMITTED and not self._may_change(fw, doc):
                return None  # without a change there is no event
            self._prepare(fw, doc)
            self._stamp(fw, doc)
            self._require_scope(fw, doc, ignore_permissions)
            self._write(fw, doc, "on_update", lambda: rows.update(self, fw.tx, doc))
        return None

    def submit(self, fw: Fw, doc: DocType, ignore_permissions: bool) -> None:
        """Make a draft final."""
        self._change_status(fw, doc, "submit", SUBMITTED, ignore_permissions)

    def cancel(self, fw: Fw, doc: DocType, ignore_permissions: bool) -> None:
        """Cancel a submitted document."""
        self._change_status(fw, doc, "cancel", CANCELLED, ignore_permissions)

    def delete(self, fw: Fw, doc: DocType, ignore_permissions: bool) -> None:
        """Delete a document and its child rows."""
        with self._step(fw, doc):
            self._require(fw, doc, "delete", ignore_permissions)
            stored = self._unchanged_since(fw, doc)
            self._require_reach(fw, doc, ignore_permissions)
            if stored["docstatus"] == SUBMITTED:
                raise ConflictError(f"{doc.doctype} {doc.name} is submitted; cancel it first.")
            self._tell(fw, "changing", "on_trash", doc)
            self._hook(fw, doc, "on_trash")
            check_links(self, fw.tx, doc)
            rows.delete(self, fw.tx, doc)
            self._tell(fw, "changed", "on_trash", doc)
            self._after_commit(fw, doc)

    def rename(self, fw: Fw, doc: DocType, name: object, ignore_permissions: bool) -> None:
        """Give a document another name; whatever names it follows. No hooks, no events."""
        with self._step(fw, doc):
            self._require(fw, doc, "write", ignore_permissions)
            self._unchanged_since(fw, doc)
            self._require_reach(fw, doc, ignore_permissions)
            old = str(doc.name)
            if name == old:
                return
            with _duplicates_refused(doc):
                new = rename(self, fw.tx, doc, name)
            for observer in self._observers:
                observer.renamed(fw, doc.doctype, old, new)

    def db_set(self, fw: Fw, doc: DocType, name: str, value: Any, ignore_permissions: bool) -> None:
        """Write one column directly: no hooks, no events; the rules of observers hold.

        They judge the stored document with the new value, not what else was changed on `doc`.
        """
        with self._step(fw, doc):
            self._require(fw, doc, "write", ignore_permissions)
            stored = rows.load(self, fw, doc.doctype, doc.name or "")
            self._require_scope(fw, stored, ignore_permissions)
            field = rows.assign(stored, name, value)
            self._require_scope(fw, stored, ignore_permissions)
            self._tell(fw, "changing", DB_SET, stored)
            with _duplicates_refused(doc):
                rows.write_field(self, fw.tx, stored, field)
            self._tell(fw, "changed", DB_SET, stored)
            doc.__dict__[name] = stored.__dict__[name]
            doc._stored = {**(doc._stored or {}), name: (stored._stored or {})[name]}

    def _change_status(
        self, fw: Fw, doc: DocType, verb: str, status: int, ignore_permissions: bool
    ) -> None:
        with self._step(fw, doc):
            self._require(fw, doc, verb, ignore_permissions)
            if not doc.meta.submittable:
                raise ValidationError(f"{doc.doctype} is no DocType that is submitted.")
            stored = self._unchanged_since(fw, doc)
            self._require_reach(fw, doc, ignore_permissions)
            if stored["docstatus"] != status - 1:
                words = ("a draft", "submitted", "cancelled")[stored["docstatus"]]
                raise ConflictError(f"{doc.doctype} {doc.name} is {words}; it can't {verb}.")
            if status == SUBMITTED:
                self._prepare(fw, doc)
            doc.docstatus = status
            self._stamp(fw, doc)
            self._require_scope(fw, doc, ignore_permissions)
            self._write(fw, doc, f"on_{verb}", lambda: rows.update(self, fw.tx, doc))

    @contextmanager
    def _step(self, fw: Fw, doc: DocType) -> Iterator[None]:
        """A savepoint that also takes back what the verb wrote on the object."""
        before = dict(doc.__dict__)
        try:
            with fw.tx.savepoint():
                yield
        except BaseException:
            doc.__dict__.clear()
            doc.__dict__.update(before)
            raise

    def _prepare(self, fw: Fw, doc: DocType) -> None:
        """All before the row: types, hooks that may fill in, then the rules of the fields."""
        normalize(doc)
        self._hook(fw, doc, "before_validate")
        self._hook(fw, doc, "validate")
        normalize(doc)
        check_values(self, fw.tx, doc)
        self._hook(fw, doc, "before_save")

    def _write(self, fw: Fw, doc: DocType, event: str, write: Callable[[], None]) -> None:
        self._tell(fw, "changing", event, doc)
        with _duplicates_refused(doc):
            write()
        self._hook(fw, doc, event)
        self._tell(fw, "changed", event, doc)
        self._after_commit(fw, doc)

    def _stamp(self, fw: Fw, doc: DocType) -> None:
        doc.modified, doc.modified_by = iso(fw.tx.now), fw.user

    def _unchanged_since(self, fw: Fw, doc: DocType) -> dict[str, Any]:
        """Return the stored row, if it is still the version that the document was read from."""
        table = self.registry.table(doc.doctype)
        row = table.fetch(fw.tx, doc.name or "") if doc.name else None
        if row is None:
            raise ConflictError(f"{doc.doctype} {doc.name} was deleted meanwhile.")
        if doc.modified is not None and doc.modified != iso(row["modified"]):
            raise ConflictError(f"{doc.doctype} {doc.name} was changed meanwhile; read it again.")
        return row

    def _may_change(self, fw: Fw, doc: DocType) -> bool:
        """Whether a submitted document changes at all; refuses what may not change any more."""
        changed = rows.changed_fields(self, fw.tx, doc)
        for field in changed:
            if not field.allow_on_submit:
                raise ValidationError(
                    f"{field.name} can't change once {doc.doctype} {doc.name} is submitted.",
                    field=field.name,
                )
        return bool(changed)

    def _require(self, fw: Fw, doc: DocType, action: str, ignore_permissions: bool) -> None:
        fw.rights.require_writable(doc.meta)
        if doc.meta.child:
            raise ValidationError(f"{doc.doctype} rows are saved with their parent.")
        if doc.meta.read_only:
            raise PermissionDeniedError(f"{doc.doctype} is written by the service alone.")
        if not ignore_permissions:
            fw.rights.require(doc.meta, action)

    def _require_reach(self, fw: Fw, doc: DocType, ignore_permissions: bool) -> None:
        """The document as it is stored has to be within the writer's access scopes."""
        if fw.rights.scoped and not ignore_permissions:
            stored = rows.load(self, fw, doc.doctype, doc.name or "")
            scopes.require_within(fw.rights.scopes, stored)

    def _require_scope(self, fw: Fw, doc: DocType, ignore_permissions: bool) -> None:
        """The document as it will be stored has to be within them too."""
        if not ignore_permissions:
            scopes.require_within(fw.rights.scopes, doc)

    def _hook(self, fw: Fw, doc: DocType, name: str) -> None:
        hook = getattr(type(doc), name, None)
        if hook is not None and not isinstance(hook, Field):  # Webhook has fields of these names
            hook(doc, fw)

    def _after_commit(self, fw: Fw, doc: DocType) -> None:
        """Have the hook of this name called once the change is durable; the handle is dead then."""
        if not isinstance(getattr(type(doc), "after_commit", None), Field | None):
            fw.tx.after_commit(lambda: self._hook(fw, doc, "after_commit"))

    def _tell(self, fw: Fw, verb: str, event: str, doc: DocType) -> None:
        for observer in self._observers:
            getattr(observer, verb)(fw, event, doc)


@contextmanager
def _duplicates_refused(doc: DocType) -> Iterator[None]:
    try:
        yield
    except UniqueViolation as taken:
        raise DuplicateError(
            f"Another {doc.doctype} has this {', '.join(taken.columns)}.", field=taken.columns[0]
        ) from None
