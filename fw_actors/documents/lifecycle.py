"""Inserts, saves, submits, cancels and deletes a document, each in a savepoint.

Each verb runs in a savepoint (D-199): permission, hooks in their order (D-140), the rows,
then the observers; an exception in any of them undoes everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from fw_actors.documents import permissions, rows
from fw_actors.documents.doctype import Meta
from fw_actors.documents.fields import iso
from fw_actors.documents.handle import DocType, Fw
from fw_actors.documents.hooks import (
    AFTER_COMMIT,
    DB_SET,
    DocTypeObservers,
    Observer,
    RecordDefect,
    check_name,
    run_after_commit,
    run_hook,
)
from fw_actors.documents.naming import name_for
from fw_actors.documents.query import Lists
from fw_actors.documents.registry import Registry
from fw_actors.documents.rows import rename
from fw_actors.documents.validation import (
    changes_once_submitted,
    check_links,
    check_standard,
    check_value,
    check_values,
    keep_service_columns,
    merge_rows,
    normalize,
    prepare,
)
from fw_actors.documents.vault import VaultCipher
from fw_actors.errors import (
    ConflictError,
    DuplicateError,
    NotFoundError,
    PermissionDeniedError,
    ValidationError,
)
from fw_actors.runtime import Entropy
from fw_actors.store import UniqueViolation


@contextmanager
def atomic(fw: Fw, doc: DocType, *, savepoint: bool = True) -> Iterator[None]:
    """Open a savepoint that also undoes a verb's changes on the object.

    `savepoint`: False if the transaction ends after a refusal, so that its rollback undoes the
    rows.
    """
    before = dict(doc.__dict__)
    tables: list[_TableState] = []
    if savepoint:
        tables = [_table_state(before.get(table.name)) for table in doc.meta.tables]
    try:
        with fw.tx.savepoint() if savepoint else nullcontext():
            yield
    except BaseException:
        _reset(doc, before)
        for table_rows, states in tables:
            table_rows[:] = [row for row, _ in states]
            for row, state in states:
                if isinstance(row, DocType):
                    _reset(row, state)
        raise


_TableState = tuple[list[Any], list[tuple[Any, dict[str, Any]]]]


def _table_state(value: object) -> _TableState:
    """Return the list of a table field, and each row in it with a copy of its attributes."""
    table_rows = value if isinstance(value, list) else []
    return table_rows, [(row, dict(getattr(row, "__dict__", ()))) for row in table_rows]


def _reset(doc: DocType, state: dict[str, Any]) -> None:
    doc.__dict__.clear()
    doc.__dict__.update(state)


@contextmanager
def duplicates_refused(doc: DocType) -> Iterator[None]:
    """Translate a violation of a unique field. Raises: DuplicateError naming the field."""
    try:
        yield
    except UniqueViolation as taken:
        raise DuplicateError(
            f"Another {doc.doctype} has this {', '.join(taken.columns)}.", field=taken.columns[0]
        ) from None


def authorize_read(fw: Fw, meta: Meta, ignore_permissions: bool, name: object) -> None:
    """Refuse a document that the user may not read, before it is looked up.

    Raises: PermissionDeniedError.
    """
    fw.rights.require_in_scope(meta)
    if not ignore_permissions:
        fw.rights.require(meta, "read")
        fw.rights.require_document(meta, name)


def authorize_action(fw: Fw, doc: DocType, action: str, ignore_permissions: bool) -> None:
    """Refuse a verb on a document.

    Raises: PermissionDeniedError; ValidationError for child rows, which are saved with their
        parent.
    """
    meta = doc.meta
    fw.rights.require_writable(meta)
    if meta.child:
        raise ValidationError(f"{meta.name} rows must be saved with their parent.")
    if meta.read_only:
        raise PermissionDeniedError(f"{meta.name} may only be written by the service.")
    if not ignore_permissions:
        fw.rights.require(meta, action)
        if doc._stored is not None:
            fw.rights.refuse_own_record(meta, doc.name)


def authorize_new_name(fw: Fw, doc: DocType, name: str, ignore_permissions: bool) -> None:
    """Refuse a name from a Link field whose target lies outside the user's access scopes.

    Before the name is looked up: a taken one would tell that the target exists.
    """
    naming = doc.meta.naming
    if naming.kind == "field" and not ignore_permissions:
        permissions.require_link_within(fw.rights.scopes, doc.meta.fields[naming.field], name)


def authorize_scope(fw: Fw, doc: DocType, ignore_permissions: bool) -> None:
    """Refuse a document that is, or would be, outside the user's access scopes."""
    if not ignore_permissions:
        permissions.require_within(fw.rights, doc)


