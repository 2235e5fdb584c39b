"""What was done, or tried, that has to be accounted for. Source: spec, Audit events."""

from __future__ import annotations

from fw_actors.documents.document import DocType
from fw_actors.documents.fields import Data
from fw_actors.documents.json_field import JSON


class AuditEvent(DocType, name="Audit Event", naming="random", read_only=True):
    """Written by the service alone; `detail` never holds a payload or a secret."""

    # Refusals of one actor are counted by the minute.
    index_together = (("action", "actor", "creation"),)

    action = Data()
    target = Data()
    detail = JSON()
    actor = Data()
    request_id = Data()
