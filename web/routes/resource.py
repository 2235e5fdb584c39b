"""Routes of documents and of whitelisted functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from fw_actors.access.types import Caller
from fw_actors.actors.gateway import Gateway
from fw_actors.documents import rest
from fw_actors.documents.functions import Whitelisted
from fw_actors.errors import BadRequestError, NotFoundError, PermissionDeniedError
from web.exchange import Exchange
from web.json_input import MAX_INTEGER, Texts, read_argument, read_object, read_struct
from web.operations import BodyRule, Operation, Path
from web.response import Answer, answer_json, encode
from web.response_schemas import DocumentAnswer, Done, ListAnswer
from web.routes.operations import NO_ARGUMENTS

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw


# Only the DocType knows its Text and JSON fields; it refuses tab and line breaks in the others.
FIELDS: Final = Texts(every_line=True, free=("new_password",))
DOCUMENT: Final = BodyRule(partial(read_object, texts=FIELDS))
LISTING: Final = frozenset({"filters", "fields", "order_by", "limit", "start"})
LONGEST_NUMBER: Final = len(str(MAX_INTEGER))


class RenameRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a rename."""

    name: str


NEW_NAME: Final = BodyRule(partial(read_struct, kind=RenameRequest))


class ResourceRoutes:
    """The paths of this module, over one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def paths(self) -> list[Path]:
        """Return what is served."""
        whole = {
            "GET": Operation(self.listing, query=LISTING, answer=ListAnswer),
            "POST": Operation(self.insert, body=DOCUMENT, answer=DocumentAnswer, status=201),
        }
        one = {
            "GET": Operation(self.read, answer=DocumentAnswer),
            "PUT": Operation(self.save, body=DOCUMENT, answer=DocumentAnswer),
            "DELETE": Operation(self.delete, answer=Done),
        }
        rule = "/api/resource/<doctype>"
        return [
            Path(rule, whole),
            Path(rule + "/<name>", one),
            Path(rule + "/<name>/submit", {"POST": _moving(self.submit, NO_ARGUMENTS)}),
            Path(rule + "/<name>/cancel", {"POST": _moving(self.cancel, NO_ARGUMENTS)}),
            Path(rule + "/<name>/rename", {"POST": _moving(self.rename, NEW_NAME)}),
            Path(rule + "/<name>/export", {"GET": Operation(self.export)}),
        ]

    async def listing(self, exchange: Exchange) -> Answer:
        """List documents."""
        doctype, wanted = exchange.argument("doctype"), _listing(exchange.query)
        found = await self._gateway.read(
            exchange.known_caller,
            lambda fw: rest.list_documents(fw, doctype, wanted),
            exchange.request_id,
        )
        return answer_json(found)

    async def insert(self, exchange: Exchange) -> Answer:
        """Insert a document; 201."""
        doctype, caller = exchange.argument("doctype"), exchange.known_caller
        body = await self._gateway.prepare(caller, doctype, None, exchange.body)
        return await self._write(exchange, lambda fw: rest.insert(fw, doctype, body), 201)

    async def read(self, exchange: Exchange) -> Answer:
        """Read a document."""
        doctype, name = _place(exchange)
        document = await self._gateway.read(
            exchange.known_caller,
            lambda fw: rest.read(fw, doctype, name),
            exchange.request_id,
        )
        return answer_json({"data": document})

    async def save(self, exchange: Exchange) -> Answer:
        """Save the changed fields of a document."""
        doctype, name = _place(exchange)
        body = await self._gateway.prepare(exchange.known_caller, doctype, name, exchange.body)
        return await self._write(exchange, lambda fw: rest.save(fw, doctype, name, body))

    async def delete(self, exchange: Exchange) -> Answer:
        """Delete a document."""
        doctype, name = _place(exchange)
        gone = await self._gateway.write(
            exchange.known_caller,
            lambda fw: rest.delete(fw, doctype, name),
            exchange.request_id,
        )
        return answer_json(gone)

    async def submit(self, exchange: Exchange) -> Answer:
        """Submit a draft."""
        doctype, name = _place(exchange)
        return await self._write(exchange, lambda fw: rest.submit(fw, doctype, name))

    async def cancel(self, exchange: Exchange) -> Answer:
        """Cancel a submitted document."""
        doctype, name = _place(exchange)
        return await self._write(exchange, lambda fw: rest.cancel(fw, doctype, name))

    async def rename(self, exchange: Exchange) -> Answer:
        """Give a document another name."""
        doctype, name = _place(exchange)
        body: RenameRequest = exchange.body
        return await self._write(
            exchange, lambda fw: rest.rename(fw, doctype, name, {"name": body.name})
        )

    async def export(self, exchange: Exchange) -> Answer:
        """Hand out a document as a file."""
        doctype, name = _place(exchange)
        document = await self._gateway.read(
            exchange.known_caller,
            lambda fw: rest.export(fw, doctype, name),
            exchange.request_id,
        )
        return answer_json(document, 200, ("Content-Disposition", _attachment(doctype, name)))

    async def _write(
        self, exchange: Exchange, write: Callable[[Fw], dict[str, Any]], status: int = 200
    ) -> Answer:
        """Write a document and show it. It is encoded inside the transaction, so that what a hook
        has put on it and JSON can't hold undoes the write."""
        body = await self._gateway.write(
            exchange.known_caller, lambda fw: encode({"data": write(fw)}), exchange.request_id
        )
        return Answer(body, status)


