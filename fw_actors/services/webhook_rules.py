"""What a Webhook must be before it is written. Source: spec, Webhook; interface §7, §8."""

from __future__ import annotations

from fw_actors.documents.core.webhook import CUSTOM, DOCUMENT
from fw_actors.documents.document import DocType
from fw_actors.documents.handle import Fw
from fw_actors.documents.observers import Observer
from fw_actors.documents.registry import Registry
from fw_actors.errors import ValidationError
from fw_actors.http import parse_target
from fw_actors.rules.event_names import (
    DOCUMENT_EVENTS,
    UnusableEventNameError,
    judge_event_name,
)
from fw_actors.rules.signing import UnusableSecretError, judge_secret
from fw_actors.services.events import UNWATCHABLE


class WebhookRules(Observer):
    """Observes Webhook documents."""

    def __init__(self, registry: Registry, *, development: bool) -> None:
        self._registry = registry
        self._development = development

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Refuse a Webhook that could not work. Raises: ValidationError naming the field."""
        if doc.doctype != "Webhook" or event == "on_trash":
            return
        values = doc.__dict__
        parse_target(values["url"], development=self._development)
        if values["event_type"] == DOCUMENT:
            self._judge_document(values)
        if values["event_type"] == CUSTOM:
            _judge_custom(values["custom_event"])
        if isinstance(values["secret"], str):
            _judge_written_secret(values["secret"])

    def _judge_document(self, values: dict[str, object]) -> None:
        doctype = values["webhook_doctype"]
        if not doctype:
            raise ValidationError("Say which DocType is watched.", field="webhook_doctype")
        meta = self._registry.metas.get(str(doctype))
        if meta is None:
            raise ValidationError(f"There is no DocType {doctype}.", field="webhook_doctype")
        if doctype in UNWATCHABLE:
            raise ValidationError(f"{doctype} can't be watched.", field="webhook_doctype")
        if meta.child:
            raise ValidationError(
                f"{doctype} is a child table; watch its parent.", field="webhook_doctype"
            )
        if not any(values[event] for event in DOCUMENT_EVENTS):
            raise ValidationError("Tick at least one of the on_… events.", field="on_insert")


def _judge_custom(event: object) -> None:
    if not event:
        raise ValidationError("Say which custom event is wanted.", field="custom_event")
    try:
        judge_event_name(str(event))
    except UnusableEventNameError as error:
        raise ValidationError(str(error), field="custom_event") from None


def _judge_written_secret(secret: str) -> None:
    try:
        judge_secret(secret)
    except UnusableSecretError as error:
        raise ValidationError(str(error), field="secret") from None
