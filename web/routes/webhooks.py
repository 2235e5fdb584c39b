"""Operations on Webhooks and their deliveries: events, replays, pauses, ends, secrets, tests.

The module has more than 500 lines because it has all operations under `core.services.webhooks`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import msgspec
import trio

from fw_actors.actors.gateway import Gateway
from fw_actors.documents.fields import iso
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import SYSTEM_MANAGER
from fw_actors.errors import (
    BadRequestError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ValidationError,
)
from fw_actors.webhooks.diagnostics import TestEventResult, delivery_report
from fw_actors.webhooks.events import MAX_EVENTS
from fw_actors.webhooks.pacing import WebhookPause
from fw_actors.webhooks.replay import (
    MAX_COUNTED_DELIVERIES,
    MAX_COUNTED_IN_LIST,
    ReplayRun,
    outcomes_of,
)
from web.exchange import Exchange
from web.json_input import CharacterRules, ListReader, read_struct, to_struct
from web.operations import BodyRule, Operation, Route
from web.request import KIB, MIB
from web.response import Response, json_response
from web.response_schemas import (
    CancelledDeliveryResponse,
    DeliveryExplainedResponse,
    EmittedManyResponse,
    EmittedResponse,
    ErasedResponse,
    ReplayedResponse,
    ReplayRunDetails,
    ReplayRunResponse,
    ReplayRunsResponse,
    RotatedResponse,
    WebhookPauseResponse,
)
from web.routes.operations import SERVICES, GatewayRoutes, read_route, time_or_null, write_route
from web.routes.resource import GivenVersion, version_or_none

PUBLISHERS: Final = frozenset({SYSTEM_MANAGER, "Event Publisher"})
MAX_BATCH_BYTES: Final = 4 * MIB
CHARACTERS_PER_CHECKPOINT: Final = 64 * KIB
CONCURRENT_BATCHES: Final = 8
WAITING_BATCHES: Final = 24


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


class EmitManyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of core.services.webhooks.emitMany: 1 to 1,000 events."""

    events: list[EmitRequest]
    all: bool = False


class ReplayRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of core.services.webhooks.replay."""

    delivery: str


class ExplainRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of core.services.webhooks.explain."""

    delivery: str


class CancelDeliveryRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of core.services.webhooks.cancel."""

    delivery: str


class EraseRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of core.services.webhooks.erase."""

    delivery: str


class RotateRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of core.services.webhooks.rotate; `overlap` in hours."""

    webhook: str
    secret: str | None = None
    overlap: int = 0
    modified: GivenVersion = msgspec.UNSET


class TestRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of core.services.webhooks.test."""

    __test__ = False  # no test case, despite its name

    webhook: str


class PauseRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of core.services.webhooks.pause; without `seconds` until it is resumed."""

    webhook: str
    seconds: int | None = None


class ResumeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of core.services.webhooks.resume."""

    webhook: str


DATA: Final = CharacterRules(lines=("data",))
EVENTS: Final = BodyRule(
    partial(ListReader, key="events", kind=EmitManyRequest, texts=DATA), limit=MAX_BATCH_BYTES
)

EXPLAINED: Final = BodyRule(partial(read_struct, kind=ExplainRequest))


