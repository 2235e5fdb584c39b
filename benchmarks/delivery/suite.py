"""The suite `delivery`: the rate from recorded events to recorded outcomes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Final
from unittest.mock import patch

import trio
import trustme

from benchmarks.delivery import backlog, h11_loop, latency, plain_tasks, service
from benchmarks.delivery.receivers import bad_receivers
from benchmarks.delivery.retries import late_milliseconds
from benchmarks.delivery.site import site_of
from benchmarks.nginx import Nginx, counted_by_all, running_nginx
from benchmarks.rows import BenchmarkRow, Comparison, Effort, SecondReference

IDLE_MS: Final = 3.0
CLAIM_MS: Final = 5.0
START_SECONDS: Final = 2.0
MEMORY_MB: Final = 50.0
HEALTHY: Final = 17
FINISHED, DUE = 20_000, 2_000
MANY_FINISHED, MANY_DUE = 1_000_000, 100_000
MANY_EVENTS: Final = 20_000

# A file system as a site would have it: on many machines /tmp is memory, where a commit is free.
_FOLDER: Final = Path(__file__).parents[2] / "build"
_THROUGHPUT: Final = ("end_to_end", "two_processes")
_ORDERED: Final = "ordered_64"
DOCUMENTS: Final = 64
_LATENCY: Final = ("idle_p50_ms", "backlog", "backlog_claim", "backlog_start", "backlog_memory")
_ACTORS: Final = "actor_instructions"
_LOADS: Final = tuple(
    (f"receivers_{receivers}" + ("_tls" if secure else ""), receivers, secure)
    for secure in (False, True)
    for receivers in (1, 20, 100)
)
_LATE: Final[Mapping[str, float]] = MappingProxyType({"retries_p50": 0.5, "retries_p99": 0.99})
_LOOP: Final = "bare h11 loop on trio, nothing durable"
_TLS_LOOP: Final = f"{_LOOP}, over TLS on kept connections"


def rows(effort: Effort) -> Iterator[BenchmarkRow]:
    """Measure the suite."""
    _FOLDER.mkdir(exist_ok=True)
    for measure in (
        _throughput,
        _ordered,
        _hanging,
        _latency,
        _actors,
        *((_load, _retries) if effort.long else ()),
    ):
        yield from measure(effort)


def names(*, long: bool) -> Sequence[str]:
    """Return the names of the rows; with `long`, those of the load runs too."""
    more = (*(name for name, _, _ in _LOADS), *_LATE) if long else ()
    return (*_THROUGHPUT, _ORDERED, "hanging", *_LATENCY, _ACTORS, *more)


def _throughput(effort: Effort) -> Iterator[BenchmarkRow]:
    with _nginx() as nginx:
        for name, ours in zip(_THROUGHPUT, (_ours, _ours_in_two), strict=True):
            if effort.wants(name):
                yield _against_the_loop(name, nginx, effort.events, ours).measure(effort)


def _against_the_loop(
    name: str, nginx: Nginx, events: int, ours: Callable[..., object]
) -> Comparison:
    return Comparison(
        suite="delivery",
        name=name,
        unit="deliveries/s",
        ours=partial(counted_by_all, nginx, events, ours),  # type: ignore[arg-type]
        reference=partial(counted_by_all, nginx, events, h11_loop.post_to_all),
        reference_name=_LOOP,
    )


async def _ours(urls: Sequence[str], events: int) -> float:
    with TemporaryDirectory(dir=_FOLDER) as site:
        return await service.deliver(Path(site), urls, events)


async def _ours_in_two(urls: Sequence[str], events: int) -> float:
    with TemporaryDirectory(dir=_FOLDER) as site:
        return await service.deliver(Path(site), urls, events, processes=2)


def _ordered(effort: Effort) -> Iterator[BenchmarkRow]:
    """Events about 64 documents, one at a time for each, against the same in no order."""
    if not effort.wants(_ORDERED):
        return

    async def about_documents(ordering: str, urls: Sequence[str], events: int) -> float:
        with TemporaryDirectory(dir=_FOLDER) as site:
            return await service.deliver(
                Path(site), urls, events, documents=DOCUMENTS, ordering=ordering
            )

    with _nginx() as nginx:
        ours, reference = (
            partial(counted_by_all, nginx, effort.events, partial(about_documents, ordering))
            for ordering in ("document", "none")
        )
        yield Comparison(
            "delivery", _ORDERED, "deliveries/s", ours, reference, "ours in no order"
        ).measure(effort)


def _hanging(effort: Effort) -> Iterator[BenchmarkRow]:
    """20 receivers of which one hangs, one refuses and one takes 2 s, against the other 17."""
    if not effort.wants("hanging"):
        return
    events = effort.events // HEALTHY * HEALTHY
    with _nginx(HEALTHY) as nginx, bad_receivers() as bad:

        async def beside_bad_ones(urls: Sequence[str], events: int) -> float:
            with TemporaryDirectory(dir=_FOLDER) as site:
                return await service.deliver(Path(site), urls, events, bad=bad)

        yield Comparison(
            suite="delivery",
            name="hanging",
            unit="deliveries/s",
            ours=partial(counted_by_all, nginx, events, beside_bad_ones),
            reference=partial(counted_by_all, nginx, events, _ours),
            reference_name="ours without the receivers that hang, refuse and take 2 s",
        ).measure(effort)


def _latency(effort: Effort) -> Iterator[BenchmarkRow]:
    if not effort.wants(*_LATENCY):
        return
    finished, due = (MANY_FINISHED, MANY_DUE) if effort.long else (FINISHED, DUE)
    with (
        TemporaryDirectory(dir=_FOLDER) as empty,
        TemporaryDirectory(dir=_FOLDER) as full,
        bad_receivers() as (dead, *_),
    ):
        backlog.fill(Path(full), finished, due, dead)
        effort.tell(f"delivery/backlog: {finished:,} finished, {due:,} due rows")
        backlog.fill(Path(empty), 0, 0, dead)
        yield from _latencies(effort, Path(empty), Path(full))


def _latencies(effort: Effort, empty: Path, full: Path) -> Iterator[BenchmarkRow]:
    def idle() -> float:
        found = latency.of_single_events(site_of(empty))
        effort.tell(f"delivery/idle_p50_ms: p99 {latency.percentile(found, 0.99):.2f} ms")
        return latency.percentile(found, 0.5)

    behind = Comparison(
        suite="delivery",
        name="backlog",
        unit="ms",
        ours=partial(_first_byte, full, 0.99),
        reference=partial(_first_byte, empty, 0.99),
        reference_name="commit to first byte, p99, in an empty store",
        less_is_better=True,
    )
    claim, start = partial(backlog.claim_milliseconds, full), partial(backlog.start_seconds, full)
    for comparison in (
        _aim("idle_p50_ms", "ms", idle, IDLE_MS),
        behind,
        _aim("backlog_claim", "ms", claim, CLAIM_MS),
        _aim("backlog_start", "s", start, START_SECONDS),
        _aim("backlog_memory", "MB more", partial(_more_memory, empty, full), MEMORY_MB),
    ):
        if effort.wants(comparison.name):
            yield comparison.measure(effort)


def _first_byte(site: Path, share: float) -> float:
    return latency.percentile(latency.of_single_events(site_of(site)), share)


def _more_memory(empty: Path, full: Path) -> float:
    return max(0.01, backlog.resident_megabytes(full) - backlog.resident_megabytes(empty))


def _aim(name: str, unit: str, ours: Callable[[], float], limit: float) -> Comparison:
    return Comparison(
        "delivery", name, unit, ours, lambda: limit, "the most it may be", less_is_better=True
    )


def _actors(effort: Effort) -> Iterator[BenchmarkRow]:
    """Measure what an actor for each delivery costs: instructions, against plain tasks."""
    if not effort.wants(_ACTORS):
        return

    async def count(how: str, urls: Sequence[str], events: int) -> float:
        with TemporaryDirectory(dir=_FOLDER) as site:
            return plain_tasks.instructions(Path(site), urls[0], events, how)

    with _nginx() as nginx:
        ours, reference = (
            partial(counted_by_all, nginx, effort.events, partial(count, how))
            for how in ("actors", "tasks")
        )
        try:
            row = Comparison(
                "delivery",
                _ACTORS,
                "instructions/delivery",
                ours,
                reference,
                "ours, with a plain task for each delivery instead of an actor",
                less_is_better=True,
            ).measure(effort)
        except plain_tasks.NoCounter as reason:
            effort.tell(f"delivery/{_ACTORS} is left out: {reason}")
            return
        yield row


def _load(effort: Effort) -> Iterator[BenchmarkRow]:
    """20,000 events to 1, 20 and 100 receivers, with and without TLS.

    The loop of a row over TLS has TLS and kept connections too; a second row has the same figures
    of ours against the loop without TLS.
    """
    for name, receivers, secure in _LOADS:
        if not effort.wants(name):
            continue
        with ExitStack() as running:
            nginx = running.enter_context(_nginx(receivers, secure=secure))
            comparison = _against_the_loop(name, nginx, MANY_EVENTS, _ours)
            if secure:
                plain = running.enter_context(_nginx(receivers))
                loop = partial(counted_by_all, plain, MANY_EVENTS, h11_loop.post_to_all)
                second = SecondReference(f"{name}_to_plain", loop, f"{_LOOP}, without TLS")
                comparison = replace(comparison, reference_name=_TLS_LOOP, second=second)
            yield from comparison.measure_all(effort)


def _retries(effort: Effort) -> Iterator[BenchmarkRow]:
    """Measure how late retries are: one for each event, all due in the same second."""
    with _nginx() as nginx:

        def late(share: float) -> float:
            with TemporaryDirectory(dir=_FOLDER) as site:
                found = trio.run(late_milliseconds, Path(site), nginx.hook, effort.events)
            return latency.percentile(found, share)

        def of_the_loop(share: float) -> float:
            rate = trio.run(h11_loop.post, nginx.hook, effort.events)
            return max(1.0, share * (effort.events / rate - 1.0) * 1000)

        for name, share in _LATE.items():
            if effort.wants(name):
                yield Comparison(
                    "delivery",
                    name,
                    "ms late",
                    partial(late, share),
                    partial(of_the_loop, share),
                    "bare h11 loop on trio, which has them in memory",
                    less_is_better=True,
                ).measure(effort)


@contextmanager
def _nginx(receivers: int = 1, *, secure: bool = False) -> Iterator[Nginx]:
    """Run nginx; with `secure`, over TLS, its authority trusted through `SSL_CERT_FILE`."""
    with TemporaryDirectory(dir=_FOLDER) as folder:
        if not secure:
            with running_nginx(Path(folder), receivers) as nginx:
                yield nginx
            return
        authority, certificate = Path(folder) / "authority.pem", Path(folder) / "receiver.pem"
        made = trustme.CA()
        made.cert_pem.write_to_path(authority)
        made.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
        trusting = patch.dict(os.environ, {"SSL_CERT_FILE": str(authority)})
        with trusting, running_nginx(Path(folder), receivers, certificate) as nginx:
            yield nginx
