"""Many nodes on one database in virtual time.

The nodes are the real service of the simulation (`tests.simulation.node`): Dispatcher,
DeliveryActors, OutcomeWriter and their statements run as they are, on one SQLite file in memory
that does what PostgreSQL's rows do. Only time is modelled: processors of the nodes and of the
database, the network between them, syncs, connections, and the locks of the rows of a Webhook's
health, which all nodes update. Costs are measured (`benchmarks.scaling.costs`).

Not modelled: other waits inside the server (its own locks, its buffers, autovacuum, checkpoints),
the network's throughput, and failures.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import trio
from sqlalchemy import text
from trio.testing import MockClock

from benchmarks.delivery.events import EVENT, SECRET, data
from benchmarks.scaling.costs import Costs
from benchmarks.scaling.machines import Processors, SimulatedDisk
from fw_actors.config import Config
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import ADMINISTRATOR
from fw_actors.http import Origin, parse_endpoint
from fw_actors.ops.site import open_site
from fw_actors.runtime.testing import task_order
from fw_actors.store import Store, StoreStatistics, Tx
from fw_actors.store.postgres import WRITER_THREADS
from tests.forwarding_tx import ForwardingTx
from tests.simulation.environment import SimulatedEnvironment, SimulationTrace
from tests.simulation.faulty_store import StoreFaults
from tests.simulation.incarnation import Incarnation
from tests.simulation.mail_server import ReceivedMail, SimulatedMailServer
from tests.simulation.network import SimulatedWire
from tests.simulation.node import NodeProcess, SimulatedNode
from tests.simulation.wall_clock import WallClock
from tests.site_kit import make_config

T = TypeVar("T")
_EVENTS_A_TRANSACTION: Final = 500
_RELEASE: Final = text("UPDATE fw_job SET next_at = :at WHERE next_at IS NOT NULL")
_HOLD: Final = text("UPDATE fw_job SET next_at = :at")
_CHANGES: Final = "SELECT total_changes() AS changes"
_NOBODY: Final = Incarnation("the founder")
_MIDDLE: Final = (0.2, 0.8)
"""Of all deliveries, the share after which the rate is taken, and up to which."""
_FAST_DISK: Final = Path("/dev/shm")


@dataclass(frozen=True)
class Fleet:
    """A simulated fleet. `slots` are those of a node at one receiver; `answer_seconds` what a
    receiver takes. With `shared` processors the nodes and the database are on one machine that
    has so many; else each node has one, and the database `database_processors`."""

    nodes: int
    events: int
    receivers: int = 1
    slots: int = 64
    answer_seconds: float = 0.0
    database_processors: int = 16
    shared: int | None = None


@dataclass(frozen=True)
class FleetResult:
    """The result of a simulation. `rate`: requests sent a second. `database`: the used share of its
    processors. `commits`, `statements`, `rows` (changed): of all nodes, for each delivery.
    `lock_share`: the share of the time for which the busiest row of health was locked."""

    rate: float
    database: float
    commits: float
    statements: float
    rows: float
    lock_share: float


class ModelDatabase:
    """The shared parts of the database, and what was used of them."""

    def __init__(self, costs: Costs, processors: Processors) -> None:
        self.costs, self.processors = costs, processors
        self.disk = SimulatedDisk(costs.sync)
        self.locks: dict[str, trio.Lock] = {}
        self.locked: dict[str, float] = {}
        self.seconds = 0.0
        self.commits = self.statements = self.rows = 0

    def forget(self) -> None:
        """Begin to count."""
        self.seconds = 0.0
        self.locked.clear()
        self.commits = self.statements = self.rows = 0

    async def work(self, statements: int, rows: int) -> None:
        """Take the time of statements that change so many rows."""
        self.statements += statements
        self.rows += rows
        seconds = statements * self.costs.statement + rows * self.costs.row
        self.seconds += seconds
        await self.processors.run(seconds)


@dataclass
class _Counts:
    """The statements of one transaction, before it first locked a row of health and after."""

    statements: int = 0
    after: int = 0
    health: list[str] = field(default_factory=list)


class ModelStore(Store):
    """A node's store: the inner one does the work, the model takes its time."""

    def __init__(self, inner: Store, database: ModelDatabase) -> None:
        self.readers, self.writers = inner.readers, inner.writers
        self._inner, self._database = inner, database
        self._connections = trio.CapacityLimiter(WRITER_THREADS)

    async def write(self, fn: Callable[[Tx], T], *, durable: bool = True) -> T:
        """See `Store.write`."""
        async with self._connections:
            counts, changed = _Counts(), [0]
            result: T = await self._inner.write(
                partial(_counted, fn, counts, changed), durable=durable
            )
            await self._take(counts, changed[0], durable=durable)
            return result

    async def read(self, fn: Callable[[Tx], T], *, reserved: bool = False) -> T:
        """See `Store.read`."""
        counts = _Counts()
        result: T = await self._inner.read(
            lambda tx: fn(_CountingTx(tx, counts)), reserved=reserved
        )
        await self._travel(counts.statements)
        await self._database.work(counts.statements, 0)
        return result

    async def _take(self, counts: _Counts, changed: int, *, durable: bool) -> None:
        """Take the time of a transaction: its statements, its locks, its commit."""
        database = self._database
        database.commits += 1
        first = counts.statements - counts.after
        await self._travel(first + 1)  # with BEGIN
        rows_after = 2 * len(counts.health)
        await database.work(first, max(0, changed - rows_after))
        async with AsyncExitStack() as locks:
            for webhook in counts.health:
                await locks.enter_async_context(database.locks.setdefault(webhook, trio.Lock()))
            began = trio.current_time()
            await self._travel(counts.after + 1)  # with COMMIT
            await database.work(counts.after, rows_after)
            if changed and durable:
                await database.disk.sync()
            for webhook in counts.health:
                held = trio.current_time() - began
                database.locked[webhook] = database.locked.get(webhook, 0.0) + held

    async def _travel(self, statements: int) -> None:
        await trio.sleep(statements * self._database.costs.way)

    def on_external_commit(self, callback: Callable[[], None]) -> Callable[[], None]:
        """See `Store.on_external_commit`."""
        return self._inner.on_external_commit(callback)

    def notify_others(self) -> None:
        """See `Store.notify_others`."""
        self._inner.notify_others()

    def poll(self) -> None:
        """See `Store.poll`."""
        self._inner.poll()

    def statistics(self) -> StoreStatistics:
        """See `Store.statistics`."""
        return self._inner.statistics()


