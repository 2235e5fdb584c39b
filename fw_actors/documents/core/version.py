"""What changed in a document, by whom, in which request. Source: interface §8, Documents."""

from __future__ import annotations

from fw_actors.documents.document import DocType
from fw_actors.documents.fields import Data
from fw_actors.documents.json_field import JSON


class Version(DocType, naming="random", read_only=True):
    """Written by the service alone: `owner` is who changed the document.

    `data` is `{"changed": {field: [old, new]}, "rows": [{"table", "row", "change", "changed"}]}`,
    where `change` is added, changed or removed. No secret is in it.
    """

    index_together = (("ref_doctype", "docname"),)

    ref_doctype = Data()
    docname = Data()
    data = JSON()
    request_id = Data()
