"""Pages of the desk: home, lists, documents, forms. They only read; scripts call the API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fw_actors.actors.gateway import Gateway
from fw_actors.documents import permissions, rest
from fw_actors.documents.doctype import Meta
from fw_actors.errors import BadRequestError, PermissionDeniedError
from fw_actors.rules.findings import ServiceState
from web.exchange import Exchange
from web.operations import Operation, Route
from web.pages.accounts import account_view, state_conditions, with_account_states
from web.pages.document_extras import DOCUMENT_VIEWS, PLAIN, DocumentView
from web.pages.find import MAX_SEARCHED_DOCUMENTS, SearchHits, find
from web.pages.form import editable, inputs, sections
from web.pages.framing import FramedPages
from web.pages.history import history
from web.pages.links import destinations
from web.pages.listing import ListCell, Listing, badge, listing, shortened
from web.pages.rendering import (
    FIND,
    PageFrame,
    Rendering,
    list_path,
    new_path,
    page_frame,
    redirect,
)
from web.pages.webhooks import (
    DELIVERY,
    WEBHOOK,
    attention,
    webhook_view,
    with_names,
    with_states,
)
from web.pages.wording import DOCSTATUS, titles_of
from web.response import Response

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

T = TypeVar("T")
USER: Final = "User"
ListView = Callable[["Fw", Listing, ServiceState], Listing]
LIST_VIEWS: Final[Mapping[str, ListView]] = {WEBHOOK: with_states, DELIVERY: with_names}
"""Functions that complete the lists of built-in DocTypes."""


@dataclass(frozen=True)
class BulkAction:
    """An action on the selected rows; `name` identifies it in list.js."""

    name: str
    label: str
    danger: bool = False


BULK_ACTIONS: Final[Mapping[str, tuple[BulkAction, ...]]] = {
    WEBHOOK: (BulkAction("pause", "Pause"), BulkAction("resume", "Resume")),
    DELIVERY: (
        BulkAction("replay", "Replay"),
        BulkAction("cancel", "Cancel", danger=True),
        BulkAction("erase", "Erase", danger=True),
    ),
    USER: (BulkAction("unlock", "Unlock"), BulkAction("end", "End sessions of", danger=True)),
}
"""For System Managers without access scopes."""


@dataclass(frozen=True)
class AllowedActions:
    """The actions that the user may do with a document now."""

    save: bool
    submit: bool
    cancel: bool
    delete: bool
    rename: bool
    export: bool


class DeskPages(FramedPages):
    """The pages of the desk, within the frame."""

    def __init__(self, gateway: Gateway, rendering: Rendering) -> None:
        super().__init__(gateway, rendering)
        states = gateway.account_states
        self._document_views = {
            **DOCUMENT_VIEWS,
            USER: DocumentView(
                "user.html", lambda fw, values, service: account_view(fw, states, values["name"])
            ),
        }

    def routes(self) -> list[Route]:
        """Return the routes."""
        operations = {
            "/app": Operation(self.home),
            FIND: Operation(self.find, query=frozenset({"q"})),
            "/app/<doctype>": Operation(self.list, query=None),
            "/app/<doctype>/<name>": Operation(self.document),
            "/app/Webhook/<name>/recent": Operation(self.recent),
            "/new/<doctype>": Operation(self.new),
        }
        return self._routes(operations)

    async def home(self, exchange: Exchange) -> Response:
        """Show conditions that need attention, and all DocTypes that the user may list."""
        service = replace(
            await self._gateway.service_state(),
            stale_webhooks=await self._gateway.stale_webhooks(),
        )
        return await self._page(
            exchange, "home.html", "", lambda fw: {"attention": attention(fw, service)}
        )

    async def find(self, exchange: Exchange) -> Response:
        """Redirect to the document with this id; without one show the documents that contain the
        text."""
        text = exchange.query.get("q", "")

        def both(fw: Fw) -> tuple[SearchHits, PageFrame]:
            return find(fw, text), page_frame(fw, "")

        hits, frame = await self._gateway.read(exchange.known_caller, both, exchange.request_id)
        if hits.only is not None:
            return redirect(hits.only.path)
        return self._rendering.page(
            "find.html", frame=frame, found=hits, text=text, most_searched=MAX_SEARCHED_DOCUMENTS
        )

    async def list(self, exchange: Exchange) -> Response:
        """Show a page of a DocType's list."""
        doctype, query = exchange.argument("doctype"), exchange.query
        complete, states = LIST_VIEWS.get(doctype), self._gateway.account_states
        service = ServiceState(running=True)
        if doctype == WEBHOOK:
            service = await self._gateway.service_state()

        def view(fw: Fw) -> dict[str, Any]:
            conditions = state_conditions(fw, states, doctype, query)
            page = listing(fw, doctype, query, conditions)
            if doctype == USER:
                page = with_account_states(fw, page, states, query)
            elif complete is not None:
                page = complete(fw, page, service)
            acts = BULK_ACTIONS.get(doctype, ()) if fw.rights.administers else ()
            return {"list": page, "acts": acts}

        return await self._page(exchange, "list.html", doctype, view)

    async def recent(self, exchange: Exchange) -> Response:
        """Show the part of a Webhook's page that is reloaded periodically."""
        name, service = exchange.argument("name"), await self._gateway.service_state()

        def view(fw: Fw) -> dict[str, Any]:
            values = rest.read(fw, WEBHOOK, name)
            return {"values": values, **webhook_view(fw, values, service)}

        context = await self._gateway.read(exchange.known_caller, view, exchange.request_id)
        return self._rendering.page("webhook_part.html", **context)

    async def document(self, exchange: Exchange) -> Response:
        """Show a document's form."""
        doctype, name = exchange.argument("doctype"), exchange.argument("name")
        special = self._document_views.get(doctype, PLAIN)
        service = ServiceState(running=True)
        if special.asks_service:
            service = await self._gateway.service_state()

        def view(fw: Fw) -> dict[str, Any]:
            values = rest.read(fw, doctype, name)
            meta = fw.documents.registry.meta(doctype)
            return {
                **_form(fw, meta, values),
                "title": _title(meta, values),
                "state": _state(meta, values["docstatus"]),
                "actions": _allowed_actions(fw, meta, values),
                "history": history(fw, doctype, values),
                "values": values,
                **special.view(fw, values, service),
            }

        return await self._page(exchange, special.template, doctype, view)

    async def new(self, exchange: Exchange) -> Response:
        """Show the form for a new document."""
        doctype = exchange.argument("doctype")

        def view(fw: Fw) -> dict[str, Any]:
            meta = fw.documents.registry.meta(doctype)
            _require_makeable(fw, meta)
            return {
                **_form(fw, meta, None),
                "title": f"New {doctype}",
                "state": None,
                "actions": AllowedActions(True, False, False, False, False, False),
                "history": (),
                "values": None,
            }

        return await self._page(
            exchange, self._document_views.get(doctype, PLAIN).template, doctype, view
        )


