"""Iterating over a list by pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fw_client.calls import Filters, list_documents, triples
from fw_client.errors import Invalid
from fw_client.models import Document, DocumentPage
from fw_client.wire import Call

_NAME: Final = "name"


@dataclass(frozen=True, slots=True)
class ListPosition:
    """The position in a list from which the next page is read.

    Without an order from the caller the list is read by name, each page after the last name of the
    previous one, so that no document is skipped or repeated when others are inserted or deleted
    meanwhile. With an order, pages are read by their offset, and that may happen.
    """

    doctype: str
    filters: Filters
    fields: tuple[str, ...] | None
    order_by: str | None
    limit: int
    last_name: str | None = None
    start: int = 0

    def call(self) -> Call[DocumentPage]:
        """Return the request of the next page."""
        conditions: list[Sequence[Any]] = triples(self.filters)
        if self.last_name is not None:
            conditions.append([_NAME, ">", self.last_name])
        order = self.order_by or f"{_NAME} asc"
        return list_documents(
            self.doctype, conditions, self._wanted(), order, self.limit, self.start
        )

    def _wanted(self) -> tuple[str, ...] | None:
        if self.fields is None or _NAME in self.fields:
            return self.fields
        return (*self.fields, _NAME)

    def shown(self, row: Document) -> Document:
        """Return the row with only the requested fields."""
        if self.fields is None or _NAME in self.fields:
            return row
        return {key: value for key, value in row.items() if key != _NAME}

    def after(self, page: DocumentPage) -> ListPosition | None:
        """Return the position after a page; None at the end of the list."""
        if len(page.rows) < self.limit:
            return None
        if self.order_by is not None:
            return replace(self, start=self.start + len(page.rows))
        return replace(self, last_name=page.rows[-1][_NAME])

    def after_refusal(self, refusal: Invalid) -> ListPosition:
        """Return the same position with half the rows, if the service refused them as too large.

        Raises: the refusal, if it has another reason, or if a single row is too large.
        """
        if refusal.field != "limit" or self.limit == 1:
            raise refusal
        return replace(self, limit=self.limit // 2)
