"""Deliveries on a MockClock: the real store, Dispatcher and DeliveryActor, a receiver in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import trio

from fw_actors.actors.delivery import AttemptsInFlight, DeliveryActor, DeliveryDependencies
from fw_actors.actors.dispatcher import Dispatcher
from fw_actors.actors.metrics import DeliveryMeter
from fw_actors.actors.outcome_writer import OutcomeWriter
from fw_actors.actors.queue_worker import Waker
from fw_actors.documents import rest
from fw_actors.http import ConnectError, Endpoint, ReceiverResponse, ResponseTimeout, Sender
from fw_actors.http.exchange import MakeHeaders
from fw_actors.ops.site import Site
from fw_actors.rules.delivery import Backoff
from fw_actors.runtime import KeyedPool, Runtime, SilentLog, open_runtime
from fw_actors.runtime.system import Log as RuntimeLog
from fw_actors.store import Tx
from fw_actors.webhooks.claims import LeasedDelivery
from fw_actors.webhooks.deliveries import Deliveries
from fw_actors.webhooks.signing_keys import SigningKeys
from supervisors import actor_child, open_supervisor, pool_child
from tests.fw_actors.webhooks.claim_kit import UnlimitedSlots
from tests.mail_kit import RecordingLog
from tests.site_kit import inline_site

URL = "https://receiver.example/hook"
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


@dataclass(frozen=True)
class RecordedPost:
    """One POST that reached a receiver; `at` is in seconds since the beginning."""

    at: float
    url: str
    body: bytes
    headers: dict[str, str]


@dataclass
class ScriptedReceiver:
    """Answers `answers` in turn, and repeats the last one: a status ("503 after 90" has that
    Retry-After), "timeout", "refused", "defect" or "hang".

    `busy` seconds pass before each answer.
    """

    poll_seconds: ClassVar[float] = 0.5
    """The time between two polls for an outcome, in virtual time."""

    answers: Sequence[str]
    busy: float = 0.0
    posts: list[RecordedPost] = field(default_factory=list)
    in_flight: int = 0
    peak: int = 0
    began: float = 0.0

    @property
    def times(self) -> list[int]:
        """The times of the posts, in whole seconds since the beginning."""
        return [round(post.at) for post in self.posts]

    async def post(
        self, target: Endpoint, body: bytes, make_headers: MakeHeaders, *, timeout: float
    ) -> ReceiverResponse:
        answer = self.answers[min(len(self.posts), len(self.answers) - 1)]
        headers = {key.decode(): value.decode() for key, value in make_headers()}
        self.posts.append(
            RecordedPost(trio.current_time() - self.began, target.display, body, headers)
        )
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            return await self._answer(answer, timeout)
        finally:
            self.in_flight -= 1

    async def _answer(self, answer: str, timeout: float) -> ReceiverResponse:
        if answer == "hang":
            await trio.sleep_forever()
        if answer == "timeout":
            await trio.sleep(timeout)
            raise ResponseTimeout(f"no answer within {timeout} s.")
        if answer == "refused":
            raise ConnectError("the connection was refused.")
        if answer == "defect":
            raise RuntimeError("a defect of ours")
        await trio.sleep(self.busy)
        status, _, retry_after = answer.partition(" after ")
        response = ReceiverResponse(
            int(status), b"what the receiver said", None, retry_after or None
        )
        response.times.answer = self.busy * 1000
        return response


class RealSender(ScriptedReceiver):
    """A receiver behind a real socket, reached by the real sender; it records no posts."""

    poll_seconds = 0.02  # in real time

    def __init__(self, sender: Sender) -> None:
        super().__init__(answers=())
        self._sender = sender

    async def post(
        self, target: Endpoint, body: bytes, make_headers: MakeHeaders, *, timeout: float
    ) -> ReceiverResponse:
        return await self._sender.post(target, body, make_headers, timeout=timeout)


@dataclass
class DeliverySite:
    """A site with running deliveries, and helpers for tests."""

    site: Site
    runtime: Runtime
    pool: KeyedPool
    dispatcher: Callable[[], bool]
    poll_seconds: float

    async def webhook(self, url: str = URL, event: str = "invoice.paid", **fields: Any) -> str:
        """Make a Webhook for a custom event; return its name."""
        body = {
            "url": url, "event_type": "Custom", "custom_event": event, "secret": SECRET, **fields,
        }  # fmt: skip
        made = await self.site.write("Administrator", lambda fw: rest.insert(fw, "Webhook", body))
        name: str = made["name"]
        return name

    async def emit(self, event: str = "invoice.paid", data: object = None) -> list[str]:
        """Emit an event; return the ids of its deliveries."""
        emitted = await self.site.write(
            "Administrator", lambda fw: fw.webhooks.emit(event, data or {"total": 12})
        )
        return emitted["deliveries"]

    async def lease(self) -> LeasedDelivery:
        """Emit an event and lease its delivery in one transaction, before the Dispatcher can."""
        deliveries = Deliveries(Backoff(30.0, 3600.0))

        def work(tx: Tx) -> LeasedDelivery:
            self.site.handle(tx, "Administrator").webhooks.emit("invoice.paid", {})
            [due] = deliveries.claim(tx, UnlimitedSlots(1), "ours").deliveries
            return due

        return await self.site.store.write(work)

    async def change(self, webhook: str, **fields: Any) -> None:
        """Change a Webhook."""
        await self.site.write("Administrator", lambda fw: rest.save(fw, "Webhook", webhook, fields))

    async def replay(self, delivery: str) -> None:
        """Send a delivery again."""
        await self.site.write("Administrator", lambda fw: self.site.replays.replay(fw, delivery))

    async def read(self, delivery: str) -> dict[str, Any]:
        """Return a delivery as the API shows it."""
        return await self.site.read(
            "Administrator", lambda fw: rest.read(fw, "Webhook Delivery", delivery)
        )

    async def settled(self, delivery: str) -> dict[str, Any]:
        """Wait until a delivery is final; return it."""
        while True:
            found = await self.read(delivery)
            if found["status"] in ("Sent", "Failed"):
                return found
            await trio.sleep(self.poll_seconds)

    async def jobs(self) -> list[dict[str, Any]]:
        """Return the rows of the queue."""
        return await self.site.read(
            "Administrator", lambda fw: fw.db.sql("SELECT * FROM fw_job ORDER BY id")
        )


@asynccontextmanager
async def delivering(
    folder: Path,
    receiver: ScriptedReceiver,
    *,
    seed: int = 1,
    log: RecordingLog | None = None,
    **changes: Any,
) -> AsyncIterator[DeliverySite]:
    """Run a site's deliveries to `receiver`; `changes` as for `make_config`."""
    wake_ups: list[Callable[[], bool]] = []

    def recorded(queue: str) -> None:
        if not all(wake_up() for wake_up in wake_ups):
            site.store.notify_others()

    async with inline_site(folder, seed, recorded, **changes) as site:
        receiver.began = trio.current_time()
        async with _actors(site, receiver, log or SilentLog()) as post:
            wake_ups.append(post.dispatcher)
            yield post


