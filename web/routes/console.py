"""The acts of the console: on receivers, actors and lockouts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from web.envelope import Answer, answer_json
from web.exchange import Exchange
from web.gateway import Console, Gateway
from web.json_in import read_struct
from web.operations import BodyRule, Operation, Path
from web.pages.console import refuse_who_manages_nothing
from web.routes.service_operations import SERVICES


class ReceiverRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of console.pause and console.resume: an origin, as the console shows it."""

    receiver: str


class ActorRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of console.restart and console.trace: the name of a single actor."""

    actor: str


class UserRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of console.unlock: an account's name or e-mail."""

    user: str


class ConsoleRoutes:
    """The paths of this module, over one gateway and the console of the process."""

    def __init__(self, gateway: Gateway, console: Console) -> None:
        self._gateway, self._console = gateway, console

    def paths(self) -> list[Path]:
        """Return what is served."""
        return [
            self._path("pause", ReceiverRequest, self._console.pause),
            self._path("resume", ReceiverRequest, self._console.resume),
            self._path("restart", ActorRequest, self._console.restart),
            self._path("trace", ActorRequest, self._console.trace),
            self._path("unlock", UserRequest, self._console.unlock),
        ]

    def _path(
        self,
        name: str,
        kind: type[ReceiverRequest | ActorRequest | UserRequest],
        act: Callable[[str, str, str], Awaitable[None]],
    ) -> Path:
        async def handle(exchange: Exchange) -> Answer:
            caller = exchange.known_caller
            await self._gateway.read(caller, refuse_who_manages_nothing, exchange.request_id)
            (target,) = msgspec.structs.astuple(exchange.body)
            await act(caller.user, target, exchange.request_id)
            return answer_json({"ok": True})

        body = BodyRule(partial(read_struct, kind=kind))
        return Path(f"{SERVICES}console.{name}", {"POST": Operation(handle, body=body)})