class WebhookRoutes(GatewayRoutes):
    """The routes of events, single deliveries, and actions on Webhooks."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(gateway)
        self._batches = trio.CapacityLimiter(CONCURRENT_BATCHES)
        # A body is refused before a missing role (H-21), and so decoded in either case.
        self._refused_batches = trio.CapacityLimiter(1)
        self._thread = trio.CapacityLimiter(1)

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            write_route(
                "webhooks.emit", self.emit, EmitRequest, response=EmittedResponse, texts=DATA
            ),
            Route(
                SERVICES + "webhooks.emitMany",
                {"POST": Operation(self.emit_many, body=EVENTS, response=EmittedManyResponse)},
            ),
            write_route("webhooks.replay", self.replay, ReplayRequest, response=ReplayedResponse),
            write_route(
                "webhooks.cancel",
                self.cancel,
                CancelDeliveryRequest,
                response=CancelledDeliveryResponse,
            ),
            write_route("webhooks.erase", self.erase, EraseRequest, response=ErasedResponse),
            write_route("webhooks.rotate", self.rotate, RotateRequest, response=RotatedResponse),
            write_route("webhooks.test", self.test, TestRequest, response=TestEventResult),
            write_route("webhooks.pause", self.pause, PauseRequest, response=WebhookPauseResponse),
            write_route(
                "webhooks.resume", self.resume, ResumeRequest, response=WebhookPauseResponse
            ),
            Route(
                SERVICES + "webhooks.explain",
                {
                    "POST": Operation(
                        self.explain, body=EXPLAINED, response=DeliveryExplainedResponse
                    ),
                    "GET": Operation(
                        self.explain,
                        query=frozenset({"delivery"}),
                        response=DeliveryExplainedResponse,
                    ),
                },
            ),
        ]

    async def emit(self, exchange: Exchange) -> Response:
        """Queue an event for every Webhook that subscribes to it."""
        body: EmitRequest = exchange.body
        _require_publisher(exchange.known_caller.roles)
        content = await self._write(
            exchange, lambda fw: _publisher(fw).webhooks.emit(**_arguments(body))
        )
        return json_response(content)

    async def emit_many(self, exchange: Exchange) -> Response:
        """Queue up to 1,000 events in one transaction, each with a result; a body has up to 4 MiB.

        With `all`, if an event is refused, the response is the error of the first one, and no event
        is queued.
        """
        may_publish = exchange.known_caller.roles & PUBLISHERS
        slots = self._batches if may_publish else self._refused_batches
        if slots.statistics().tasks_waiting >= WAITING_BATCHES:
            raise OverloadedError("Too many batches of events are waiting. Try again in a moment.")
        async with slots:
            return await self._emit_batch(exchange)

    async def _emit_batch(self, exchange: Exchange) -> Response:
        reader: ListReader[EmitManyRequest] = exchange.body
        if reader.has_many_values:  # one item may have them all
            events = await trio.to_thread.run_sync(
                lambda: [event for event, _ in _events(reader)], limiter=self._thread
            )
        else:
            events, pause = [], CHARACTERS_PER_CHECKPOINT
            for event, position in _events(reader):
                events.append(event)
                if position >= pause:  # other requests are served meanwhile
                    pause = position + CHARACTERS_PER_CHECKPOINT
                    await trio.lowlevel.checkpoint()
        all_or_nothing = reader.rest().all
        _require_publisher(exchange.known_caller.roles)
        results = await self._write(
            exchange, lambda fw: _publisher(fw).webhooks.emit_many(events, all_or_nothing)
        )
        return json_response({"events": results})

    async def replay(self, exchange: Exchange) -> Response:
        """Send a delivery again: same id, same bytes, fresh attempts."""
        body: ReplayRequest = exchange.body
        with _required("delivery", body.delivery):
            replayed = await self._gateway.replay(
                exchange.known_caller, body.delivery, exchange.request_id
            )
        return json_response(replayed)

    async def explain(self, exchange: Exchange) -> Response:
        """Return the recorded attempts of a delivery, and its next step."""
        delivery = _wanted_delivery(exchange)
        with _required("delivery", delivery):
            report = await self._read(exchange, lambda fw: delivery_report(fw, delivery))
        return json_response(report.as_json(await self._gateway.service_state()))

    async def pause(self, exchange: Exchange) -> Response:
        """Pause a Webhook for a time or until it is resumed: its deliveries wait."""
        body: PauseRequest = exchange.body
        with _required("webhook", body.webhook):
            paused = await self._gateway.pause_webhook(
                exchange.known_caller, body.webhook, body.seconds, exchange.request_id
            )
        return _pause_response(paused)

    async def resume(self, exchange: Exchange) -> Response:
        """Resume a Webhook; without a pause this changes nothing."""
        body: ResumeRequest = exchange.body
        with _required("webhook", body.webhook):
            resumed = await self._gateway.resume_webhook(
                exchange.known_caller, body.webhook, exchange.request_id
            )
        return _pause_response(resumed)

    async def cancel(self, exchange: Exchange) -> Response:
        """Cancel a Queued or Retrying delivery: it becomes Failed, and nothing more is sent.

        A delivery that is being sent now cannot be cancelled (409).
        """
        body: CancelDeliveryRequest = exchange.body
        with _required("delivery", body.delivery):
            status = await self._gateway.cancel_delivery(
                exchange.known_caller, body.delivery, exchange.request_id
            )
        return json_response(CancelledDeliveryResponse(body.delivery, status))

    async def erase(self, exchange: Exchange) -> Response:
        """Erase the body of a final delivery and the receiver's answers; its record stays."""
        body: EraseRequest = exchange.body
        with _required("delivery", body.delivery):
            erased = await self._gateway.erase(
                exchange.known_caller, body.delivery, exchange.request_id
            )
        return json_response(ErasedResponse(body.delivery, erased))

    async def rotate(self, exchange: Exchange) -> Response:
        """Replace the signing secret of a Webhook; the old one also signs for `overlap` hours.

        Without `secret` the service generates one, and returns it once.
        """
        body: RotateRequest = exchange.body
        generated = self._gateway.new_secret() if body.secret is None else None
        with _required("webhook", body.webhook):
            rotation = await self._gateway.rotate(
                exchange.known_caller,
                body.webhook,
                body.secret or generated or "",
                body.overlap,
                exchange.request_id,
                version_or_none(body.modified),
            )
        return json_response(
            RotatedResponse(rotation.webhook, generated, rotation.old_until, rotation.modified)
        )

    async def test(self, exchange: Exchange) -> Response:
        """Send a Webhook a test event; the failure of a receiver is a result, not an error."""
        body: TestRequest = exchange.body
        with _required("webhook", body.webhook):
            result = await self._gateway.test_webhook(
                exchange.known_caller, body.webhook, exchange.request_id
            )
        return json_response(result)


