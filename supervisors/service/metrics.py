"""The samples of `/metrics`, read from their sources at each request."""

from __future__ import annotations

import shutil
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import msgspec
import trio
from prometheus_client import ProcessCollector

from fw_actors import BUILD
from fw_actors.actors.background import read_with_deadline
from fw_actors.actors.metrics import Histogram, MetricSample
from fw_actors.ops.console_facts import locked_identifiers, longest_waits, queues
from fw_actors.store import QueueStats, Tx
from fw_actors.webhooks.pacing import paused_webhooks, webhooks_at_limit
from fw_actors.webhooks.subscriptions import Subscriptions, changed_webhooks
from supervisors.service.assembly import PROBE, ServiceDependencies
from supervisors.service.control_channel import PeerProcesses
from web.exchange import RequestMetrics
from web.routes.health import system_samples

OUTCOME: Final = "outcome"
QUEUE: Final = "queue"
ACTOR: Final = "actor"
PROCESS: Final = "process"
BACKLOG_PROBE: Final = "backlog"
"""The StoreProbe that counts jobs, which may take seconds."""
BACKLOG_SECONDS: Final = 5.0
"""The time of all reads; half of Prometheus's scrape timeout."""


class ProcessMetrics:
    """Returns the current samples when called."""

    def __init__(self, deps: ServiceDependencies) -> None:
        self._deps = deps

    async def __call__(self) -> Sequence[MetricSample]:
        """Return all samples; figures of the store only if it answers."""
        return [*self.of_process(), *await self.of_store()]

    def of_process(self) -> Sequence[MetricSample]:
        """Return the samples of this process."""
        return [*self._access(), *self._delivery(), *self._store(), *self._runtime()]

    async def of_store(self) -> Sequence[MetricSample]:
        """Return the samples that are the same in all processes: without an answer only
        whether it answers, and the free space of its disk."""
        runtime = self._deps.runtime
        deadline = trio.current_time() + BACKLOG_SECONDS
        figures = await read_with_deadline(runtime.ref(PROBE), self._read, BACKLOG_SECONDS)
        state = [
            _gauge("fw_store_up", "Whether the store answers.", figures is not None),
            *self._disk(),
        ]
        if figures is None:
            return state
        # Apart from the others, because it reads all jobs.
        seconds = deadline - trio.current_time()
        counts = await read_with_deadline(runtime.ref(BACKLOG_PROBE), queues, seconds)
        waits, locked, stored, paused, limited = figures
        text = "Paused Webhooks, including disabled ones; their deliveries wait."
        at_limit = "Webhooks with a rate limit that have deliveries due."
        return [
            *state,
            *self._stale(stored),
            _gauge("fw_webhooks_paused", text, paused),
            _gauge("fw_webhooks_at_limit", at_limit, limited),
            _gauge("fw_locked_identifiers", "Locked identifiers.", locked),
            *_of_queues("fw_queue_jobs", counts or ()),
            *_waits(waits),
        ]

    def _read(self, tx: Tx) -> tuple[Mapping[str, float], int, Subscriptions, int, int]:
        return (
            longest_waits(tx),
            locked_identifiers(tx),
            self._deps.site.subscriptions.stored(tx),
            len(paused_webhooks(tx)),
            webhooks_at_limit(tx),
        )

    def _disk(self) -> Iterator[MetricSample]:
        file = self._deps.site.config.sqlite_file
        if file is not None:
            with suppress(OSError):
                free = shutil.disk_usage(file.parent).free
                yield _gauge("fw_store_disk_free_bytes", "Free space of SQLite's disk.", free)

    def _stale(self, stored: Subscriptions) -> Iterator[MetricSample]:
        used = self._deps.site.subscriptions.in_use
        count = 0 if used is None else len(changed_webhooks(used, stored))
        text = "Webhooks changed outside this service, which uses them after a restart."
        yield _gauge("fw_subscriptions_stale", text, count)

    def _access(self) -> Iterator[MetricSample]:
        yield _gauge("fw_info", "The running version.", 1, BUILD._asdict())
        hasher = self._deps.site.hasher.statistics()
        yield _counter("fw_password_hashes", "Password hashes and decoys computed.", hasher.hashes)
        yield _gauge("fw_password_hashes_waiting", "Requests waiting for a hash.", hasher.waiting)
        yield _gauge("fw_password_hashes_running", "Hashes being computed.", hasher.running)
        yield from _by(
            OUTCOME, "fw_sign_ins", "Sign-ins by outcome.", self._deps.signed_in.counts()
        )

    def _delivery(self) -> Iterator[MetricSample]:
        meter = self._deps.delivered
        yield from _by(
            QUEUE,
            "fw_commits_with_jobs",
            "Commits of this process that queued jobs, by queue.",
            self._deps.recorded.counts(),
        )
        for queue, attempted in self._deps.attempted.items():
            for outcome, count in attempted.counts().items():
                yield _counter(
                    "fw_job_attempts",
                    "Attempts of mails and of jobs of apps, by what followed.",
                    count,
                    {QUEUE: queue, OUTCOME: outcome},
                )
        yield from _by(
            OUTCOME,
            "fw_deliveries",
            "Attempts by resulting status of the delivery.",
            meter.counts(),
        )
        yield _histogram("fw_delivery_seconds", "Duration of attempts.", meter.durations)
        yield _histogram(
            "fw_commit_to_send_seconds",
            "Time from an event's commit to its first attempt.",
            meter.waits,
        )
        yield from _by(
            "act",
            "fw_receiver_notices",
            "Webhooks announced as failing, as recovered, or as disabled.",
            self._deps.site.notices.actions,
        )
        pool = self._deps.sender.statistics().pool
        yield _gauge("fw_receiver_connections", "Connections to receivers in use.", pool.in_use)
        yield _gauge("fw_receiver_connections_idle", "Idle connections to receivers.", pool.idle)

    def _store(self) -> Iterator[MetricSample]:
        store = self._deps.site.store.statistics()
        yield _counter("fw_store_commits", "Durable commits.", store.commits)
        yield _counter("fw_store_writes", "Transactions committed, in groups.", store.committed)
        yield _counter(
            "fw_store_rolled_back", "Transactions rolled back individually.", store.rolled_back
        )
        yield _counter("fw_store_refused", "Transactions rejected with 503.", store.refused)
        yield _counter("fw_store_reads", "Snapshots read.", store.reads)
        yield _gauge("fw_store_largest_group", "Most writes in one commit.", store.largest_group)
        yield _gauge("fw_store_waiting_writes", "Waiting writes.", store.waiting_writes)
        yield _gauge("fw_store_waiting_reads", "Waiting reads.", store.waiting_reads)
        for name, text, seconds in (
            ("write", "Time so far of the longest running write.", store.longest_write_seconds),
            ("read", "Time so far of the longest running read.", store.longest_read_seconds),
        ):
            yield _gauge(f"fw_store_longest_{name}_seconds", text, seconds)

    def _runtime(self) -> Iterator[MetricSample]:
        """Yield the counters of actors and pools. Their names are a small fixed set, so they may be
        labels."""
        snapshot = self._deps.runtime.snapshot()
        nodes = [node for node in snapshot.walk() if node.kind in ("actor", "pool")]
        for name, text in (
            ("alive", "Live instances."),
            ("depth", "Messages in mailboxes."),
            ("waiting", "Senders waiting for a full mailbox."),
        ):
            for node in nodes:
                yield _gauge(f"fw_actor_{name}", text, getattr(node, name), {ACTOR: node.name})
        for name, text in (
            ("handled", "Messages handled."),
            ("failed", "Messages whose handler raised."),
            ("handler_seconds", "Time in handlers."),
        ):
            for node in nodes:
                yield _counter(f"fw_actor_{name}", text, getattr(node, name), {ACTOR: node.name})
        for node in snapshot.walk():
            yield _counter("fw_restarts", "Restarts by actor.", node.restarts, {ACTOR: node.name})
        letters = {reason.value: count for reason, count in snapshot.dead_letters.items()}
        yield from _by("reason", "fw_dead_letters", "Undeliverable messages.", letters)
        text = "Replies that arrived after the caller had stopped waiting."
        yield _counter("fw_late_replies", text, snapshot.late_replies)


