"""The searches of one user take only slots for searches from other users."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import structlog
import trio

from fw_actors.access.sessions import Caller
from fw_actors.errors import OverloadedError
from fw_actors.store import Tx
from tests.accounts_kit import PASSWORD
from tests.http_site import HttpSite
from tests.live_site import LiveSite
from tests.security.threaded_site import a_site

pytestmark = pytest.mark.usefixtures("on_both_stores")

SEARCHES = 8
MEGABYTE = 1_000_000
WORST = [["text", "like", "%" + "a" * 990 + "b%"]]
BETWEEN = 100
LONG = [["text", "like", "%a" + "_" * BETWEEN + "c%"]] * 40
"""Each text is scanned 40 times, character by character: it matches at its end."""
_DICE = random.Random(1)
TEXT = "".join(_DICE.choices("ab", k=MEGABYTE - 1000)) + "a" + "b" * BETWEEN + "c"


def search(filters: list[Any], fields: str = '["name"]') -> str:
    return f"/api/resource/Note?fields={quote(fields)}&filters={quote(json.dumps(filters))}"


@asynccontextmanager
async def every_reader_held(site: HttpSite) -> AsyncIterator[None]:
    """Occupy all readers that serve searches, with further searches waiting."""
    readers, over = threading.Semaphore(0), threading.Event()

    def hold(tx: Tx) -> None:
        readers.release()
        assert over.wait(20)

    async with trio.open_nursery() as nursery:
        for _ in range(SEARCHES):
            nursery.start_soon(site.site.store.read, hold)
        for _ in range(2):
            await trio.to_thread.run_sync(readers.acquire)
        try:
            yield
        finally:
            over.set()


async def test_sign_in_and_sessions_work_while_searches_hold_readers(
    tmp_path: Path,
) -> None:
    """Sessions, keys, sign-in, boot and readiness wait behind no search."""
    async with a_site(tmp_path) as site:
        sid = await site.sid("wendy")
        key = (await site.key(sid))["key"]
        site.service.gateway.open()
        async with every_reader_held(site):
            boot = await site.ask("GET", "/api/boot", sid=sid)
            assert boot.json["user"]["name"] == "wendy"
            boot = await site.ask("GET", "/api/boot", key=key)
            assert boot.json["user"]["name"] == "wendy"
            assert (await site.ask("GET", "/api/ready")).status == 200
            assert (await site.login("wendy")).status == 200
            assert (await site.login("wendy", "wrong")).status == 401
            recovery = await site.ask("POST", "/api/auth/forgot-password", {"usr": "wendy"})
            assert recovery.status == 200


async def test_reads_of_others_are_served_while_one_user_searches(tmp_path: Path) -> None:
    """Once the reads of a user are slow, they leave a reader to the others (H-142)."""
    async with a_site(tmp_path) as site:
        await site.add_account("chris", "Note Chair")
        sid = await site.sid("chris")
        searches, over = 0, False

        def search(fw: Any) -> None:
            time.sleep(0 if over else 1)

        async def count(gateway: Any, caller: Caller) -> None:
            nonlocal searches
            with suppress(OverloadedError):
                await gateway.read(caller, search)
            searches += 1

        async with trio.open_nursery() as nursery:
            for _ in range(2 * SEARCHES):
                nursery.start_soon(count, site.service.gateway, Caller("wendy", frozenset()))
            await trio.sleep(0.1)
            reply = await site.ask("GET", "/api/resource/Note", sid=sid)
            served_before = searches
            over = True
    assert reply.status == 200
    assert served_before <= 4, "each reader ends what it has begun"


async def test_refused_sign_ins_are_answered_while_searches_hold_readers(tmp_path: Path) -> None:
    """Nor does the read that refuses a sign-in, by a lock or by a full address (H-134, A-82)."""
    crowd = "198.51.100.9"
    async with a_site(tmp_path, max_login_attempts=1, address_attempts=1) as site:
        assert (await site.login("wendy", "wrong")).status == 429
        for name in ("first", "second"):
            assert (await site.login(name, "wrong", peer=crowd)).status == 429
        async with every_reader_held(site):
            with trio.fail_after(15):
                locked = await site.login("wendy", peer="203.0.113.9")
                full = await site.login("third", peer=crowd)
    for refused in (locked, full):
        assert (refused.status, refused.error["type"]) == (429, "TooManyRequestsError")


async def test_password_change_is_made_while_searches_hold_readers(tmp_path: Path) -> None:
    """It is an attempt at the current password, as a sign-in is (H-134)."""
    async with a_site(tmp_path) as site:
        sid = await site.sid("wendy")
        body = {"current": PASSWORD, "password": "a third decent passphrase"}
        async with every_reader_held(site):
            with trio.fail_after(15):
                changed = await site.op("profile.changeMyPassword", body, sid=sid)
    assert changed.status == 200


async def test_mails_are_sent_while_searches_hold_readers(tmp_path: Path) -> None:
    """Searches that keep every reader busy must not delay a recovery link."""
    async with a_site(tmp_path) as site:
        site.service.gateway.open()
        before = len(site.log.of("mail.ended"))
        async with every_reader_held(site):
            recovery = await site.ask("POST", "/api/auth/forgot-password", {"usr": "wendy"})
            assert recovery.status == 200
            with trio.fail_after(15):
                await site.log.wait("mail.ended", before + 1)


async def test_search_over_time_limit_is_refused_with_reason(tmp_path: Path) -> None:
    """503 with Retry-After, one log line with the route, and the reader is reused."""
    async with a_site(tmp_path, query_timeout_seconds=0.2) as site:
        sid = await site.sid("wendy")
        for _ in range(3):
            made = await site.ask(
                "POST", "/api/resource/Note", {"title": "a", "text": TEXT}, sid=sid
            )
            assert made.status == 201, made.body
        with structlog.testing.capture_logs() as lines:
            found = await site.ask("GET", search(LONG), sid=sid)
        assert found.status == 503
        assert found.json["error"] == {
            "type": "OverloadedError",
            "message": "The query took longer than 0.2 seconds; narrow its filters.",
            "extra": {"reason": "queryTimeout"},
        }
        assert found.header("retry-after") == "1"
        events = [line for line in lines if line["event"] == "web.query_timeout"]
        assert [line["route"] for line in events] == ["/api/resource/<doctype>"]
        for _ in range(SEARCHES):
            found = await site.ask("GET", search([["title", "=", "a"]]), sid=sid)
            assert (found.status, found.json["total"]) == (200, 3)


async def test_worst_search_pattern_is_answered_within_limit(tmp_path: Path) -> None:
    """990 letters that nearly match at each of a million positions."""
    async with a_site(tmp_path, query_timeout_seconds=60.0) as site:
        sid = await site.sid("wendy")
        for _ in range(5):
            note = {"title": "a", "text": "a" * MEGABYTE}
            assert (await site.ask("POST", "/api/resource/Note", note, sid=sid)).status == 201
        found = await site.ask("GET", search(WORST), sid=sid)
        assert (found.status, found.json["total"]) == (200, 0)


async def test_list_of_long_texts_is_refused_with_limit_field(tmp_path: Path) -> None:
    async with a_site(tmp_path) as site:
        sid = await site.sid("wendy")
        for _ in range(9):
            note = {"title": "a", "text": "a" * MEGABYTE}
            assert (await site.ask("POST", "/api/resource/Note", note, sid=sid)).status == 201
        found = await site.ask("GET", search([], '["name","text"]'), sid=sid)
        assert (found.status, found.json["error"]["type"]) == (422, "ValidationError")
        assert found.json["error"]["extra"] == {"field": "limit"}
        found = await site.ask("GET", search([], '["name","text"]') + "&limit=8", sid=sid)
        assert [len(row["text"]) for row in found.json["data"]] == [MEGABYTE] * 8


@pytest.mark.timeout(300)
def test_search_of_disconnected_client_frees_reader(tmp_path: Path) -> None:
    """On real sockets; nothing but that ends them within the test's time (H-132)."""
    with LiveSite(tmp_path, ops={"queryTimeoutSeconds": 300}) as site:
        site.add_manager()
        site.start()
        with site.client() as client:
            for _ in range(8):
                note = {"title": "a", "text": TEXT}
                assert client.post("/api/resource/Note", json=note).status_code == 201
            hasty = httpx.Client(base_url=site.url, cookies=client.cookies, timeout=0.5)
            with hasty:
                for _ in range(SEARCHES):
                    with pytest.raises(httpx.ReadTimeout):
                        hasty.get(search(LONG))
            found = client.get(search([["title", "=", "a"]]), timeout=100)
            assert found.json()["total"] == 8
