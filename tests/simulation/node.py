"""One process of the site: the real tree of the service over a store, a sender and a transport
that can fail. It is started, stopped in order, killed, frozen, and started again."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import trio

from fw_actors.actors.gateway import Gateway
from fw_actors.actors.metrics import Counter, DeliveryMeter
from fw_actors.actors.queue_worker import WakeUp
from fw_actors.config import Config
from fw_actors.hashing import HashCost, Hasher, HashQueue, PasswordCheck
from fw_actors.hashing.hasher import ANONYMOUS
from fw_actors.http import Sender
from fw_actors.http.dial import Resolver
from fw_actors.http.pool import Pool
from fw_actors.ops.site import Site, open_site
from fw_actors.rules.fair_queue import Requester
from fw_actors.runtime import Runtime, SeededEntropy, open_runtime
from fw_actors.store import Store
from fw_actors.webhooks.subscriptions import SharedSubscriptions
from supervisors.service.assembly import ServiceDependencies, kept_connections
from supervisors.service.tree import DELIVERY_OUTCOMES, SIGN_IN_OUTCOMES, WORKERS, run_service_tree
from tests.simulation.environment import SimulatedEnvironment
from tests.simulation.faulty_store import FaultyStore
from tests.simulation.incarnation import Incarnation
from tests.simulation.network import VirtualDialler

T = TypeVar("T")
DRAIN_SECONDS = 10.0


class RequestLost(Exception):
    """Raised in a client whose answer never came: the process died, or was not there."""


class RecordingHasher(Hasher):
    """The real hasher, under the eyes of the simulation."""

    seen: Callable[[str], None]

    async def verify(
        self,
        stored: str | None,
        password: str,
        lane: HashQueue = HashQueue.SIGN_IN,
        *,
        decoy: HashCost | None = None,
        requester: Requester = ANONYMOUS,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> PasswordCheck:
        """See `Hasher.verify`."""

        def begins() -> bool:
            may = may_begin()
            if may:
                self.seen(password)
            return may

        return await super().verify(
            stored, password, lane, decoy=decoy, requester=requester, may_begin=begins
        )


@dataclass(frozen=True)
class NodeProcess:
    """The parts of a running process."""

    site: Site
    gateway: Gateway
    runtime: Runtime
    sender: Sender
    requests: trio.Nursery


class SimulatedNode:
    """See the module. `name` stays over its incarnations.

    `memory` is that of the subscriptions, where the nodes are processes of one service.
    """

    def __init__(
        self,
        name: str,
        config: Config,
        environment: SimulatedEnvironment,
        memory: int | None = None,
    ) -> None:
        self.name, self.config, self._environment = name, config, environment
        self._memory = memory
        self.incarnation: Incarnation | None = None
        self.up: NodeProcess | None = None
        self.accepting = False
        self._incarnations = 0
        self._stop = trio.Event()

    async def start(self, *, key: str | None = None) -> bool:
        """Start a new incarnation, with `key` as FW_SECRET_KEY; False when it did not start."""
        self._incarnations += 1
        incarnation = self.incarnation = Incarnation(f"{self.name}.{self._incarnations}")
        self._stop, ready = trio.Event(), trio.Event()
        config = self.config if key is None else _with_key(self.config, key)

        async def live() -> None:
            try:
                await incarnation.run(lambda: self._body(incarnation, config, ready))
            except Exception as error:
                self._environment.process_failed(incarnation, error)
            self.accepting, self.up = False, None
            ready.set()

        self._environment.trace(incarnation.label, "starts")
        self._environment.nursery.start_soon(live)
        await ready.wait()
        return not incarnation.dead

    async def stop(self) -> None:
        """Stop in order, and wait for the end."""
        if self.incarnation is not None and not self.incarnation.dead:
            self.incarnation.thaw()
            self._environment.trace(self.incarnation.label, "stops")
            self.accepting = False
            self._stop.set()
            await self.incarnation.ended.wait()

    async def kill(self) -> None:
        """Kill it where it stands."""
        if self.incarnation is not None and not self.incarnation.dead:
            self._environment.trace(self.incarnation.label, "is killed")
            self.accepting = False
            await self.incarnation.kill()

    async def request(self, fn: Callable[[NodeProcess], Awaitable[T]]) -> T:
        """Run a request in the process, as the front does: a client that goes away cancels it.

        Raises: what `fn` raises; RequestLost.
        """
        up, incarnation = self.up, self.incarnation
        if up is None or incarnation is None or not self.accepting:
            await trio.sleep(0.05)
            raise RequestLost
        scope, done = trio.CancelScope(), trio.Event()
        results: list[T] = []
        failures: list[Exception] = []

        async def route() -> None:
            try:
                with scope:
                    results.append(await fn(up))
            except Exception as error:
                failures.append(error)
            finally:
                done.set()

        try:
            up.requests.start_soon(route)
        except RuntimeError:  # the process has just failed, and takes nothing any more
            await trio.sleep(0.05)
            raise RequestLost from None
        try:
            await done.wait()
        except trio.Cancelled:
            scope.cancel()
            raise
        if incarnation.dead or not (results or failures):
            raise RequestLost
        if failures:
            raise failures[0]
        return results[0]

    def store_of(self, inner: Store, incarnation: Incarnation, rng: random.Random) -> Store:
        """Return the store of one incarnation of the process."""
        environment = self._environment
        return FaultyStore(inner, incarnation, environment.store_faults, rng, environment.committed)

    @asynccontextmanager
    async def _shared(self) -> AsyncIterator[SharedSubscriptions | None]:
        if self._memory is None:
            yield None
            return
        with closing(SharedSubscriptions(os.dup(self._memory), self.config.place)) as shared:
            yield shared

    async def _body(self, incarnation: Incarnation, config: Config, ready: trio.Event) -> None:
        environment = self._environment
        entropy = SeededEntropy(environment.seed_of(incarnation.label))
        rng = random.Random(environment.seed_of(f"store of {incarnation.label}"))
        log = environment.log_of(incarnation)
        async with open_runtime(clock=environment.clock, entropy=entropy, log=log) as runtime:

            def nudge(queue: str) -> None:
                runtime.ref(WORKERS[queue]).tell(WakeUp())

            async with (
                self._shared() as shared,
                open_site(
                    config,
                    clock=environment.clock,
                    entropy=entropy,
                    inline=True,
                    durable=False,
                    recorded=lambda store: nudge,
                    shared=shared,
                ) as opened,
                trio.open_nursery() as nursery,
            ):
                hasher = RecordingHasher.of(config, entropy, inline=True)
                assert isinstance(hasher, RecordingHasher)
                hasher.seen = environment.hashed
                store = self.store_of(opened.store, incarnation, rng)
                site = replace(opened, store=store, hasher=hasher)
                pool = Pool(kept_connections(config), runtime.deadlines, lambda: False)
                dialler: Any = VirtualDialler(environment.listeners, incarnation)
                sender = Sender(pool, Resolver(nursery), dialler, runtime.deadlines, "simulated")
                parts = ServiceDependencies(
                    site=site, url="https://site.example", runtime=runtime, sender=sender,
                    slow_reads=store, log=log, signed_in=Counter(SIGN_IN_OUTCOMES),
                    delivered=DeliveryMeter(DELIVERY_OUTCOMES), recorded=Counter(WORKERS),
                    transport=environment.mail_server.for_incarnation(incarnation),
                )  # fmt: skip
                try:
                    async with (
                        run_service_tree(parts, None) as service,
                        trio.open_nursery() as requests,
                    ):
                        self.up = NodeProcess(site, service.gateway, runtime, sender, requests)
                        self.accepting = True
                        ready.set()
                        await self._stop.wait()
                        requests.cancel_scope.deadline = trio.current_time() + DRAIN_SECONDS
                    environment.stopped(incarnation, self.up)
                finally:
                    pool.close_all()  # as the kernel does for a process that was killed
                nursery.cancel_scope.cancel()


def _with_key(config: Config, key: str) -> Config:
    return replace(config, secrets=type(config.secrets)({"key": key} if key else {}))