def _counted(fn: Callable[[Tx], T], counts: _Counts, changed: list[int], tx: Tx) -> T:
    before = tx.raw(_CHANGES)[0]["changes"]
    result = fn(_CountingTx(tx, counts))
    changed[0] = tx.raw(_CHANGES)[0]["changes"] - before
    return result


class _CountingTx(ForwardingTx):
    """Counts the statements of a transaction, and notes whose health it updates."""

    def __init__(self, inner: Tx, counts: _Counts) -> None:
        super().__init__(inner)
        self._counts = counts

    def before_statement(self, params: Mapping[str, Any]) -> None:
        counts = self._counts
        counts.statements += 1
        if "tallies" in params and not counts.health:
            counts.health = [row[0] for row in msgspec.json.decode(params["tallies"])]
        if counts.health:
            counts.after += 1


class _ModelNode(SimulatedNode):
    """A node whose store takes the time of the model."""

    database: ModelDatabase

    def store_of(self, inner: Store, incarnation: Incarnation, rng: random.Random) -> Store:
        """See `SimulatedNode.store_of`."""
        return ModelStore(inner, self.database)


@dataclass
class _Receivers:
    """Receivers as one node sees them: a delivery costs the node's processor, then takes its time.

    `sent` holds the time of each request, of all nodes.
    """

    processors: Processors
    node_seconds: float
    answer_seconds: float
    nursery: trio.Nursery
    sent: list[float]

    async def accept(self, wire: SimulatedWire) -> None:
        """See `Listener`."""
        self.nursery.start_soon(self._serve, wire)

    async def _serve(self, wire: SimulatedWire) -> None:
        request = b""
        while data := await wire.read():
            request += data
            head, found, body = request.partition(b"\r\n\r\n")
            if not found or len(body) < _length_of(head):
                continue
            request = b""
            await self.processors.run(self.node_seconds)
            self.sent.append(trio.current_time())
            await trio.sleep(self.answer_seconds)
            wire.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        wire.end()


def _length_of(head: bytes) -> int:
    return int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])


def simulate_fleet(fleet: Fleet, costs: Costs) -> FleetResult:
    """Deliver the events, which are due at once, with so many nodes."""
    where = _FAST_DISK if _FAST_DISK.is_dir() else None
    clock = MockClock(autojump_threshold=0)
    with tempfile.TemporaryDirectory(dir=where) as folder, task_order(1):
        return trio.run(_run, fleet, costs, Path(folder), clock=clock)


