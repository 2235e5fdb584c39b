"""The hooks of a DocType's class: called by name with the handle (interface §4)."""

from __future__ import annotations

from collections.abc import Callable

from fw_actors.documents.checks import check_name
from fw_actors.documents.document import DocType
from fw_actors.documents.handle import Fw
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
