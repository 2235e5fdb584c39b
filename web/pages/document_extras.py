"""Additions to the pages of some built-in DocTypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fw_actors.rules.findings import ServiceState
from web.pages.delivery import delivery_view
from web.pages.history import changes_of
from web.pages.webhooks import webhook_view

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw


@dataclass(frozen=True)
class DocumentView:
    """A template that extends `document.html`, and its additional variables.

    `asks_service`: whether these depend on the health of receivers, which the Dispatcher knows.
    """

    template: str
    view: Callable[[Fw, Mapping[str, Any], ServiceState], dict[str, Any]]
    asks_service: bool = False


def _nothing(fw: Fw, values: Mapping[str, Any], service: ServiceState) -> dict[str, Any]:
    return {}


def _version_view(fw: Fw, values: Mapping[str, Any], service: ServiceState) -> dict[str, Any]:
    meta = fw.documents.registry.metas.get(values["ref_doctype"])
    return {"changes": () if meta is None else changes_of(values["data"], meta)}


DOCUMENT_VIEWS: Final[Mapping[str, DocumentView]] = {
    "Webhook": DocumentView("webhook.html", webhook_view, asks_service=True),
    "Webhook Delivery": DocumentView("delivery.html", delivery_view, asks_service=True),
    "Version": DocumentView("version.html", _version_view),
}
PLAIN: Final = DocumentView("document.html", _nothing)