async def _run(fleet: Fleet, costs: Costs, folder: Path) -> FleetResult:
    urls = [f"http://127.0.{n // 250}.{n % 250 + 1}:8080/hook" for n in range(fleet.receivers)]
    config = _config(folder, fleet)
    clock = WallClock()
    await _record(config, clock, urls, fleet.events)
    one_machine = None if fleet.shared is None else Processors(fleet.shared)
    database = ModelDatabase(costs, one_machine or Processors(fleet.database_processors))
    sent: list[float] = []
    async with trio.open_nursery() as nursery:
        nodes = []
        for number in range(1, fleet.nodes + 1):
            receivers = _Receivers(
                one_machine or Processors(1), costs.node, fleet.answer_seconds, nursery, sent
            )
            environment = _environment(f"node {number}", clock, nursery, receivers, urls)
            node = _ModelNode(f"node{number}", config, environment)
            node.database = database
            nodes.append(node)
        for node in nodes:
            if not await node.start():
                raise RuntimeError(f"{node.name} did not start")
        await _release(config, clock)
        database.forget()
        for node in nodes:
            assert node.up is not None
            node.up.site.store.poll()
        began = trio.current_time()
        while len(sent) < fleet.events:
            await trio.sleep(0.01)
            if trio.current_time() - began > 3600:
                raise RuntimeError(f"{len(sent)} of {fleet.events} were sent in an hour")
        seconds = max(sent) - began
        result = _result(fleet, database, sent, seconds)
        for node in nodes:
            await node.kill()
        nursery.cancel_scope.cancel()
    return result


def _result(
    fleet: Fleet, database: ModelDatabase, sent: list[float], seconds: float
) -> FleetResult:
    sent.sort()
    first, last = (sent[int(share * (len(sent) - 1))] for share in _MIDDLE)
    between = (_MIDDLE[1] - _MIDDLE[0]) * len(sent)
    processors = fleet.shared or fleet.database_processors
    return FleetResult(
        between / max(last - first, 1e-9),
        database.seconds / seconds / processors,
        database.commits / len(sent),
        database.statements / len(sent),
        database.rows / len(sent),
        max(database.locked.values(), default=0.0) / seconds,
    )


def _config(folder: Path, fleet: Fleet) -> Config:
    return make_config(
        folder,
        database=f"sqlite:///{folder / 'fw.db'}",
        per_receiver_concurrency=fleet.slots,
        scheduler=False,
    )


async def _record(config: Config, clock: WallClock, urls: Sequence[str], events: int) -> None:
    """Record deliveries that are due in an hour, in turns for each receiver."""
    async with open_site(config, clock=clock, inline=True, durable=False) as site:

        def subscribe(fw: Fw) -> None:
            for number, url in enumerate(urls):
                hook = {"event_type": "Custom", "custom_event": f"{EVENT}.r{number}"}
                fw.new_doc("Webhook", url=url, secret=SECRET, **hook).insert()

        def emit(first: int, fw: Fw) -> None:
            for number in range(first, min(first + _EVENTS_A_TRANSACTION, events)):
                fw.webhooks.emit(f"{EVENT}.r{number % len(urls)}", data())

        await site.write(ADMINISTRATOR, subscribe)
        for first in range(0, events, _EVENTS_A_TRANSACTION):
            await site.write(ADMINISTRATOR, partial(emit, first))
        await site.store.write(lambda tx: tx.run(_HOLD, at=tx.now + 3_600_000))


async def _release(config: Config, clock: WallClock) -> None:
    async with open_site(config, clock=clock, inline=True, durable=False) as site:
        await site.store.write(lambda tx: tx.run(_RELEASE, at=tx.now))


def _environment(
    seed: str,
    clock: WallClock,
    nursery: trio.Nursery,
    receivers: _Receivers,
    urls: Sequence[str],
) -> SimulatedEnvironment:
    listeners: dict[Origin, Any] = {
        parse_endpoint(url, development=False).origin: receivers for url in urls
    }

    def failed(incarnation: Incarnation, error: Exception) -> None:
        raise RuntimeError(f"{incarnation.label} failed") from error

    def stamp(message: Any) -> ReceivedMail:
        return ReceivedMail(trio.current_time(), clock.now(), 0, message)

    def nothing(incarnation: Incarnation, up: NodeProcess) -> None: ...

    return SimulatedEnvironment(
        seed, clock, SimulationTrace(trio.current_time()), nursery, StoreFaults(), listeners,
        SimulatedMailServer(random.Random(1), stamp), lambda incarnation: None,
        lambda password: None, failed, nothing, lambda: None,
    )  # fmt: skip
