"""Unhandled errors, each with the request in which it happened. Source: interface §8."""

from __future__ import annotations

from fw_actors.documents.document import DocType
from fw_actors.documents.fields import Data, Text


class ErrorLog(DocType, name="Error Log", naming="random", read_only=True):
    """Written by the service alone; `message` has no secret in it."""

    method = Data()
    message = Text()
    request_id = Data()