def _moving(handle: Callable[[Exchange], Awaitable[Answer]], body: BodyRule) -> Operation:
    return Operation(handle, body=body, answer=DocumentAnswer)


def _attachment(doctype: str, name: str) -> str:
    """Return the header's value; a name of any characters is encoded as RFC 8187 says."""
    return f"attachment; filename*=UTF-8''{quote(f'{doctype} {name}.json', safe='')}"


def _place(exchange: Exchange) -> tuple[str, str]:
    return exchange.argument("doctype"), exchange.argument("name")


def _listing(query: Any) -> dict[str, Any]:
    """Return the query's parameters in their types. Raises: BadRequestError naming one."""
    wanted: dict[str, Any] = {}
    for name, text in query.items():
        if name in ("filters", "fields"):
            wanted[name] = read_argument(text, name)
        elif name == "order_by":
            wanted[name] = text
        elif text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER:
            wanted[name] = int(text)
        else:
            raise BadRequestError(f"{name} is a whole number.", field=name)
    return wanted


ADMINISTRATOR_ROLE: Final = "System Manager"


class MethodRoutes:
    """The paths of this module, over one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def paths(self) -> list[Path]:
        """Return what is served."""
        arguments = BodyRule(partial(read_object, texts=Texts(every_line=True)), may_be_absent=True)
        return [
            Path(
                "/api/method/<path>",
                {"POST": Operation(self.call, body=arguments)},
                find=self._find,
            ),
        ]

    async def call(self, exchange: Exchange) -> Answer:
        """Run an app's function in a write transaction; the body is its keyword arguments."""
        function = self._find(exchange)
        arguments: dict[str, Any] = exchange.body
        function.judge(arguments)
        _require_role(exchange.known_caller, function)

        def run(fw: Fw) -> bytes:
            # Encoded inside, so that a value that is no JSON undoes what the function wrote.
            return encode(function(fw, **arguments))

        return Answer(await self._gateway.write(exchange.known_caller, run, exchange.request_id))

    def _find(self, exchange: Exchange) -> Whitelisted:
        function = self._gateway.functions.get(exchange.argument("path"))
        if function is None:
            raise NotFoundError("There is nothing under this path.")
        return function


def _require_role(caller: Caller, function: Whitelisted) -> None:
    if function.roles and not caller.roles & {ADMINISTRATOR_ROLE, *function.roles}:
        raise PermissionDeniedError
