"""The numbers on the security page are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fw_actors.access.api_keys import MAX_KEYS, WRONG_KEYS
from fw_actors.access.known_origins import ADDRESS_DAYS, DEVICE_DAYS, MAX_ADDRESSES
from fw_actors.access.recovery import MAILS_AN_HOUR
from fw_actors.access.sessions import MAX_SESSIONS_PER_USER
from fw_actors.actors.queue_worker import MAX_ATTEMPTS
from fw_actors.config.load import DEFAULT_ARGON2
from fw_actors.config.policy import parse_policy
from fw_actors.documents.permissions import RECORDS
from fw_actors.documents.query import MAX_FILTERS, MAX_VALUES
from fw_actors.documents.rest import MAX_LIST_BYTES, MAX_PAGE_SIZE
from fw_actors.documents.validation import MAX_CHILD_ROWS
from fw_actors.hashing.hasher import RESERVED_FOR_KNOWN, HashQueue
from fw_actors.http.dial import MAX_PER_HOST, MAX_THREADS
from fw_actors.http.response import MAX_RESPONSE_BYTES
from fw_actors.mail.transports import SMTP_AT_ONCE
from fw_actors.ops.error_log import KEPT_DAYS
from fw_actors.rules.identifiers import BEARER_BYTES, sharing_network
from fw_actors.rules.lockout import ADDRESS_WINDOW_MS, RECORDED_PER_MINUTE, WIDER_48, WIDER_56
from fw_actors.rules.password_policy import MAX_RUNES
from fw_actors.rules.safe_output import MIN_SECRET_CHARACTERS
from fw_actors.store.store import MAX_WAITING_READS, MAX_WAITING_WRITES
from fw_actors.webhooks.replay import BATCH
from web import response
from web.connections import (
    ADDRESS_SHARE,
    PART_BYTES,
    REQUEST_SECONDS,
    SEND_SECONDS,
    SPARE_CONNECTIONS,
    ConnectionLimits,
)
from web.http11 import MAX_HEAD_BYTES
from web.operations import DEFAULT_BODY_BYTES, SMALL_BODY_BYTES
from web.request import INITIAL_BODY_SECONDS, MAX_BODY_SECONDS, MIN_BYTES_PER_SECOND
from web.routes.webhooks import MAX_BATCH_BYTES

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
POLICY = parse_policy("{}").sections
AUTH, OPS, WEB = POLICY["auth"], POLICY["ops"], POLICY["web"]
MINUTES = ADDRESS_WINDOW_MS // 60_000
CONNECTIONS = ConnectionLimits()
KIB, MIB = 1024, 1024 * 1024

ROWS: list[tuple[str, list[object]]] = [  # how a row begins, and the numbers that follow in it
    ("failed sign-ins at an identifier", [AUTH["maxLoginAttempts"], 429, AUTH["lockoutMinutes"]]),
    ("failed sign-ins from an address (IPv6: a /64) in",
     [MINUTES, AUTH["addressAttempts"], WIDER_56, 56, WIDER_48, 48, 429]),
    ("requests with links and for recovery from an address (IPv6: a /64) in",
     [MINUTES, AUTH["recoveryAttempts"], WIDER_56, 56, WIDER_48, 48, 429]),
    ("recovery mails to an identifier in an hour", [MAILS_AN_HOUR]),
    ("wrong API keys from an address in", [MINUTES, WRONG_KEYS.limit, 429]),
    ("hashes", [HashQueue.SIGN_IN.value, HashQueue.RECOVERY.value, 503]),
    ("connections of an address (IPv6: a /64) that keep the server waiting", [1, ADDRESS_SHARE]),
    ("unfinished bodies together; of an address",
     [CONNECTIONS.body_bytes // MIB, CONNECTIONS.body_bytes_by_address // MIB]),
    ("answers that clients are slow to read, together; of an address",
     [CONNECTIONS.unread_bytes // MIB, CONNECTIONS.unread_bytes_by_address // MIB]),
    (f"a part of an answer ({PART_BYTES // KIB} KiB)", [round(SEND_SECONDS)]),
    ("a read, and a search inside a write", [f"{OPS['queryTimeoutSeconds']:g}", 503]),
    ("bytes of the rows of a list", [MAX_LIST_BYTES // MIB, 422]),
    ("sessions of a user", [MAX_SESSIONS_PER_USER]),
    ("refused replays of a user with an Audit Event each", [RECORDED_PER_MINUTE]),
    ("rows of a list; filters; values in them", [MAX_PAGE_SIZE, MAX_FILTERS, MAX_VALUES, 400]),
    ("rows of a child table; keys of a user", [MAX_CHILD_ROWS, MAX_KEYS, 422, 409]),
    ("calls that wait for the store", [MAX_WAITING_READS, MAX_WAITING_WRITES, 503]),
    ("event streams", [response.MAX_STREAMS, 503]),
    ("deliveries in flight; to one receiver",
     [OPS["deliveryConcurrency"], OPS["perReceiverConcurrency"]]),
    ("a delivery", [MAX_RESPONSE_BYTES // KIB]),
    ("replays of many", [BATCH]),
    ("attempts of a delivery, a mail, a job", [MAX_ATTEMPTS]),
    ("mails at once; look-ups of names", [SMTP_AT_ONCE, MAX_THREADS, MAX_PER_HOST]),
]  # fmt: skip


@pytest.mark.parametrize(("begin", "numbers"), ROWS, ids=[begin for begin, _ in ROWS])
def test_security_page_limit_equals_that_of_the_code(begin: str, numbers: list[object]) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {begin}")]
    rest = row.removeprefix(f"| {begin}").replace(",", "")
    assert re.findall(r"\d+", rest)[: len(numbers)] == [str(number) for number in numbers]


def test_security_page_is_right_on_requests() -> None:
    assert f"| {SPARE_CONNECTIONS:,} more than requests; {WEB['maxRequests']:,} |" in PAGE
    assert f"| {MAX_HEAD_BYTES // KIB} KiB in {REQUEST_SECONDS:.0f} s; " in PAGE
    assert (
        f"{DEFAULT_BODY_BYTES // MIB} MiB "
        f"({SMALL_BODY_BYTES // KIB} KiB under `/api/login` and `/api/auth/`, "
        f"{MAX_BATCH_BYTES // MIB} MiB for `webhooks.emitMany`)"
    ) in PAGE
    assert (
        f" at {MIN_BYTES_PER_SECOND} bytes a second after the first {INITIAL_BODY_SECONDS:.0f} s,"
        f" whole in {MAX_BODY_SECONDS:.0f} s |"
    ) in PAGE


def test_security_page_is_right_on_the_queue_for_hashes() -> None:
    assert f"{RESERVED_FOR_KNOWN[HashQueue.SIGN_IN]} of the slots are reserved" in PAGE
    assert f"from which it has signed in within {ADDRESS_DAYS} days" in PAGE
    assert f"the last {MAX_ADDRESSES} addresses of an account are stored" in PAGE
    assert sharing_network("2001:db8::1").endswith("/48")
    assert sharing_network("192.0.2.1").endswith("/24")
    assert "(the /48 of IPv6, the /24 of IPv4)" in PAGE


def test_security_page_is_right_on_records() -> None:
    assert f"| {OPS['auditRetentionDays']} days (`ops.auditRetentionDays`) |" in PAGE
    assert f"| {KEPT_DAYS} days |" in PAGE
    assert all(doctype in PAGE for doctype in RECORDS)
    assert (
        f"addresses for {ADDRESS_DAYS} days, devices (only with `auth.newDeviceMail`) for" in PAGE
    )
    assert f"for {DEVICE_DAYS} days |" in PAGE
    assert f"has not used for {DEVICE_DAYS} days" in PAGE
    assert len("secret") == MIN_SECRET_CHARACTERS
    assert "A secret of fewer than six characters is not removed" in PAGE


def test_security_page_is_right_on_passwords_and_sessions() -> None:
    minimum, days = AUTH["minPasswordLength"], AUTH["sessionDays"]
    assert f"{minimum} to {MAX_RUNES} characters by default" in PAGE
    assert f"{days} days by default" in PAGE
    assert f"An account has at most {MAX_SESSIONS_PER_USER} sessions" in PAGE
    assert f"at most {MAX_KEYS} API keys" in PAGE
    assert f"{BEARER_BYTES * 8} random bits" in PAGE
    assert f"{DEFAULT_ARGON2.memory_kib // KIB} MiB, two passes" in PAGE
