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

    Without an order of the caller's the list is read by names, each page after the last name of the
    one before: what comes and goes meanwhile makes no document be left out or come twice. With
    one, pages are counted, and it may.
    """

    doctype: str
    filters: Filters
    fields: tuple[str, ...] | None
    order_by: str | None
    limit: int
    last_name: str | None = None
    start: int = 0

    def call(self) -> Call[DocumentPage]:
        """The request of the next page."""
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
        """The row with the fields that were asked for."""
        if self.fields is None or _NAME in self.fields:
            return row
        return {key: value for key, value in row.items() if key != _NAME}

    def after(self, page: DocumentPage) -> ListPosition | None:
        """The position after a page; None at the end of the list."""
        if len(page.rows) < self.limit:
            return None
        if self.order_by is not None:
            return replace(self, start=self.start + len(page.rows))
        return replace(self, last_name=page.rows[-1][_NAME])

    def after_refusal(self, refusal: Invalid) -> ListPosition:
        """The same position with half the rows, where the service says that they are too large.

        Raises: the refusal, if that isn't it, or a single row is too large.
        """
        if refusal.field != "limit" or self.limit == 1:
            raise refusal
        return replace(self, limit=self.limit // 2)