DRAFT, SUBMITTED, CANCELLED = 0, 1, 2
_STATES = ("a draft", "submitted", "cancelled")


class Documents:
    """Carries out the verbs of documents for one site. Plain functions inside a transaction."""

    def __init__(
        self,
        registry: Registry,
        vault: VaultCipher,
        entropy: Entropy,
        observers: Sequence[Observer],
        record_defect: RecordDefect,
    ) -> None:
        """`record_defect` is called on trio's thread for a hook that failed after its commit."""
        self.registry = registry
        self.vault = vault
        self.entropy = entropy
        self.lists: Lists = Lists()
        self._observers = {name: DocTypeObservers(observers, name) for name in registry.metas}
        self._record_defect = record_defect

    def read(self, fw: Fw, doctype: str, name: str, ignore_permissions: bool) -> DocType:
        """Return a document. Raises: NotFoundError, PermissionDeniedError."""
        authorize_read(fw, self.registry.meta(doctype), ignore_permissions, name)
        doc = rows.load(self, fw, doctype, name)
        authorize_scope(fw, doc, ignore_permissions)
        return doc

    def may_read(self, fw: Fw, doctype: str, name: str) -> bool:
        """Return whether the user may read a stored document, and so whether an error may name
        it."""
        try:
            self.read(fw, doctype, name, ignore_permissions=False)
        except PermissionDeniedError:
            return False
        except NotFoundError:  # rows of a document or a DocType that is gone
            return fw.rights.administers
        return True

    def insert(
        self, fw: Fw, doc: DocType, ignore_permissions: bool, *, savepoint: bool = True
    ) -> None:
        """Write a new document and its child rows; `savepoint`: as in `atomic`."""
        with atomic(fw, doc, savepoint=savepoint):
            authorize_action(fw, doc, "create", ignore_permissions)
            if doc._stored is not None:
                raise ConflictError(f"{doc.doctype} {doc.name} has already been inserted.")
            prepare(self, fw, doc, None, ignore_permissions)
            if doc._stored is not None:  # a hook has inserted it
                raise ConflictError(f"{doc.doctype} {doc.name} has already been inserted.")
            is_taken = partial(self._is_taken, fw, doc.meta, ignore_permissions)
            doc.name = name_for(doc, fw.tx, self.entropy, is_taken)
            doc.owner = doc.modified_by = fw.rights.user
            doc.creation = doc.modified = iso(fw.tx.now)
            doc.docstatus = DRAFT
            authorize_scope(fw, doc, ignore_permissions)
            permissions.require_write(fw, doc)
            self._write(fw, doc, "on_insert", lambda: rows.insert(self, fw.tx, doc))

    def _is_taken(self, fw: Fw, meta: Meta, ignore_permissions: bool, name: str) -> bool:
        if not ignore_permissions:
            fw.rights.require_document(meta, name)
        return self.registry.tables[meta.name].exists(fw.tx, name)

    def load_for_save(self, fw: Fw, doctype: str, name: str) -> tuple[DocType, DocType]:
        """Lock a document and return two copies for a `save` right after: one to modify, one as
        stored.

        Raises: NotFoundError, PermissionDeniedError.
        """
        authorize_read(fw, self.registry.meta(doctype), ignore_permissions=False, name=name)
        stored = rows.load(self, fw, doctype, name, lock=True)
        authorize_scope(fw, stored, ignore_permissions=False)
        return rows.clone(stored), stored

    def save(
        self, fw: Fw, doc: DocType, ignore_permissions: bool, stored: DocType | None = None
    ) -> None:
        """Write changes; in a submitted document only those of `allow_on_submit` fields.

        `stored`: the second copy from `load_for_save`, if nothing was written since and a refusal
        ends the transaction; without it the document is read again.
        """
        if doc._stored is None:
            return self.insert(fw, doc, ignore_permissions)
        with atomic(fw, doc, savepoint=stored is None):
            authorize_action(fw, doc, "write", ignore_permissions)
            if stored is None:
                stored = self._load_current(fw, doc, ignore_permissions)
            doc._before = stored
            if stored.docstatus == CANCELLED:
                raise ConflictError(f"{doc.doctype} {doc.name} is cancelled.")
            merge_rows(stored, doc)
            submitted = stored.docstatus == SUBMITTED
            if submitted:
                normalize(doc)
                if not changes_once_submitted(stored, doc):
                    return None  # without a change there is no event
            prepare(self, fw, doc, stored, ignore_permissions)
            stored = self._version_after_hooks(fw, doc, stored)
            if submitted:
                changes_once_submitted(stored, doc)  # hooks may change no more than callers
            check_standard(doc, stored)
            keep_service_columns(doc, stored)
            self._stamp(fw, doc, stored)
            authorize_scope(fw, doc, ignore_permissions)
            permissions.require_write(fw, doc)
            self._write(fw, doc, "on_update", lambda: rows.update(self, fw.tx, doc, stored))
        return None

    def submit(self, fw: Fw, doc: DocType, ignore_permissions: bool) -> None:
        """Make a draft final."""
        self._change_status(fw, doc, "submit", SUBMITTED, ignore_permissions)

    def cancel(self, fw: Fw, doc: DocType, ignore_permissions: bool) -> None:
        """Cancel a submitted document."""
        self._change_status(fw, doc, "cancel", CANCELLED, ignore_permissions)

    def delete(self, fw: Fw, doc: DocType, ignore_permissions: bool) -> None:
        """Delete a document and its child rows."""
        with atomic(fw, doc):
            authorize_action(fw, doc, "delete", ignore_permissions)
            self.registry.table(doc.doctype).lock_exclusive(fw.tx, str(doc.name))
            stored = self._load_current(fw, doc, ignore_permissions)
            if stored.docstatus == SUBMITTED:
                raise ConflictError(f"{doc.doctype} {doc.name} is submitted; cancel it first.")
            permissions.require_removal(fw, stored)
            rows.restore(doc, stored)  # unsaved changes of the object do not count
            observers = self._observers[doc.doctype]
            observers.changing(fw, "on_trash", doc)
            run_hook(fw, doc, "on_trash")
            check_links(self, fw.tx, doc)
            observers.deleting(fw, doc)
            rows.delete(self, fw.tx, doc)
            observers.changed(fw, "on_trash", doc)
            if AFTER_COMMIT in doc.meta.hooks:
                run_after_commit(fw, doc, self._record_defect)

    def rename(self, fw: Fw, doc: DocType, name: object, ignore_permissions: bool) -> None:
        """Rename a document and all references to it. Runs no hooks and records no events."""
        with atomic(fw, doc):
            authorize_action(fw, doc, "write", ignore_permissions)
            self.registry.table(doc.doctype).lock_exclusive(fw.tx, str(doc.name))
            stored = self._load_current(fw, doc, ignore_permissions)
            permissions.require_removal(fw, stored, name)
            old = str(doc.name)
            if name == old:
                return
            if not ignore_permissions:
                fw.rights.require_document(doc.meta, str(name))
            authorize_new_name(fw, doc, str(name), ignore_permissions)
            with duplicates_refused(doc):
                new = rename(self, fw.tx, doc, name, ignore_permissions)
            self._observers[doc.doctype].renamed(fw, doc.doctype, old, new)

    def db_set(self, fw: Fw, doc: DocType, name: str, value: Any, ignore_permissions: bool) -> None:
        """Write one column directly: no hooks and no events, but observers apply their rules.

        They check the stored document with the new value, not other changes on `doc`.
        `modified` changes, so that a save of an earlier read cannot write the old value back.
        """
        with atomic(fw, doc):
            authorize_action(fw, doc, "write", ignore_permissions)
            stored = self._load_locked(fw, doc)
            authorize_scope(fw, stored, ignore_permissions)
            written = rows.clone(stored)
            written._before = stored
            field = rows.assign(written, name, value)
            check_value(self, fw.tx, written, field, ignore_permissions)
            self._stamp(fw, written, stored)
            authorize_scope(fw, written, ignore_permissions)
            permissions.require_write(fw, written)
            observers = self._observers[doc.doctype]
            observers.changing(fw, DB_SET, written)
            with duplicates_refused(doc):
                rows.write_field(self, fw.tx, written, field)
            observers.changed(fw, DB_SET, written)
            doc.__dict__[name] = written.__dict__[name]
            doc._stored = {**(doc._stored or {}), name: (written._stored or {})[name]}
            if doc.modified == stored.modified:  # else it must stay too old to be saved
                doc.modified, doc.modified_by = written.modified, written.modified_by

    def _change_status(
        self, fw: Fw, doc: DocType, verb: str, status: int, ignore_permissions: bool
    ) -> None:
        with atomic(fw, doc):
            authorize_action(fw, doc, verb, ignore_permissions)
            stored = self._load_current(fw, doc, ignore_permissions)
            # Else a document of an earlier version of the app could not be deleted.
            if not doc.meta.submittable and (status, stored.docstatus) != (CANCELLED, SUBMITTED):
                raise ValidationError(f"{doc.doctype} is not a submittable DocType.")
            if stored.docstatus != status - 1:
                now, then = _STATES[stored.docstatus], _STATES[status]
                raise ConflictError(f"{doc.doctype} {doc.name} is {now}; it cannot be {then}.")
            merge_rows(stored, doc)
            if status == SUBMITTED:
                prepare(self, fw, doc, stored, ignore_permissions)
                stored = self._version_after_hooks(fw, doc, stored)
            elif changes_once_submitted(stored, doc):  # else its existence is enough
                normalize(doc)
                check_values(self, fw.tx, doc, ignore_permissions)
            check_standard(doc, stored)
            doc.docstatus = status
            self._stamp(fw, doc, stored)
            authorize_scope(fw, doc, ignore_permissions)
            self._write(fw, doc, f"on_{verb}", lambda: rows.update(self, fw.tx, doc, stored))

    def _write(self, fw: Fw, doc: DocType, event: str, write: Callable[[], None]) -> None:
        before, observers = doc._before, self._observers[doc.meta.name]
        observers.changing(fw, event, doc)
        with duplicates_refused(doc):
            write()
        run_hook(fw, doc, event)
        doc._before = before  # a hook may have saved the document once more
        observers.changed(fw, event, doc)
        if AFTER_COMMIT in doc.meta.hooks:
            run_after_commit(fw, doc, self._record_defect)

    def _stamp(self, fw: Fw, doc: DocType, stored: DocType) -> None:
        """Set `modified`, the version. It always increases, even within a millisecond or after the
        clock was set back.
        """
        # SQL may have written no time, or a value that is none.
        before = 0 if stored.modified is None else (stored._stored or {})["modified"]
        doc.modified, doc.modified_by = iso(max(fw.tx.now, before + 1)), fw.user

    def _load_current(self, fw: Fw, doc: DocType, ignore_permissions: bool) -> DocType:
        """Return the stored document, if it is the version from which `doc` was read.

        It is also kept as `doc._before`, for observers. Raises: ConflictError;
        PermissionDeniedError if it is outside the user's access scopes.
        """
        stored = self._load_locked(fw, doc)
        if doc.modified != stored.modified:
            raise changed_meanwhile(doc)
        authorize_scope(fw, stored, ignore_permissions)
        doc._before = stored
        return stored

    def _version_after_hooks(self, fw: Fw, doc: DocType, stored: DocType) -> DocType:
        """Return the version that hooks have written of `doc` itself (`db_set`, `save`), on which
        the write continues; `stored` if there is none.

        What they write through another object is no part of `doc`, so that the write is refused:
        it replaces `stored` only.
        """
        if doc.modified != stored.modified:
            written = self._load_locked(fw, doc)
            if (written.modified, written.docstatus) == (doc.modified, stored.docstatus):
                stored = written
        doc._before = stored  # a hook may have reloaded the document
        return stored

    def _load_locked(self, fw: Fw, doc: DocType) -> DocType:
        if doc.is_new():
            raise ConflictError(f"This {doc.doctype} has not been inserted yet.")
        check_name(doc)
        try:
            return rows.load(self, fw, doc.doctype, str(doc.name), lock=True)
        except NotFoundError:
            raise ConflictError(
                f"{doc.doctype} {doc.name} was deleted meanwhile.", reason="deleted"
            ) from None


def changed_meanwhile(doc: DocType) -> ConflictError:
    """Return the refusal of a change to a version that is not the stored one (D-120)."""
    return ConflictError(
        f"{doc.doctype} {doc.name} was changed meanwhile; read it again.", reason="changed"
    )
