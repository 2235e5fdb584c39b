"""Calls hooks and observers of documents; both must be plain functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fw_actors.documents.document import DocType
from fw_actors.documents.handle import Fw
from fw_actors.documents.validation import check_name
from fw_actors.rules.plain_call import call_plainly

AFTER_COMMIT = "after_commit"

NoteDefect = Callable[[str, BaseException, str], None]
"""Takes what failed (`Sales Order.after_commit`), the exception, and the request's id."""


def run_hook(fw: Fw, doc: DocType, name: str) -> None:
    """Call a hook where the class has one; what it raises undoes the writer's transaction.

    Raises: ValidationError where it has written the name of a document that is stored: the verb
        would go on with another document's rows.
    """
    if name not in doc.meta.hooks:
        return
    call_plainly(f"{doc.meta.name}.{name}", getattr(type(doc), name), doc, fw)
    check_name(doc)


def run_after_commit(fw: Fw, doc: DocType, note_defect: NoteDefect) -> None:
    """Have the hook `after_commit`, which the class has, called once the change is durable.

    The handle is dead then, and it can undo nothing any more: what it raises is noted as a defect.
    """

    def call() -> None:
        try:
            run_hook(fw, doc, AFTER_COMMIT)
        except Exception as error:
            note_defect(f"{doc.doctype}.{AFTER_COMMIT}", error, fw.request_id)
            raise  # to the store, which logs it

    fw.tx.after_commit(call)


class Observer:
    """Sees each change of a document in the writer's transaction; an exception undoes the change.

    Override the methods that are needed. `event` is one of on_insert, on_update, on_submit,
    on_cancel, on_trash (B-50 to B-54), or db_set: a field was written directly, of which no
    receiver learns, but for which rules hold as well (B-58).
    """

    doctypes: frozenset[str] | None = None
    """The DocTypes whose documents are observed; None: all."""

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Called before the row is written, for rules over the records of an account."""

    def deleting(self, fw: Fw, doc: DocType) -> None:
        """Called after the hook on_trash, while the rows still exist."""

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """Called after the row is written or deleted and the hooks have run."""

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """Called after a document and the links to it have the new name; no event is sent."""


class DocTypeObservers:
    """The observers of one DocType, by method; only overridden methods are called."""

    def __init__(self, observers: Sequence[Observer], doctype: str) -> None:
        observing = [o for o in observers if o.doctypes is None or doctype in o.doctypes]
        self._changing = _overridden(observing, "changing")
        self._deleting = _overridden(observing, "deleting")
        self._changed = _overridden(observing, "changed")
        self._renamed = _overridden(observing, "renamed")

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Call `Observer.changing` of each, in order."""
        for method in self._changing:
            method(fw, event, doc)

    def deleting(self, fw: Fw, doc: DocType) -> None:
        """Call `Observer.deleting` of each, in order."""
        for method in self._deleting:
            method(fw, doc)

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """Call `Observer.changed` of each, in order."""
        for method in self._changed:
            method(fw, event, doc)

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """Call `Observer.renamed` of each, in order."""
        for method in self._renamed:
            method(fw, doctype, old, new)


def _overridden(observers: Sequence[Observer], name: str) -> tuple[Callable[..., None], ...]:
    nothing = getattr(Observer, name)
    return tuple(getattr(o, name) for o in observers if getattr(type(o), name) is not nothing)
