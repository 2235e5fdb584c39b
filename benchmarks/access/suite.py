"""The suite `access`: sign-ins, refusals, and their effect on other requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Final

import httpx
import trio

from benchmarks.access import argon2, identifiers, service
from benchmarks.access.load import RequestPlan, load, load_all, request
from benchmarks.access.service import FOLDER, PASSWORD, USERS, Served
from benchmarks.rows import BenchmarkRow, Comparison, Effort

SUITE: Final = "access"
CSRF: Final = ("X-FW-CSRF", "1")
EMPTY: Final = "empty JSON route of Quart-Trio"
SAME: Final = "same JSON from a route of Quart-Trio"
BOOT: Final = "/api/boot"
PROFILE: Final = "/api/method/core.services.profile.getMyProfile"
TRIES_TO_LOCK: Final = 5
MEMORY_MIB: Final = 50.0  # what the counters of all identifiers may take in the process
P99: Final = 0.99
IDLE_TIMES: Final = 3  # as many times its idle p99 may a quick request take under a flood
SIGN_INS_AN_EVENT: Final = 0.02
REQUESTS_AN_EVENT: Final = 0.2
IDENTIFIERS_AN_EVENT: Final = 100


def rows(effort: Effort) -> Iterator[BenchmarkRow]:
    """Measure the suite."""
    with service.site() as ours, service.empty_route() as reference:
        yield _sign_ins(ours, effort)
        yield _throttled(ours, reference, effort)
        yield _authenticated(ours, reference, effort)
        yield _boot(ours, reference, effort)
        with service.front_end() as bare:
            yield _front_end(bare, reference, effort)
        yield _under_flood(ours, effort)
    yield _identifiers(effort)


def _sign_in(user: str, password: str = PASSWORD) -> bytes:
    body = json.dumps({"usr": user, "pwd": password}).encode()
    return request("POST", "/api/login", body, [CSRF])


def _sign_ins(ours: Served, effort: Effort) -> BenchmarkRow:
    each = max(1, round(effort.events * SIGN_INS_AN_EVENT / USERS))
    return Comparison(
        suite=SUITE,
        name="sign_ins",
        unit="sign-ins/s",
        ours=lambda: load_all(ours.port, _flood(each)).rate,
        reference=partial(argon2.verify, each * USERS),
        reference_name="argon2 alone on all cores",
    ).measure(effort)


def _flood(each: int | None) -> list[RequestPlan]:
    """Have all users sign in side by side, `each` times."""
    return [RequestPlan(_sign_in(f"user{number}"), 200, each) for number in range(USERS)]


def _throttled(ours: Served, reference: Served, effort: Effort) -> BenchmarkRow:
    wrong = _sign_in("victim", "wrong")
    with httpx.Client(base_url=f"http://127.0.0.1:{ours.port}", headers=[CSRF]) as client:
        for _ in range(TRIES_TO_LOCK):
            client.post("/api/login", json={"usr": "victim", "pwd": "wrong"})
    empty = request("POST", "/", b'{"usr": "victim", "pwd": "wrong"}')
    return _requests("throttled", ours, wrong, 429, reference, empty, effort)


def _authenticated(ours: Served, reference: Served, effort: Effort) -> BenchmarkRow:
    mine = request("GET", PROFILE, headers=[_signed_in(ours)])
    empty = request("GET", "/")
    return _requests("authenticated_get", ours, mine, 200, reference, empty, effort)


def _signed_in(ours: Served) -> tuple[str, str]:
    """Return the header Cookie of a new session."""
    with httpx.Client(base_url=f"http://127.0.0.1:{ours.port}", headers=[CSRF]) as client:
        client.post("/api/login", json={"usr": "user0", "pwd": PASSWORD}).raise_for_status()
        return "Cookie", f"sid={client.cookies['sid']}"


def _boot(ours: Served, reference: Served, effort: Effort) -> BenchmarkRow:
    """The whole service; the reference reads no session and no store."""
    content = request("GET", BOOT, headers=[_signed_in(ours)])
    return _requests("boot", ours, content, 200, reference, content, effort, SAME)


def _front_end(bare: Served, reference: Served, effort: Effort) -> BenchmarkRow:
    """The front ends alone: our own against Quart-Trio under Hypercorn."""
    content = request("GET", BOOT)
    return _requests("front_end", bare, content, 200, reference, content, effort, SAME)


def _requests(
    name: str,
    ours: Served,
    content: bytes,
    status: int,
    reference: Served,
    empty: bytes,
    effort: Effort,
    reference_name: str = EMPTY,
) -> BenchmarkRow:
    count = round(effort.events * REQUESTS_AN_EVENT)
    return Comparison(
        suite=SUITE,
        name=name,
        unit="requests/s",
        ours=lambda: load(ours.port, content, status, count).rate,
        reference=lambda: load(reference.port, empty, 200, count).rate,
        reference_name=reference_name,
    ).measure(effort)


def _under_flood(ours: Served, effort: Effort) -> BenchmarkRow:
    """Measure how a flood of sign-ins delays a request that hashes nothing."""
    count = max(100, round(effort.events * REQUESTS_AN_EVENT / 10))
    idle, flooded = [], []
    for number in range(1, effort.rounds + 1):
        boots = RequestPlan(request("GET", "/api/boot"), 200, count)
        idle.append(load_all(ours.port, [boots]).percentile(P99) * 1000)
        flooded.append(load_all(ours.port, [boots, *_flood(None)]).percentile(P99) * 1000)
        effort.tell(
            f"{SUITE}/boot_p99 round {number} of {effort.rounds}: "
            f"{flooded[-1]:.1f} ms in a flood, {idle[-1]:.1f} ms idle"
        )
    allowed = IDLE_TIMES * median(idle)
    name = f"{IDLE_TIMES} times its idle p99"
    mine = median(flooded)
    return BenchmarkRow(
        SUITE, "boot_p99_in_flood", "ms (less is better)", mine, allowed, name, allowed / mine
    )


def _identifiers(effort: Effort) -> BenchmarkRow:
    count = effort.events * IDENTIFIERS_AN_EVENT
    grown = max(1.0, trio.run(identifiers.grown, count, FOLDER, effort.tell))
    name = f"MiB that {count:,} identifiers may take"
    return BenchmarkRow(
        SUITE, "identifiers", "MiB (less is better)", grown, MEMORY_MIB, name, MEMORY_MIB / grown
    )
