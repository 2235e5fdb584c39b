"""All that comes before a document's row: types, hooks that may fill in, the fields' rules."""

from __future__ import annotations

from fw_actors.documents import rows
from fw_actors.documents.checks import check_values, normalize
from fw_actors.documents.document import DocType
from fw_actors.documents.handle import Documents, Fw
from fw_actors.documents.hooks import run_hook


def prepare(documents: Documents, fw: Fw, doc: DocType, stored: DocType | None) -> None:
    """Make a document ready to be written; `stored` is what it is written over.

    The rules hold for what `before_save` writes as well: nothing comes between it and the row.

    Raises: ValidationError, and what the hooks raise.
    """
    normalize(doc)
    if not doc.meta.hooks.isdisjoint(("before_validate", "validate")):
        run_hook(fw, doc, "before_validate")
        run_hook(fw, doc, "validate")
        _settle(doc, stored)
    check_values(documents, fw.tx, doc)
    if "before_save" in doc.meta.hooks:
        run_hook(fw, doc, "before_save")
        _settle(doc, stored)
        check_values(documents, fw.tx, doc)


def _settle(doc: DocType, stored: DocType | None) -> None:
    """Bring into form what hooks have written, rows that they gave back by name included."""
    if stored is not None:
        rows.adopt_children(stored, doc)
    normalize(doc)
