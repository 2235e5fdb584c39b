"""Lists as CSV files: the rows of the list at the same address, with all fields that fit a cell.

A cell that looks like a formula begins with an apostrophe (O-305), so that text from users of a
site does not run as a formula on the computer where the file is opened. So does text after a
semicolon: where the decimal separator is a comma, a spreadsheet splits the lines of a file there.
It then takes a quotation mark after the semicolon for the end of a quoted empty text, so that the
cell `;"=1+1` is a formula too.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from fw_actors.documents.doctype import Meta
from fw_actors.documents.query import MAX_COUNTED_ROWS, list_page
from fw_actors.rules.safe_output import is_secret
from web.exchange import Exchange
from web.operations import Operation, Route
from web.pages.accounts import state_conditions
from web.pages.framing import FramedPages
from web.pages.listing import query_filters, query_order, visible_fields
from web.pages.wording import listable
from web.response import Response

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

KIND: Final = "text/csv; charset=utf-8"
_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_STANDARD: Final = ("name", "creation", "modified", "modified_by", "owner")


class ExportPages(FramedPages):
    """The export of a list as CSV."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        return self._routes({"/export/<doctype>": Operation(self.export, query=None)})

    async def export(self, exchange: Exchange) -> Response:
        """Send the documents of a list as CSV: the first 10,000 in its order, of one moment.

        The file is made where the rows are read: the rows take several times as much memory, which
        must not be held until a slow client has read them.
        """
        doctype, query = exchange.argument("doctype"), exchange.query

        def read(fw: Fw) -> tuple[bytes, bool]:
            meta = fw.documents.registry.meta(doctype)
            fw.rights.require_in_scope(meta)
            fw.rights.require(meta, "list")
            fw.rights.require(meta, "export")
            columns = columns_of(fw, meta)
            page = list_page(
                fw,
                doctype,
                query_filters(fw, meta, query),
                columns,
                order_by=query_order(query),
                limit=MAX_COUNTED_ROWS,
                start=0,
                further_conditions=state_conditions(
                    fw, self._gateway.account_states, doctype, query
                ),
            )
            rows = ([row[name] for name in columns] for row in page.rows)
            return csv_bytes(chain([columns], rows)), page.more

        content, more = await self._gateway.read(exchange.known_caller, read, exchange.request_id)
        name = f"{doctype} (first {MAX_COUNTED_ROWS}).csv" if more else f"{doctype}.csv"
        disposition = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
        headers = (("Content-Disposition", disposition),)
        return Response(content, content_type=KIND, headers=headers)


def columns_of(fw: Fw, meta: Meta) -> tuple[str, ...]:
    """Return the fields of a file: the standard fields, then all that fit a cell and are not named
    like a secret, as in the export of a document."""
    state = ("docstatus",) if meta.submittable else ()
    fields = [
        field.name
        for field in visible_fields(fw, meta).values()
        if listable(field) and field.stored and not is_secret(field.name, field.type)
    ]
    return (*_STANDARD, *state, *fields)


def csv_bytes(rows: Iterable[Iterable[Any]]) -> bytes:
    """Return rows as CSV (RFC 4180) in UTF-8."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([safe_cell(value) for value in row] for row in rows)
    return text.getvalue().encode()


def safe_cell(value: Any) -> Any:
    """Return a value that no spreadsheet interprets as a formula; numbers are unchanged."""
    if isinstance(value, str):
        first, *others = value.split(";")
        return ";".join((_safe_text(first, " "), *(_safe_text(text, ' "') for text in others)))
    return "" if value is None else value


def _safe_text(text: str, ignored: str) -> str:
    """Return a text with an apostrophe if it is a formula behind the `ignored` characters."""
    return f"'{text}" if text.lstrip(ignored).startswith(_FORMULAS) else text
