"""Who may do what with a document at this moment: role, access scopes, and the DocType itself."""

from __future__ import annotations

from fw_actors.documents import scopes
from fw_actors.documents.doctype import Meta
from fw_actors.documents.document import DocType
from fw_actors.documents.handle import Fw
from fw_actors.errors import PermissionDeniedError, ValidationError


def require_readable(fw: Fw, meta: Meta, ignore_permissions: bool) -> None:
    """Refuse a DocType that the user may not read. Raises: PermissionDeniedError."""
    fw.rights.require_reach(meta)
    if not ignore_permissions:
        fw.rights.require(meta, "read")


def require_action(fw: Fw, doc: DocType, action: str, ignore_permissions: bool) -> None:
    """Refuse a verb on a document.

    Raises: PermissionDeniedError; ValidationError for rows, which have no life of their own.
    """
    meta = doc.meta
    fw.rights.require_writable(meta)
    if meta.child:
        raise ValidationError(f"{meta.name} rows are saved with their parent.")
    if meta.read_only:
        raise PermissionDeniedError(f"{meta.name} is written by the service alone.")
    if not ignore_permissions:
        fw.rights.require(meta, action)
        if not doc.is_new():
            fw.rights.refuse_own_record(meta, doc.name)


def require_new_name(fw: Fw, doc: DocType, ignore_permissions: bool) -> None:
    """Refuse a new name that is, by the field that names the document, a link beyond the scopes."""
    naming = doc.meta.naming
    if naming.kind == "field" and not ignore_permissions:
        scopes.require_link_within(fw.rights.scopes, doc.meta.fields[naming.field], doc.name)


def require_scope(fw: Fw, doc: DocType, ignore_permissions: bool) -> None:
    """Refuse a document, as it is stored or as it will be, beyond the user's access scopes."""
    if not ignore_permissions:
        scopes.require_within(fw.rights, doc)
