"""Helpers for the routes under `/api/method/core.services.` (H-100, H-20)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from fw_actors.actors.gateway import Gateway
from fw_actors.documents.fields import iso
from fw_actors.errors import BadRequestError
from web.exchange import Exchange
from web.json_input import MAX_INTEGER, MAX_INTEGER_CHARACTERS, PLAIN, CharacterRules, read_struct
from web.operations import BodyRule, Operation, OperationHandler, Route
from web.response_schemas import OkResponse

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

T = TypeVar("T")

SERVICES: Final = "/api/method/core.services."


class NoArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of an operation that takes no arguments: `{}`, or none at all."""


NO_ARGUMENTS: Final = BodyRule(partial(read_struct, kind=NoArguments), optional=True)


def read_route(
    name: str,
    handle: OperationHandler,
    response: type[msgspec.Struct],
    *,
    session_only: bool = False,
) -> Route:
    """Return the route of an operation that only reads, by POST and by GET."""
    get = Operation(handle, response=response, session_only=session_only)
    return Route(SERVICES + name, {"POST": replace(get, body=NO_ARGUMENTS), "GET": get})


def write_route(
    name: str,
    handle: OperationHandler,
    kind: type[msgspec.Struct] | None = None,
    *,
    response: type[msgspec.Struct] = OkResponse,
    texts: CharacterRules = PLAIN,
    session_only: bool = False,
) -> Route:
    """Return the route of an operation that writes, with the arguments `kind`."""
    body = NO_ARGUMENTS if kind is None else BodyRule(partial(read_struct, kind=kind, texts=texts))
    post = Operation(handle, body=body, response=response, session_only=session_only)
    return Route(SERVICES + name, {"POST": post})


class GatewayRoutes:
    """Base class of routes whose operations run inside the gateway's reads and writes."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def _read(self, exchange: Exchange, work: Callable[[Fw], T]) -> T:
        return await self._gateway.read(exchange.known_caller, work, exchange.request_id)

    async def _write(self, exchange: Exchange, work: Callable[[Fw], T]) -> T:
        return await self._gateway.write(exchange.known_caller, work, exchange.request_id)

    async def _write_while_live(self, exchange: Exchange, work: Callable[[Fw], T]) -> T:
        return await self._gateway.write_while_live(
            exchange.known_caller, work, exchange.request_id
        )


def value_or_none(value: T | msgspec.UnsetType) -> T | None:
    """Return an optional argument, or None when it was left out."""
    return None if isinstance(value, msgspec.UnsetType) else value


def time_or_null(milliseconds: int | None) -> str | None:
    """Return a time in the format of JSON, or None without one."""
    return None if milliseconds is None else iso(milliseconds)


def whole_number(query: Mapping[str, str], name: str) -> int | None:
    """Return a number of the query, or None without it.

    Raises: BadRequestError for any other text, and for a number beyond 2^53.
    """
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise BadRequestError(f"{name} must be a whole number, 0 or more.", field=name)
    if len(text) > MAX_INTEGER_CHARACTERS or int(text) > MAX_INTEGER:
        raise BadRequestError(f"{name} must not exceed 2^53.", field=name)
    return int(text)
