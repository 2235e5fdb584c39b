"""Operations on webhooks: emit, replay and test (interface §2, §7)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from fw_actors.errors import PermissionDeniedError
from fw_actors.services.webhook_trial import TrialResult
from web.answers import EmittedAnswer, ReplayedAnswer
from web.envelope import Answer, answer_json
from web.exchange import Exchange
from web.gateway import Gateway
from web.json_in import Texts
from web.operations import Path
from web.routes.methods import ADMINISTRATOR_ROLE
from web.routes.service_operations import writing

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


class ReplayRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of core.services.webhooks.replay."""

    delivery: str


class TestRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of core.services.webhooks.test."""

    __test__ = False  # no test case, though its name begins like one

    webhook: str


class WebhookRoutes:
    """The paths of this module, over one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def paths(self) -> list[Path]:
        """Return what is served."""
        data = Texts(lines=("data",))
        return [
            writing("webhooks.emit", self.emit, EmitRequest, answer=EmittedAnswer, texts=data),
            writing("webhooks.replay", self.replay, ReplayRequest, answer=ReplayedAnswer),
            writing("webhooks.test", self.test, TestRequest, answer=TrialResult),
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

    async def replay(self, exchange: Exchange) -> Answer:
        """Send a delivery again: same id, same bytes, fresh attempts."""
        body: ReplayRequest = exchange.body
        return answer_json(
            await self._gateway.replay(exchange.known_caller, body.delivery, exchange.request_id)
        )

    async def test(self, exchange: Exchange) -> Answer:
        """Send a webhook a test event; a receiver that fails is an answer too, not a refusal."""
        body: TestRequest = exchange.body
        return answer_json(await self._gateway.test_webhook(exchange.known_caller, body.webhook))