@contextmanager
def _required(field: str, value: str) -> Iterator[None]:
    """Refuse an empty id as a value, not as an unknown name; a missing permission comes first.

    Raises: ValidationError.
    """
    try:
        yield
    except NotFoundError:
        if value:
            raise
        raise ValidationError(f"{field} is required.", field=field) from None


def _pause_response(pause: WebhookPause) -> Response:
    return json_response(
        WebhookPauseResponse(
            pause.webhook, pause.paused, time_or_null(pause.since), time_or_null(pause.until)
        )
    )


def _wanted_delivery(exchange: Exchange) -> str:
    if isinstance(exchange.body, ExplainRequest):
        return exchange.body.delivery
    if "delivery" not in exchange.query:
        raise BadRequestError("delivery is missing.", field="delivery")
    return exchange.query["delivery"]


def _publisher(fw: Fw) -> Fw:
    """Return the handle of a caller who may still publish events.

    The role may have been removed since the request was authenticated.
    Raises: PermissionDeniedError.
    """
    _require_publisher(fw.rights.roles)
    return fw


def _require_publisher(roles: frozenset[str]) -> None:
    """Check that a caller with these roles may publish events. Raises: PermissionDeniedError."""
    if not roles & PUBLISHERS:
        raise PermissionDeniedError(
            "Publishing events requires the role Event Publisher or System Manager."
        )


_Event = dict[str, Any] | BadRequestError


def _events(reader: ListReader[EmitManyRequest]) -> Iterator[tuple[_Event, int]]:
    """Yield each event, or its refusal, and the number of characters of the body that were read.

    Raises: ValidationError for too many events; BadRequestError.
    """
    for number, (item, position) in enumerate(reader.items()):
        if number == MAX_EVENTS:
            raise ValidationError(f"events must contain 1 to {MAX_EVENTS:,} events.", "events")
        yield _event_or_refusal(item), position


def _event_or_refusal(item: object) -> _Event:
    if isinstance(item, BadRequestError):
        return item
    try:
        return _arguments(to_struct(item, EmitRequest, "event"))
    except BadRequestError as refusal:
        return refusal


