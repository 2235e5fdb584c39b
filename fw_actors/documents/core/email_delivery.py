"""Whom a message went to, and whether it arrived. Source: spec, Email Delivery; interface §8."""

from __future__ import annotations

from fw_actors.documents.document import DocType
from fw_actors.documents.fields import Data, Int, Select
from fw_actors.documents.time_fields import Datetime

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
