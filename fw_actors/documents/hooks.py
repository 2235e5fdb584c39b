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
    call_plainly(f"{doc.doctype}.{name}", getattr(type(doc), name), doc, fw)
    check_name(doc)


def run_after_commit(fw: Fw, doc: DocType, note_defect: NoteDefect) -> None:
    """Have the hook `after_commit` called once the change is durable; the handle is dead then.

    It can undo nothing any more: what it raises is noted as a defect.
    """
    if AFTER_COMMIT not in doc.meta.hooks:
        return

    def call() -> None:
        try:
            run_hook(fw, doc, AFTER_COMMIT)
        except Exception as error:
            note_defect(f"{doc.doctype}.{AFTER_COMMIT}", error, fw.request_id)
            raise  # to the store, which logs it

    fw.tx.after_commit(call)


class Observer:
    """Is told of each change in the writer's transaction; whatever it raises undoes the change.

    Derive from it: what an observer has nothing to do with needs no method of its own. `event` is
    one of on_insert, on_update, on_submit, on_cancel, on_trash (B-50 to B-54), or db_set: a
    field was written directly, which no receiver is told, but rules hold for it too (B-58).
    """

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Called before the row is written: the place for rules over the account's records."""

    def deleting(self, fw: Fw, doc: DocType) -> None:
        """Called after the hook on_trash has run, while the rows are still there."""

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """Called after the row is written (deleted) and the controller's hooks have run."""

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """Called after a document and what links to it have the new name; no event."""


def overriding(observers: Sequence[Observer], verb: str) -> tuple[Callable[..., None], ...]:
    """Return the observers' own methods: what does nothing need not be told of every change."""
    nothing = getattr(Observer, verb)
    return tuple(getattr(o, verb) for o in observers if getattr(type(o), verb) is not nothing)


def tell(methods: Sequence[Callable[..., None]], fw: Fw, event: str, doc: DocType) -> None:
    """Call observers' methods `changing` or `changed`, in order."""
    for method in methods:
        method(fw, event, doc)
