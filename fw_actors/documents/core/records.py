"""The DocTypes of records: Audit Event, Email Delivery, Error Log, Version."""

from __future__ import annotations

from fw_actors.documents.document import DocType
from fw_actors.documents.fields import Data, Int, Select, Text
from fw_actors.documents.special_fields import JSON, Datetime


class AuditEvent(DocType, name="Audit Event", naming="random", read_only=True):
    """Written by the service alone; `detail` never holds a payload or a secret."""

    # Refusals of one actor are counted by the minute.
    index_together = (("action", "actor", "creation"),)

    action = Data()
    target = Data()
    detail = JSON()
    actor = Data()
    request_id = Data()


STATES = ["Queued", "Retrying", "Sent", "Failed"]


class EmailDelivery(DocType, name="Email Delivery", naming="random", read_only=True):
    """Written by the service alone; holds no part of a message's text or link.

    `recipient` is empty until it is known whose account was meant.
    """

    recipient = Data()
    template = Data()
    subject = Data(length=300)
    status = Select(options=STATES)
    attempts = Int(default=0)
    error = Data(length=500)
    sent = Datetime()


class ErrorLog(DocType, name="Error Log", naming="random", read_only=True):
    """Written by the service alone; `message` has no secret in it."""

    method = Data()
    message = Text()
    request_id = Data()


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
