"""Routes of documents and of the functions of apps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from fw_actors.access.passwords import FIELD as NEW_PASSWORD
from fw_actors.documents import rest
from fw_actors.documents.permissions import SYSTEM_MANAGER
from fw_actors.documents.registry import Whitelisted
from fw_actors.errors import BadRequestError, NotFoundError, PermissionDeniedError
from web.exchange import Exchange
from web.json_input import CharacterRules, printable, read_argument, read_object, read_struct
from web.operations import BodyRule, Operation, Route
from web.response import Response, encode, json_response
from web.response_schemas import DocumentResponse, ListResponse, OkResponse
from web.routes.operations import GatewayRoutes, whole_number

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

T = TypeVar("T")

# Only the DocType knows its Text and JSON fields; it rejects tab and line breaks in others.
FIELDS: Final = CharacterRules(every_line=True, free=(NEW_PASSWORD,))
DOCUMENT: Final = BodyRule(partial(read_object, texts=FIELDS))
LISTING: Final = frozenset({"filters", "fields", "order_by", "limit", "start"})


GivenVersion = Annotated[
    str | msgspec.UnsetType, msgspec.Meta(extra_json_schema={"format": "date-time"})
]


class VersionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a submit or a cancel: the version that was read, or nothing."""

    modified: GivenVersion = msgspec.UNSET


class RenameRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a rename."""

    name: str
    modified: GivenVersion = msgspec.UNSET


READ_VERSION: Final = BodyRule(partial(read_struct, kind=VersionRequest), optional=True)
NEW_NAME: Final = BodyRule(partial(read_struct, kind=RenameRequest))


def _require_no_members(body: bytes) -> None:
    """Refuse a DELETE with members in its body. A `modified` there must not be ignored: the delete
    would then be unconditional.
    """
    for key in read_object(body):
        raise BadRequestError(
            "A DELETE must not have a body; send modified as a query parameter.",
            field=printable(key),
        )


NO_MEMBERS: Final = BodyRule(_require_no_members, optional=True)


ACCESS_GRANTING: Final = frozenset({"API Key", "Role", "User", "User Permission", "Webhook"})
"""DocTypes whose documents give access that outlasts the session that wrote them (A-300)."""


class ResourceRoutes(GatewayRoutes):
    """The routes of documents: list, read, write, rename, export."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        whole = {
            "GET": Operation(self.listing, query=LISTING, response=ListResponse),
            "POST": Operation(self.insert, body=DOCUMENT, response=DocumentResponse, status=201),
        }
        one = {
            "GET": Operation(self.read, response=DocumentResponse),
            "PUT": Operation(self.save, body=DOCUMENT, response=DocumentResponse),
            "DELETE": Operation(
                self.delete, body=NO_MEMBERS, query=frozenset({"modified"}), response=OkResponse
            ),
        }
        rule = "/api/resource/<doctype>"
        return [
            Route(rule, whole),
            Route(rule + "/<name>", one),
            Route(rule + "/<name>/submit", {"POST": _transition(self.submit, READ_VERSION)}),
            Route(rule + "/<name>/cancel", {"POST": _transition(self.cancel, READ_VERSION)}),
            Route(rule + "/<name>/rename", {"POST": _transition(self.rename, NEW_NAME)}),
            Route(rule + "/<name>/export", {"GET": Operation(self.export)}),
        ]

    async def listing(self, exchange: Exchange) -> Response:
        """List documents."""
        doctype, listing = exchange.argument("doctype"), _listing(exchange.query)
        page = await self._read(exchange, lambda fw: rest.list_documents(fw, doctype, listing))
        return json_response(page)

    async def insert(self, exchange: Exchange) -> Response:
        """Insert a document; 201."""
        doctype = exchange.argument("doctype")
        body = await self._with_hash(exchange, doctype, None)
        return await self._write_document(
            exchange, doctype, lambda fw: rest.insert(fw, doctype, body), 201
        )

    async def read(self, exchange: Exchange) -> Response:
        """Read a document."""
        doctype, name = _doctype_and_name(exchange)
        document = await self._read(exchange, lambda fw: rest.read(fw, doctype, name))
        return json_response({"data": document})

    async def save(self, exchange: Exchange) -> Response:
        """Save the changed fields of a document."""
        doctype, name = _doctype_and_name(exchange)
        body = await self._with_hash(exchange, doctype, name)
        return await self._write_document(
            exchange, doctype, lambda fw: rest.save(fw, doctype, name, body)
        )

    async def delete(self, exchange: Exchange) -> Response:
        """Delete a document."""
        doctype, name = _doctype_and_name(exchange)
        version = version_or_none(exchange.query.get("modified", msgspec.UNSET))
        result = await self._write_doctype(
            exchange, doctype, lambda fw: rest.delete(fw, doctype, name, version)
        )
        return json_response(result)

    async def submit(self, exchange: Exchange) -> Response:
        """Submit a draft."""
        doctype, name = _doctype_and_name(exchange)
        version = version_or_none(exchange.body.modified)
        return await self._write_document(
            exchange, doctype, lambda fw: rest.submit(fw, doctype, name, version)
        )

    async def cancel(self, exchange: Exchange) -> Response:
        """Cancel a submitted document."""
        doctype, name = _doctype_and_name(exchange)
        version = version_or_none(exchange.body.modified)
        return await self._write_document(
            exchange, doctype, lambda fw: rest.cancel(fw, doctype, name, version)
        )

    async def rename(self, exchange: Exchange) -> Response:
        """Rename a document."""
        doctype, name = _doctype_and_name(exchange)
        body: RenameRequest = exchange.body
        version = version_or_none(body.modified)
        return await self._write_document(
            exchange,
            doctype,
            lambda fw: rest.rename(fw, doctype, name, {"name": body.name}, version),
        )

    async def export(self, exchange: Exchange) -> Response:
        """Return a document as a file."""
        doctype, name = _doctype_and_name(exchange)
        document = await self._read(exchange, lambda fw: rest.export(fw, doctype, name))
        return json_response(document, 200, ("Content-Disposition", _attachment(doctype, name)))

    async def _write_document(
        self,
        exchange: Exchange,
        doctype: str,
        write: Callable[[Fw], dict[str, Any]],
        status: int = 200,
    ) -> Response:
        """Write a document and return it.

        It is encoded inside the transaction, so that a value that JSON cannot represent, set by a
        hook, undoes the write.
        """
        body = await self._write_doctype(exchange, doctype, lambda fw: encode({"data": write(fw)}))
        return Response(body, status)

    async def _write_doctype(self, exchange: Exchange, doctype: str, work: Callable[[Fw], T]) -> T:
        gateway = self._gateway
        write = gateway.write_while_live if doctype in ACCESS_GRANTING else gateway.write
        return await write(exchange.known_caller, work, exchange.request_id)

    async def _with_hash(
        self, exchange: Exchange, doctype: str, name: str | None
    ) -> Mapping[str, Any]:
        """Return the body of an insert (`name` None) or a save, with a new password hashed."""
        body: Mapping[str, Any] = exchange.body
        if NEW_PASSWORD not in body:
            return body
        return await self._gateway.prepare(exchange.known_caller, doctype, name, body)