class ServiceMetrics:
    """Returns the samples of all processes of a multi-process service when called.

    Samples have the label `process`; those of the store appear once. Sums over the label are
    right, also when a process was restarted and counts from 0.
    """

    def __init__(
        self, process_metrics: ProcessMetrics, request_metrics: RequestMetrics, peers: PeerProcesses
    ) -> None:
        self._process_metrics, self._request_metrics, self._peers = (
            process_metrics,
            request_metrics,
            peers,
        )
        self._system = ProcessCollector(registry=None)
        peers.register("metrics", self._answer)

    async def __call__(self) -> Sequence[MetricSample]:
        """Return all samples, including those of other processes that answer."""
        place = self._peers.place
        gathered = await self._peers.gather("metrics")
        by_process = {
            n: msgspec.convert(samples, list[MetricSample])
            for n, samples in gathered.answers.items()
        }
        by_process[place.number] = self._own()
        numbers = range(1, place.count + 1)
        return [
            *_of_processes(numbers, by_process, gathered.restarts),
            *(_of_process(sample, n) for n in sorted(by_process) for sample in by_process[n]),
            *await self._process_metrics.of_store(),
        ]

    def _own(self) -> list[MetricSample]:
        system = system_samples(self._system)
        return [*self._process_metrics.of_process(), *self._request_metrics.samples(), *system]

    async def _answer(self, _argument: object) -> object:
        return msgspec.to_builtins(self._own())