def _require_makeable(fw: Fw, meta: Meta) -> None:
    """Raise for DocTypes without a form, as the JSON API does for a document."""
    if meta.child:
        raise BadRequestError(f"{meta.name} rows are part of their parent's document.")
    fw.rights.require_writable(meta)
    fw.rights.require(meta, "create")
    if meta.read_only:
        raise PermissionDeniedError(f"Only the service writes {meta.name} documents.")
    if meta.own_operations:
        raise PermissionDeniedError(f"New {meta.name} documents are created under My account.")


def _form(fw: Fw, meta: Meta, values: dict[str, Any] | None) -> dict[str, Any]:
    """Return the template's variables for the form."""
    fields = inputs(fw, meta, values)
    if values is not None:
        [paths] = destinations(fw, meta, [values], [each.name for each in fields])
        fields = tuple(replace(each, path=paths.get(each.name, "")) for each in fields)
    return {
        "doctype": meta.name,
        "list_path": list_path(meta.name),
        "new_path": new_path(meta.name),
        "named": values is None and meta.naming.kind == "given",
        "manages": fw.rights.administers,
        "sections": list(sections(fields)),
    }


def _allowed_actions(fw: Fw, meta: Meta, values: dict[str, Any]) -> AllowedActions:
    state = values["docstatus"]
    writable = not meta.read_only and permissions.leaves_writable(fw, meta, values)
    may = fw.rights.allows
    return AllowedActions(
        save=editable(fw, meta, values),
        submit=writable and meta.submittable and state == 0 and may(meta, "submit"),
        cancel=writable and state == 1 and may(meta, "cancel"),
        delete=writable and state != 1 and may(meta, "delete"),
        rename=writable and may(meta, "write") and not meta.own_operations,
        export=may(meta, "export"),
    )


def _state(meta: Meta, docstatus: int) -> ListCell | None:
    # Documents of a DocType that is no longer submittable may be submitted or cancelled.
    return badge(DOCSTATUS[docstatus]) if meta.submittable or docstatus else None


def _title(meta: Meta, values: dict[str, Any]) -> str:
    texts = (values.get(field) for field in (*titles_of(meta), "url", "event"))
    return shortened(str(next((text for text in texts if text), values["name"])))
