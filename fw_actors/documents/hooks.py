"""The hooks of a DocType's class: called by name with the handle (interface §4)."""

from __future__ import annotations

from collections.abc import Callable

from fw_actors.documents.document import DocType
from fw_actors.documents.handle import Fw

AFTER_COMMIT = "after_commit"

NoteDefect = Callable[[str, BaseException, str], None]
"""Takes what failed (`Sales Order.after_commit`), the exception, and the request's id."""


def run_hook(fw: Fw, doc: DocType, name: str) -> None:
    """Call a hook where the class has one; what it raises undoes the writer's transaction.

    One that would end the process fails as any defect: the service belongs to others, too.
    """
    if name not in doc.meta.hooks:
        return
    try:
        getattr(type(doc), name)(doc, fw)
    except Exception:
        raise
    except BaseException as end:  # SystemExit, KeyboardInterrupt, GeneratorExit
        raise RuntimeError(f"{doc.doctype}.{name} would have ended the process") from end


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
