"""Every path of a real site takes anything: no 500 (H-22), and every refusal in the envelope.

Malformed is 400, a value that breaks a rule 422 (H-18, H-50); a 500 is a defect.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from fw_actors.access.users import add_user
from fw_actors.actors.metrics import Counter, DeliveryMeter
from fw_actors.http import open_sender
from fw_actors.runtime import SilentLog, open_runtime
from supervisors.service.assembly import ServiceDependencies
from supervisors.service.front import application
from supervisors.service.tree import DELIVERY_OUTCOMES, SIGN_IN_OUTCOMES, WORKERS, run_service_tree
from tests.site_kit import inline_site
from tests.web.client import AppClient, ClientResponse

PASSWORD = "a password of the tests"
NAMES = ("Webhook", "Webhook Delivery", "Note", "User", "Role", "manager", "share", "token", "x")
KEYS = (
    "usr", "pwd", "token", "password", "fullName", "language", "current", "id", "label", "days",
    "name", "email", "roles", "user", "delivery", "webhook", "data", "options", "key", "reference",
    "url", "event_type", "custom_event", "webhook_doctype", "secret", "timeout", "enabled", "title",
    "modified", "docstatus", "submit", "new_password", "note", "with_whom",
)  # fmt: skip
TEXTS = st.text(st.characters(), max_size=20) | st.sampled_from(
    (
        "manager", "invoice.paid", "doc.x", "Custom", "Document", "https://a.example/", "\x00",
        "\ud800", "a@b.example", "2026-01-01", "' OR 1=1 --", "../..", "%00", "\U0001d54f",
        "\ufb01", "\u0130",
    )
)  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(width=32) | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | TEXTS, inner, max_size=3)
    ),
    max_leaves=8,
)
BODIES = st.none() | st.binary(max_size=40) | VALUES | st.dictionaries(
    st.sampled_from(KEYS), VALUES, max_size=6
)  # fmt: skip
REQUESTS = st.tuples(
    st.integers(0, 10_000),  # which path
    st.sampled_from(("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH")),
    BODIES,
    st.lists(st.sampled_from(NAMES) | TEXTS, min_size=3, max_size=3),
    st.sampled_from(("manager", "guest", "stranger")),
    st.sampled_from(("", "?filters=[]", '?filters=[["name","=",1]]&limit=501', "?x", "?fields=[1]",
                     "?order_by=secret", "?limit=-1&start=1e9", '?filters=[["name","in",[]]]')),
)  # fmt: skip


@settings(
    max_examples=20, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(st.lists(REQUESTS, min_size=1, max_size=25))
@pytest.mark.timeout(300)
def test_http_answers_no_request_with_500(requests: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trio.run(_ask_all, Path(folder), requests, clock=MockClock(autojump_threshold=0))


async def _ask_all(folder: Path, requests: list[Any]) -> None:
    async with served(folder) as (client, sid, rules):
        for number, method, body, deps, who, query in requests:
            target = target_of(rules[number % len(rules)], deps) + query
            known = {"manager": sid, "guest": None, "stranger": "0" * 32}[who]
            reply = await client.ask(method, target, body, sid=known)
            check(reply, f"{method} {target} {body!r} as {who}")


def target_of(rule: str, deps: list[str]) -> str:
    """Fill a path's arguments in, as a client would quote them."""
    names = iter(deps)

    def quoted(_: object) -> str:
        return "".join(f"%{byte:02X}" for byte in next(names, "x").encode("utf-8", "replace"))

    return re.sub(r"<[^>]+>", quoted, rule)


def check(reply: ClientResponse, request: str) -> None:
    """Fail unless the answer is one that the contract knows."""
    assert reply.status != 500, request
    if reply.status >= 400 and reply.body and request.split()[1].startswith("/api/"):
        assert reply.error["type"].endswith("Error"), request
        assert reply.header("cache-control") == "no-store", request
    assert reply.header("x-request-id"), request


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[AppClient, str, list[str]]]:
    """Run a real site behind its application; give a client, a manager's sid, and all paths."""
    log = SilentLog()
    async with inline_site(folder, apps=("examples.notes",)) as site, open_sender() as sender:
        hashed = await site.hash_password(PASSWORD, "manager", "m@example.test")
        await site.write(
            "Administrator",
            lambda fw: add_user(fw, "manager", "m@example.test", "", ["System Manager"], hashed),
        )
        async with open_runtime(clock=site.clock, entropy=site.entropy, log=log) as runtime:
            deps = ServiceDependencies(
                site=site, url="https://site.example", runtime=runtime, sender=sender,
                slow_reads=site.store, log=log, signed_in=Counter(SIGN_IN_OUTCOMES),
                delivered=DeliveryMeter(DELIVERY_OUTCOMES), recorded=Counter(WORKERS),
            )  # fmt: skip
            async with run_service_tree(deps, None) as service:
                app = application(deps, service.gateway)
                client = AppClient(app)
                usr = {"usr": "manager", "pwd": PASSWORD}
                reply = await client.ask("POST", "/api/login", usr)
                sid = str(reply.header("set-cookie")).partition("sid=")[2].partition(";")[0]
                yield client, sid, [rule.rule for rule in app.url_map.iter_rules()]