def _arguments(event: EmitRequest) -> dict[str, Any]:
    """Return the arguments of `fw.webhooks.emit`."""
    options = event.options or EmitOptions()
    reference = None
    if options.reference is not None:
        reference = {"doctype": options.reference.doctype, "name": options.reference.name}
    return {"name": event.name, "data": event.data, "reference": reference, "key": options.key}


class ReplayManyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of core.services.webhooks.replayMany; filters as in a list of documents."""

    filters: list[Any]


class ProgressRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of core.services.webhooks.replayProgress; without `run` the current or last one."""

    run: str | None = None


PROGRESS: Final = BodyRule(partial(read_struct, kind=ProgressRequest), optional=True)


class BulkReplayRoutes(GatewayRoutes):
    """The routes of bulk replays: begin, stop, progress, and list."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            write_route(
                "webhooks.replayMany", self.begin, ReplayManyRequest, response=ReplayRunResponse
            ),
            write_route("webhooks.stopReplay", self.stop, response=ReplayRunResponse),
            read_route("webhooks.replayRuns", self.runs, ReplayRunsResponse),
            Route(
                SERVICES + "webhooks.replayProgress",
                {
                    "POST": Operation(self.progress, body=PROGRESS, response=ReplayRunResponse),
                    "GET": Operation(
                        self.progress, query=frozenset({"run"}), response=ReplayRunResponse
                    ),
                },
            ),
        ]

    async def begin(self, exchange: Exchange) -> Response:
        """Start a bulk replay of the matching Sent and Failed deliveries, in batches."""
        body: ReplayManyRequest = exchange.body

        def begin(fw: Fw) -> ReplayRunDetails | PermissionDeniedError:
            run = self._gateway.bulk.begin(fw, body.filters)
            return run if isinstance(run, PermissionDeniedError) else _details(fw, run)

        content = await self._write(exchange, begin)
        if isinstance(content, PermissionDeniedError):  # its Audit Event is committed
            raise content
        return json_response(ReplayRunResponse(content))

    async def stop(self, exchange: Exchange) -> Response:
        """Stop the run after the deliveries in progress."""
        return _run_response(
            await self._write(exchange, lambda fw: _or_none(fw, self._gateway.bulk.stop(fw)))
        )

    async def progress(self, exchange: Exchange) -> Response:
        """Return the progress and results of a bulk replay; by default of the last one."""
        body = exchange.body
        run_id = body.run if isinstance(body, ProgressRequest) else exchange.query.get("run")
        bulk = self._gateway.bulk

        def read(fw: Fw) -> ReplayRunDetails | None:
            run = bulk.progress(fw) if run_id is None else bulk.get(fw, run_id)
            return _or_none(fw, run)

        return _run_response(await self._read(exchange, read))

    async def runs(self, exchange: Exchange) -> Response:
        """Return the last 20 bulk replays and their results."""

        def read(fw: Fw) -> list[ReplayRunDetails]:
            return [_details(fw, run, MAX_COUNTED_IN_LIST) for run in self._gateway.bulk.all(fw)]

        return json_response(ReplayRunsResponse(await self._read(exchange, read)))


def _or_none(fw: Fw, run: ReplayRun | None) -> ReplayRunDetails | None:
    return None if run is None else _details(fw, run)


def _run_response(run: ReplayRunDetails | None) -> Response:
    return json_response(ReplayRunResponse(run))


def _details(fw: Fw, run: ReplayRun, max_count: int = MAX_COUNTED_DELIVERIES) -> ReplayRunDetails:
    outcomes = outcomes_of(fw.tx, run, max_count)
    return ReplayRunDetails(
        id=run.id,
        user=run.user,
        filters=run.selection,
        state=run.state,
        total=run.total,
        done=run.replayed + sum(run.refused.values()),
        replayed=run.replayed,
        refused=run.refused,
        error=run.error,
        begun=iso(run.begun),
        ended=time_or_null(run.ended),
        arrived=outcomes.arrived,
        failed_again=outcomes.failed,
        open=outcomes.open,
        gone=outcomes.gone,
        more=outcomes.more,
    )