def _transition(handle: Callable[[Exchange], Awaitable[Response]], body: BodyRule) -> Operation:
    return Operation(handle, body=body, response=DocumentResponse)


def version_or_none(modified: str | msgspec.UnsetType) -> int | None:
    """Return the version that a request names, None without one. Raises: BadRequestError."""
    return None if isinstance(modified, msgspec.UnsetType) else rest.version_of(modified)


def _attachment(doctype: str, name: str) -> str:
    """Return the value of Content-Disposition; the name is encoded by RFC 8187."""
    return f"attachment; filename*=UTF-8''{quote(f'{doctype} {name}.json', safe='')}"


def _doctype_and_name(exchange: Exchange) -> tuple[str, str]:
    return exchange.argument("doctype"), exchange.argument("name")


def _listing(query: Any) -> dict[str, Any]:
    """Return the query's parameters with their types. Raises: BadRequestError naming one."""
    listing: dict[str, Any] = {}
    for name, text in query.items():
        if name in ("filters", "fields"):
            listing[name] = read_argument(text, name)
        elif name == "order_by":
            listing[name] = text
        else:
            listing[name] = whole_number(query, name)
    return listing


class MethodRoutes(GatewayRoutes):
    """The route of the functions of apps, which are called by POST."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        arguments = BodyRule(
            partial(read_object, texts=CharacterRules(every_line=True)), optional=True
        )
        return [
            Route(
                "/api/method/<path>",
                {"POST": Operation(self.call, body=arguments)},
                find=self._find,
            )
        ]

    async def call(self, exchange: Exchange) -> Response:
        """Run an app's function in a write transaction; the body is its keyword arguments."""
        function = self._find(exchange)
        arguments: dict[str, Any] = exchange.body
        function.validate(arguments)
        _require_role(exchange.known_caller.roles, function)

        def run(fw: Fw) -> bytes:
            # The role may have been removed since the request was authenticated.
            _require_role(fw.rights.roles, function)
            return _returned(function.path, function(fw, **arguments))

        return Response(await self._write(exchange, run))

    def _find(self, exchange: Exchange) -> Whitelisted:
        function = self._gateway.functions.get(exchange.argument("path"))
        if function is None:
            raise NotFoundError("There is nothing under this path.")
        return function


def _returned(path: str, value: Any) -> bytes:
    """Return the value of an app's function as JSON.

    Called inside the transaction, so that a value that JSON cannot represent undoes the writes.

    Raises: TypeError, which names the function: the traceback has no line of the app.
    """
    try:
        return encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        hint = "a document must be returned as document.as_dict()"
        raise TypeError(f"{path} returned a value that is not JSON ({hint}): {error}") from error


def _require_role(roles: frozenset[str], function: Whitelisted) -> None:
    if function.roles and not roles & {SYSTEM_MANAGER, *function.roles}:
        raise PermissionDeniedError
