"""Routes of webhooks: emit, replay, test."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from fw_actors.actors.gateway import Gateway
from fw_actors.errors import PermissionDeniedError
from fw_actors.webhooks.diagnostics import TrialResult
from fw_actors.webhooks.replay import Run
from web.exchange import Exchange
from web.json_input import Texts
from web.operations import Path
from web.response import Answer, answer_json, iso_time
from web.response_schemas import EmittedAnswer, ReplayedAnswer, RunAnswer, RunKnown
from web.routes.operations import reading, time_or_null, writing
from web.routes.resource import ADMINISTRATOR_ROLE

PUBLISHERS: Final = frozenset({ADMINISTRATOR_ROLE, "Event Publisher"})


class Reference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The document that an event is about."""

    doctype: str
    name: str


class EmitOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of an emit (B-71)."""

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


class ReplayManyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of core.services.webhooks.replayMany; filters as in a list of documents."""

    filters: list[Any]


class BulkReplayRoutes:
    """The paths of this module, over one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def paths(self) -> list[Path]:
        """Return what is served."""
        return [
            writing("webhooks.replayMany", self.begin, ReplayManyRequest, answer=RunKnown),
            writing("webhooks.stopReplay", self.stop, answer=RunKnown),
            reading("webhooks.replayProgress", self.progress, RunKnown),
        ]

    async def begin(self, exchange: Exchange) -> Answer:
        """Begin to replay what matches, as far as it is Sent or Failed, some at a time."""
        body: ReplayManyRequest = exchange.body
        told = await self._gateway.write(
            exchange.known_caller,
            lambda fw: self._gateway.bulk.begin(fw, body.filters),
            exchange.request_id,
        )
        if isinstance(told, PermissionDeniedError):  # it is on record, and committed
            raise told
        return _answer(told)

    async def stop(self, exchange: Exchange) -> Answer:
        """Let it end after the deliveries in hand."""
        stop = self._gateway.bulk.stop
        return _answer(await self._gateway.write(exchange.known_caller, stop, exchange.request_id))

    async def progress(self, exchange: Exchange) -> Answer:
        """Say how far it has come."""
        look = self._gateway.bulk.progress
        return _answer(await self._gateway.read(exchange.known_caller, look, exchange.request_id))


def _answer(run: Run | None) -> Answer:
    return answer_json(RunKnown(None if run is None else _shown(run)))


def _shown(run: Run) -> RunAnswer:
    return RunAnswer(
        id=run.id,
        user=run.user,
        filters=json.loads(run.filters),
        state=run.state,
        total=run.total,
        done=run.replayed + sum(run.refused.values()),
        replayed=run.replayed,
        refused=run.refused,
        error=run.error,
        begun=iso_time(run.begun),
        ended=time_or_null(run.ended),
    )