@asynccontextmanager
async def _actors(
    site: Site, receiver: ScriptedReceiver, log: RuntimeLog
) -> AsyncIterator[DeliverySite]:
    ops = site.config.ops
    deliveries = Deliveries(
        Backoff(ops.backoff_seconds, ops.backoff_cap_seconds),
        traced=site.tracer is not None,
    )
    async with open_runtime(clock=site.clock, entropy=site.entropy, log=log) as runtime:
        dispatcher, outcomes = runtime.ref("dispatcher"), runtime.ref("outcomes")
        keys, counter, paused = SigningKeys(site.vault), DeliveryMeter(()), set[str]()
        attempts = AttemptsInFlight(dispatcher)
        dependencies = DeliveryDependencies(
            site.store, deliveries, receiver, keys, site.clock, log, dispatcher, outcomes, attempts,
            counter, honour_retry_after=ops.honour_retry_after, tracer=site.tracer,
        )  # fmt: skip
        pool = KeyedPool(
            runtime, "deliveries", capacity=ops.delivery_concurrency, idle_seconds=1.0,
            make=lambda key: DeliveryActor(key, dependencies),
        )  # fmt: skip
        children = [
            actor_child(
                "outcomes",
                lambda: OutcomeWriter(
                    site.store, deliveries, site.clock, log, slots=ops.delivery_concurrency
                ),
            ),
            pool_child("deliveries", pool, shutdown_seconds=10.0),
            actor_child(
                "dispatcher",
                lambda: Dispatcher(
                    site.store, deliveries, pool, attempts, slots=ops.delivery_concurrency,
                    per_receiver=ops.per_receiver_concurrency, paused=paused,
                ),
            ),
        ]  # fmt: skip
        async with open_supervisor(runtime, "delivery", children):
            yield DeliverySite(site, runtime, pool, Waker(dispatcher), receiver.poll_seconds)
