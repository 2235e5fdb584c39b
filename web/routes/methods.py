"""What apps have whitelisted, under `/api/method/` (interface §2, §3)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fw_actors.errors import NotFoundError, PermissionDeniedError
from fw_actors.services.access import Caller
from web.envelope import Answer
from web.exchange import Exchange
from web.gateway import Gateway, WhitelistedFunction
from web.json_in import Texts, read_object
from web.json_out import encode
from web.operations import BodyRule, Operation, Path

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

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

    def _find(self, exchange: Exchange) -> WhitelistedFunction:
        function = self._gateway.whitelisted(exchange.argument("path"))
        if function is None:
            raise NotFoundError("There is nothing under this path.")
        return function


def _require_role(caller: Caller, function: WhitelistedFunction) -> None:
    if function.roles and not caller.roles & {ADMINISTRATOR_ROLE, *function.roles}:
        raise PermissionDeniedError