def _of_processes(
    numbers: Sequence[int], answered: Container[int], restarts: Mapping[int, int]
) -> Iterator[MetricSample]:
    for n in numbers:
        labels = {PROCESS: str(n)}
        yield _gauge("fw_process_up", "Whether the process answers.", n in answered, labels)
    text = "Restarts of the process since the start of the service."
    for n in numbers:
        if n in restarts:  # left out, not 0, if the supervisor does not answer: it is a counter
            yield _counter("fw_process_restarts", text, restarts[n], {PROCESS: str(n)})


def _of_process(sample: MetricSample, number: int) -> MetricSample:
    return replace(sample, labels={**sample.labels, PROCESS: str(number)})


def _waits(waits: Mapping[str, float]) -> Iterator[MetricSample]:
    text = "Wait of the oldest due job, without deliveries of paused Webhooks."
    for queue, seconds in waits.items():
        yield _gauge("fw_queue_oldest_seconds", text, seconds, {QUEUE: queue})


def _of_queues(name: str, counts: Sequence[QueueStats]) -> Iterator[MetricSample]:
    for row in counts:
        for state in ("ready", "scheduled", "leased", "failed"):
            labels = {QUEUE: row.queue, "state": state}
            yield _gauge(name, "Jobs by queue and state.", getattr(row, state), labels)


def _by(label: str, name: str, text: str, counts: Mapping[str, int]) -> Iterator[MetricSample]:
    for value, count in counts.items():
        yield _counter(name, text, count, {label: value})


def _counter(
    name: str, text: str, value: float, labels: Mapping[str, str] | None = None
) -> MetricSample:
    return MetricSample(name, "counter", text, value, labels or {})


def _gauge(
    name: str, text: str, value: float, labels: Mapping[str, str] | None = None
) -> MetricSample:
    return MetricSample(name, "gauge", text, value, labels or {})


def _histogram(name: str, text: str, observed: Histogram) -> MetricSample:
    return MetricSample(name, "histogram", text, observed.sum, buckets=observed.buckets())
