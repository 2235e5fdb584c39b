"""The limits that the pages about the front end, architecture and scaling name are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fw_actors.access.attempts import BUCKET_BYTES, MAX_COUNTERS_IN_BUCKET
from fw_actors.hashing.hasher import HashQueue
from fw_actors.http.dial import MAX_PER_HOST, MAX_THREADS
from fw_actors.http.response import MAX_BODY_BYTES, MAX_RESPONSE_BYTES
from fw_actors.runtime import RestartIntensity
from fw_actors.store.postgres import LOOKUP_THREADS, READER_THREADS, WRITER_THREADS
from fw_actors.store.postgres_connection import MIN_SERVER_VERSION
from fw_actors.store.store import MAX_WAITING_READS, MAX_WAITING_WRITES
from fw_actors.store.trio_sqlite import MIN_SQLITE_VERSION
from fw_actors.webhooks.claims import MAX_BYTES_IN_FLIGHT
from fw_actors.webhooks.events import MAX_DELIVERIES, MAX_EVENTS, MAX_RECORDED_BYTES
from supervisors.service.assembly import MAX_LOCKOUTS
from supervisors.service.control_channel import GATHER_SECONDS
from supervisors.service.front import START_WAIT_SECONDS, STARTING_REQUESTS
from supervisors.service.process import DRAIN_SECONDS, GRACEFUL_SECONDS
from supervisors.service.processes import AWAY_SECONDS, CHECK_SECONDS
from web.connections import (
    PART_BYTES,
    REQUEST_SECONDS,
    SEND_SECONDS,
    SPARE_CONNECTIONS,
    ConnectionLimits,
)
from web.http11 import DISCARD_SECONDS, MAX_DISCARDED_BYTES, MAX_HEAD_BYTES, REQUESTS_PER_CONNECTION
from web.operations import DEFAULT_BODY_BYTES, SMALL_BODY_BYTES
from web.request import INITIAL_BODY_SECONDS, MAX_BODY_SECONDS, MIN_BYTES_PER_SECOND
from web.response import MAX_STREAMS
from web.routes.webhooks import MAX_BATCH_BYTES

DOCS = Path(__file__).parents[2] / "docs"
CONNECTIONS = ConnectionLimits()
KIB, MIB = 1024, 1024 * 1024

WEB: list[tuple[str, list[float]]] = [  # how a row begins, and the numbers that follow in it
    ("requests in progress", [503]),
    ("connections |", [SPARE_CONNECTIONS]),
    ("requests of a connection", [REQUESTS_PER_CONNECTION]),
    ("head of a request", [MAX_HEAD_BYTES // KIB, 431, REQUEST_SECONDS]),
    ("body |",
     [SMALL_BODY_BYTES // KIB, MAX_BATCH_BYTES // MIB, DEFAULT_BODY_BYTES // MIB, 413,
      INITIAL_BODY_SECONDS, MIN_BYTES_PER_SECOND, MAX_BODY_SECONDS, 408]),
    ("incomplete bodies together",
     [CONNECTIONS.body_bytes // MIB, CONNECTIONS.body_bytes_by_address // MIB]),
    ("the rest of a rejected body", [DISCARD_SECONDS, MAX_DISCARDED_BYTES // MIB]),
    ("responses that clients are slow to read, together",
     [CONNECTIONS.unread_bytes // MIB, CONNECTIONS.unread_bytes_by_address // MIB]),
    ("part of a response", [PART_BYTES // KIB, SEND_SECONDS]),
    ("open event streams", [MAX_STREAMS, 503]),
    ("start |", [503, STARTING_REQUESTS, START_WAIT_SECONDS, 503]),
    ("stop |", [DRAIN_SECONDS]),
]  # fmt: skip

ARCHITECTURE: list[tuple[str, list[float]]] = [
    ("connections |", [SPARE_CONNECTIONS]),
    ("unfinished bodies",
     [CONNECTIONS.body_bytes // MIB, CONNECTIONS.body_bytes_by_address // MIB]),
    ("responses waiting for slow readers",
     [CONNECTIONS.unread_bytes // MIB, CONNECTIONS.unread_bytes_by_address // MIB]),
    ("sign-ins waiting for a hash", [HashQueue.SIGN_IN.value]),
    ("calls waiting for the store", [MAX_WAITING_READS, MAX_WAITING_WRITES]),
    ("LockoutActors", [MAX_LOCKOUTS]),
    ("deliveries in memory", [MAX_BYTES_IN_FLIGHT // MIB]),
    ("DNS look-ups", [MAX_THREADS, MAX_PER_HOST]),
    ("an answer of a receiver", [MAX_RESPONSE_BYTES // KIB, MAX_BODY_BYTES]),
    ("event streams", [MAX_STREAMS]),
]  # fmt: skip


def numbers_after(page: str, begin: str) -> list[float]:
    """Return the numbers in the row of a table that begins so."""
    lines = (DOCS / page).read_text().split("## Limits")[1].split("\n## ")[0].splitlines()
    (row,) = [line for line in lines if line.startswith(f"| {begin}")]
    rest = re.sub(r"`[^`]*`", "", row.removeprefix(f"| {begin}")).replace(",", "")
    return [float(number) for number in re.findall(r"\b\d+\b", rest)]


@pytest.mark.parametrize(("begin", "numbers"), WEB, ids=[begin for begin, _ in WEB])
def test_limits_of_web_page_equal_those_of_the_code(begin: str, numbers: list[float]) -> None:
    """H-11, H-108, H-120, H-122, H-124 to H-128, H-140."""
    assert numbers_after("web.md", begin)[: len(numbers)] == numbers


@pytest.mark.parametrize(("begin", "numbers"), ARCHITECTURE, ids=[row for row, _ in ARCHITECTURE])
def test_limits_of_architecture_page_equal_those_of_the_code(
    begin: str, numbers: list[float]
) -> None:
    assert numbers_after("architecture.md", begin)[: len(numbers)] == numbers
    assert (1 << 8 * BUCKET_BYTES) * MAX_COUNTERS_IN_BUCKET // 1_000_000 == 4


def test_limits_of_emitting_page_equal_those_of_the_code() -> None:
    """B-88, H-11."""
    page = (DOCS / "emitting-events.md").read_text()
    assert f"up to {MAX_EVENTS:,} events are recorded at once" in page
    assert (
        f"at most {MAX_BATCH_BYTES // MIB} MiB (413) and an event "
        f"{DEFAULT_BODY_BYTES // MIB} MiB (its" in page
    )
    limit = MAX_RECORDED_BYTES // MIB
    assert f"more than {MAX_DELIVERIES:,} deliveries, or {limit} MiB of bodies" in page


def test_limits_of_several_processes_equal_those_of_the_code() -> None:
    """O-31, O-44, O-49."""
    page = (DOCS / "scaling.md").read_text()
    intensity = RestartIntensity()
    first, last = f"{intensity.backoff:g}", f"{intensity.backoff_cap:g}"
    assert f"a delay that doubles from {first} to {last} s" in page
    assert intensity.restarts == 5
    assert f"| more than five ends within {intensity.seconds:g} s |" in page
    assert f"One is started every {AWAY_SECONDS:g} s until the database is back" in page
    assert f"within the {DRAIN_SECONDS:g} and {GRACEFUL_SECONDS:g} s of any service" in page
    assert f"The others wait for it at most {GATHER_SECONDS:g} s" in page
    assert f"Every {CHECK_SECONDS:g} s (under systemd a third of" in page


def test_limits_of_databases_equal_those_of_the_code() -> None:
    """O-10."""
    operating, scaling = (DOCS / "operating.md").read_text(), (DOCS / "scaling.md").read_text()
    assert f"SQLite ({'.'.join(map(str, MIN_SQLITE_VERSION[:2]))} or newer" in operating
    assert f"PostgreSQL {MIN_SERVER_VERSION // 10_000} or newer" in operating
    limit = WRITER_THREADS + READER_THREADS + LOOKUP_THREADS + 1
    assert f"each worker has up to {limit} connections" in operating
    assert (
        f"up to {limit}: {WRITER_THREADS} writers, {READER_THREADS} readers, "
        f"{LOOKUP_THREADS} for lookups, 1 for LISTEN"
    ) in scaling
