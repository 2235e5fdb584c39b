"""The replay of all deliveries that match: begun, looked at, stopped (decisions, Pages)."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from fw_actors.errors import PermissionDeniedError
from fw_actors.services.bulk_replay import Run
from web.answers import RunAnswer, RunKnown
from web.envelope import Answer, answer_json
from web.exchange import Exchange
from web.gateway import Gateway
from web.json_out import iso_time
from web.operations import Path
from web.routes.service_operations import reading, time_or_null, writing


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
