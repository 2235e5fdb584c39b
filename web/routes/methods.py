"""Operations under `/api/method/`: emit, and what apps have whitelisted (interface §2, §3)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fw_actors.errors import NotFoundError, PermissionDeniedError
from fw_actors.services.access import Caller
from web.answers import EmittedAnswer
from web.envelope import Answer, answer_json
from web.exchange import Exchange
from web.gateway import Gateway, WhitelistedFunction
from web.json_in import Texts, read_object, read_struct
from web.json_out import encode
from web.operations import BodyRule, Operation, Path
from web.routes.service_operations import SERVICES

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

ADMINISTRATOR_ROLE: Final = "System Manager"
PUBLISHERS: Final = frozenset({ADMINISTRATOR_ROLE, "Event Publisher"})


class Reference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The document that an event is about."""

    doctype: str
    name: str


class EmitOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of an emit (spec, Webhooks)."""

    reference: Reference | None = None
    key: str | None = None


class EmitRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of core.services.webhooks.emit."""

    name: str
    data: dict[str, Any]
    options: EmitOptions | None = None


class MethodRoutes:
    """The paths of this module, over one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def paths(self) -> list[Path]:
        """Return what is served."""
        emit_body = BodyRule(partial(read_struct, kind=EmitRequest, texts=Texts(lines=("data",))))
        arguments = BodyRule(partial(read_object, texts=Texts(every_line=True)), may_be_absent=True)
        emit = Operation(self.emit, body=emit_body, answer=EmittedAnswer)
        return [
            Path(SERVICES + "webhooks.emit", {"POST": emit}),
            Path(
                "/api/method/<path>",
                {"POST": Operation(self.call, body=arguments)},
                find=self._find,
            ),
        ]

    async def emit(self, exchange: Exchange) -> Answer:
        """Queue an event for every webhook that subscribes to it."""
        body: EmitRequest = exchange.body
        caller = exchange.known_caller
        if not caller.roles & PUBLISHERS:
            raise PermissionDeniedError("Publishing events takes the role Event Publisher.")
        options = body.options or EmitOptions()
        reference = None
        if options.reference is not None:
            reference = {"doctype": options.reference.doctype, "name": options.reference.name}
        told = await self._gateway.write(
            caller,
            lambda fw: fw.webhooks.emit(body.name, body.data, reference, options.key),
            exchange.request_id,
        )
        return answer_json(told)

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

    def _find(self, exchange: Exchange) -> WhitelistedFunction:
        function = self._gateway.whitelisted(exchange.argument("path"))
        if function is None:
            raise NotFoundError("There is nothing under this path.")
        return function


def _require_role(caller: Caller, function: WhitelistedFunction) -> None:
    if function.roles and not caller.roles & {ADMINISTRATOR_ROLE, *function.roles}:
        raise PermissionDeniedError
