"""The suite `scaling`: the cost of an event for PostgreSQL, and simulated fleets of nodes.

Rows `cost_*` and `room_*`: the resources of one delivery; the reference is its payload, or one
second of a processor. Rows `model_*`: simulated nodes on the processors of this machine, against as
many real ones. Rows `fleet_*`: simulated nodes on machines of their own, against as many times one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from benchmarks import nodes as real
from benchmarks.delivery.events import BODY_BYTES, SLOTS
from benchmarks.nginx import running_nginx
from benchmarks.rows import BenchmarkRow, Effort, figure
from benchmarks.scaling.costs import Costs, Usage, statement_seconds, usage
from benchmarks.scaling.fleet import Fleet, FleetResult, simulate_fleet
from benchmarks.scaling.footprint import Footprint, measure
from tests.postgres_cluster import PostgresCluster, postgres_cluster

NODES: Final = (3, 10, 30, 100)
SLOW_SLOTS: Final = 16
KEPT: Final = 1_000_000
KEPT_LONG: Final = 10_000_000
EVENTS_A_NODE: Final = 1000
MANY: Final = 50
"""From so many nodes on half as many events: a simulated delivery takes a millisecond."""
RECEIVERS: Final = 64
NETWORK_WAY: Final = 0.0005
"""Seconds there and back to a database on another machine, where this one's socket is faster."""
_FOLDER: Final = Path(__file__).parents[2] / "build"


def rows(effort: Effort) -> Iterator[BenchmarkRow]:
    """Measure the suite."""
    _FOLDER.mkdir(exist_ok=True)
    with postgres_cluster(durable=True) as cluster, running_nginx(_FOLDER) as nginx:
        with cluster.empty_database() as url:
            used, costs = _measured_costs(cluster, url, nginx.hook, effort)
            yield from _cost_rows(used, effort.events)
            kept = measure(url, KEPT_LONG if effort.long else KEPT)
        yield from _room_rows(kept)
        yield from _model_rows(cluster, costs, nginx.hook, effort)
    yield from _fleet_rows(costs, effort)


def _measured_costs(
    cluster: PostgresCluster, url: str, hook: str, effort: Effort
) -> tuple[dict[str, Usage], Costs]:
    """Deliver by one real node, and take apart what was used."""
    work = real.EventLoad(hook, effort.events, SLOTS)
    used: dict[str, Usage] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        config = real.site(folder, url, work.slots)
        trio.run(real.record, config, real.EventLoad(hook, 1, SLOTS))  # tables and Webhook
        before = usage(cluster, url)
        trio.run(real.emit_all, config, work)
        used["record"] = usage(cluster, url).since(before)
        stack.enter_context(real.node(folder, url))
        before = usage(cluster, url)
        trio.run(real.until_delivered, config, work.events + 1)
        used["deliver"] = usage(cluster, url).since(before)
    statement, way, sync = statement_seconds(url, cluster)
    quick = simulate_fleet(Fleet(1, effort.events), Costs(1e-4, 0.0, 0.0, way, sync))
    deliver = used["deliver"]
    row = max(0.0, deliver.database / work.events - quick.statements * statement) / quick.rows
    costs = Costs(deliver.nodes / work.events, row, statement, way, sync)
    effort.tell(f"scaling: costs in microseconds: {_in_microseconds(costs)}")
    return used, costs


def _in_microseconds(costs: Costs) -> str:
    names = ("node", "row", "statement", "way", "sync")
    return ", ".join(f"{name} {getattr(costs, name) * 1e6:.0f}" for name in names)


def _cost_rows(used: dict[str, Usage], events: int) -> Iterator[BenchmarkRow]:
    for name, what in used.items():
        each = what.wal_bytes / events
        yield _row(f"{name}_wal", "bytes/event", each, BODY_BYTES, "its payload")
        yield _row(f"{name}_syncs", "syncs/event", what.wal_syncs / events, 1.0, "one")
        yield _row(f"{name}_commits", "commits/event", what.commits / events, 1.0, "one")
        micros = what.database / events * 1e6
        yield _row(f"{name}_database", "us/event", micros, 1e6, "a second of a processor")


def _room_rows(kept: Footprint) -> Iterator[BenchmarkRow]:
    count = figure(kept.rows)
    yield _row("room_rows", "bytes/delivery", kept.table, BODY_BYTES, f"payload; {count} kept")
    yield _row("room_indexes", "bytes/delivery", kept.indexes, kept.table, "the row")
    seconds = kept.delete_seconds + kept.vacuum_seconds
    yield _row("retention", "s a tenth", seconds, kept.drop_seconds, "a partition dropped")
    megabytes = kept.delete_wal / 1e6
    yield _row("retention_wal", "MB a tenth", megabytes, kept.drop_wal / 1e6, "a partition dropped")


def _model_rows(
    cluster: PostgresCluster, costs: Costs, hook: str, effort: Effort
) -> Iterator[BenchmarkRow]:
    """Nodes on the processors of this machine: what the model says, and what real ones show."""
    shared = os.cpu_count() or 1
    slow_events = max(1, effort.events // real.SLOW_SHARE)
    with real.slow_receiver() as slow:
        works = {
            "quick": (real.EventLoad(hook, effort.events, SLOTS), 0.0),
            "slow": (real.EventLoad(slow, slow_events, SLOW_SLOTS), real.SLOW_SECONDS),
        }
        for name, (work, seconds) in works.items():
            for count in real.NODES:
                fleet = Fleet(count, work.events, 1, work.slots, seconds, shared=shared)
                theirs = real.on_postgres(cluster, work, count)
                ours = simulate_fleet(fleet, costs).rate
                effort.tell(f"scaling/model_{name}_{count}: {figure(ours)}, real {figure(theirs)}")
                yield _row(f"model_{name}_{count}", "deliveries/s", ours, theirs, "real nodes")


def _fleet_rows(costs: Costs, effort: Effort) -> Iterator[BenchmarkRow]:
    """Nodes on machines of their own, over a network."""
    away = Costs(costs.node, costs.row, costs.statement, NETWORK_WAY, costs.sync)
    for receivers in (1, RECEIVERS):
        one = simulate_fleet(Fleet(1, 4000, receivers), away)
        _report(effort, 1, receivers, one)
        for count in NODES:
            events = count * (EVENTS_A_NODE if count < MANY else EVENTS_A_NODE // 2)
            many = simulate_fleet(Fleet(count, events, receivers), away)
            _report(effort, count, receivers, many)
            yield _row(
                f"fleet_{count}_receivers_{receivers}", "requests/s", many.rate,
                one.rate * count, f"{count} times one node",
            )  # fmt: skip


def _report(effort: Effort, nodes: int, receivers: int, result: FleetResult) -> None:
    effort.tell(
        f"scaling: {nodes} nodes, {receivers} receivers: {figure(result.rate)}/s, database "
        f"{result.database:.0%}, {result.commits:.3f} commits and {result.statements:.2f} "
        f"statements a delivery, health locked {result.lock_share:.0%}"
    )


def _row(name: str, unit: str, ours: float, theirs: float, of: str) -> BenchmarkRow:
    rate = ours / theirs if unit.endswith("/s") else theirs / ours if ours else 0.0
    return BenchmarkRow("scaling", name, unit, ours, theirs, of, rate)
