"""Sign-in lockout as a client meets it (A-60 to A-81)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from fw_actors.access import attempts
from fw_actors.errors import OverloadedError
from tests.accounts_kit import PASSWORD
from tests.http_site import HttpSite, http_site
from tests.virtual_hashing import take_virtual_time
from tests.web.client import ClientResponse

pytestmark = pytest.mark.usefixtures("on_both_stores")

MINUTES = 15


async def lock(site: HttpSite, usr: str = "ann") -> ClientResponse:
    """Fail until the identifier is locked; the answer that locked it."""
    replies = [await site.login(usr, "wrong") for _ in range(5)]
    assert [reply.status for reply in replies] == [401] * 4 + [429]
    return replies[-1]


def seconds(reply: ClientResponse) -> int:
    """Return the seconds to wait that both header and envelope of a 429 give."""
    assert (reply.status, reply.error["type"]) == (429, "TooManyRequestsError")
    retry_after = int(reply.header("retry-after") or "0")
    assert reply.error["extra"] == {"retryAfter": retry_after}
    return retry_after


async def test_lockout_answers_the_last_failure_with_429(site: HttpSite) -> None:
    """The failure that reaches `maxLoginAttempts` locks and is answered 429 (A-69)."""
    await site.add_account("ann")
    assert seconds(await lock(site)) == MINUTES * 60


async def test_lockout_refuses_the_correct_password(site: HttpSite) -> None:
    """A locked identifier refuses the correct password too (A-71)."""
    await site.add_account("ann")
    await lock(site)
    reply = await site.login("ann", PASSWORD)
    assert seconds(reply) == MINUTES * 60
    assert reply.header("set-cookie") is None
    assert await site.rows("SELECT * FROM fw_session") == []


async def test_lockout_is_not_prolonged_by_attempts(site: HttpSite) -> None:
    """A lock ends after `lockoutMinutes` (A-72), and no attempt prolongs it (A-73); seconds
    are whole and rounded up (H-65)."""
    await site.add_account("ann")
    await lock(site)
    reported = []
    for wait in (0.0, 0.4, 0.6, 299.0, 599.0, 0.5):
        site.pass_time(wait)
        reported.append(seconds(await site.login("ann", PASSWORD)))
    assert reported == [900, 900, 899, 600, 1, 1]
    site.pass_time(0.5)
    assert (await site.login("ann", PASSWORD)).status == 200
    again = [(await site.login("ann", "wrong")).status for _ in range(5)]
    assert again == [401] * 4 + [429], "a lock that is over leaves a whole budget"


async def test_lockout_survives_a_restart(tmp_path: Path) -> None:
    """Attempts are stored in the table `fw_login_attempt` (A-61) and survive (A-77)."""
    async with http_site(tmp_path) as site:
        await site.add_account("ann")
        await lock(site)
        await lock(site, "nobody")
    async with http_site(tmp_path, seed=2) as site:
        for usr in ("ann", "nobody"):
            assert 0 < seconds(await site.login(usr, PASSWORD)) <= MINUTES * 60


async def test_lockout_that_is_known_needs_no_write(site: HttpSite) -> None:
    """A flood of attempts at a locked name does not occupy the writer."""
    await lock(site, "ann")
    seconds(await site.login("ann", PASSWORD))
    before = site.site.store.statistics()
    for _ in range(3):
        seconds(await site.login("ann", PASSWORD))
    after = site.site.store.statistics()
    assert (after.committed, after.reads) == (before.committed, before.reads + 3)


async def test_lockout_of_another_process_needs_one_write(tmp_path: Path) -> None:
    """The first refusal makes the lock known (A-82)."""
    async with http_site(tmp_path) as site:
        await lock(site, "ann")
    async with http_site(tmp_path, seed=2) as site:
        seconds(await site.login("ann", PASSWORD))
        before = site.site.store.statistics().committed
        for _ in range(3):
            seconds(await site.login("ann", PASSWORD))
        assert site.site.store.statistics().committed == before


async def test_defect_of_an_attempt_ends_no_other_one(
    site: HttpSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts at one identifier that are in flight have nothing to do with each other."""
    await site.add_account("ann")
    hashing, may_end, verify = trio.Event(), trio.Event(), site.site.hasher.verify
    replies: list[int] = []

    async def fail_second(*args: Any, **given: Any) -> Any:
        if hashing.is_set():
            raise RuntimeError
        hashing.set()
        await may_end.wait()
        return await verify(*args, **given)

    async def sign_in() -> None:
        replies.append((await site.login("ann")).status)

    monkeypatch.setattr(site.site.hasher, "verify", fail_second)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sign_in)
        await hashing.wait()
        assert (await site.login("ann")).status == 500
        may_end.set()
    assert replies == [200]


async def test_sign_in_takes_two_writes_and_no_read(site: HttpSite) -> None:
    """Charge and lookup in one write; settlement and session in the other (A-52)."""
    await site.add_account("ann")
    before = site.site.store.statistics()
    assert (await site.login("ann")).status == 200
    after = site.site.store.statistics()
    assert (after.committed, after.reads) == (before.committed + 2, before.reads)


async def test_lockout_is_not_shortened_by_a_clock_that_goes_back(site: HttpSite) -> None:
    """A clock that jumps gives no negative Retry-After and no early unlock (A-81)."""
    await site.add_account("ann")
    await lock(site)
    site.pass_time(-7 * 86_400)
    assert seconds(await site.login("ann", PASSWORD)) >= MINUTES * 60
    site.pass_time(7 * 86_400 + MINUTES * 60)
    assert (await site.login("ann", PASSWORD)).status == 200


async def test_lockout_is_of_the_typed_identifier_only(site: HttpSite) -> None:
    """Failures are counted per typed identifier, not per resolved account (A-60)."""
    await site.add_account("ann")
    await site.add_account("bob")
    await lock(site, "ANN")
    seconds(await site.login("\uff41nn ", PASSWORD))
    assert (await site.login("bob", PASSWORD)).status == 200
    assert (await site.login("Ann@Example.test", PASSWORD)).status == 200


DEEP = b'{"usr": "ann", "pwd": ' + b"[" * 40 + b"]" * 40 + b"}"
MALFORMED: tuple[tuple[int, Any, dict[str, Any]], ...] = (
    (400, b"", {}),
    (400, b"{", {}),
    (400, b'["ann", "wrong"]', {}),
    (400, b'{"usr": "ann", "pwd": NaN}', {}),
    (400, b'{"usr": "ann", "usr": "ann", "pwd": "wrong"}', {}),
    (400, b'{"usr": "ann", "pwd": "wrong", "pwd": "x"}', {}),
    (400, b'{"usr": "ann", "pwd": "\\ud800"}', {}),
    (400, b'{"usr": "ann\\u0000", "pwd": "wrong"}', {}),
    (400, b'{"usr": "ann\\n", "pwd": "wrong"}', {}),
    (400, b'\xff\xfe{"usr": "ann", "pwd": "wrong"}', {}),
    (400, DEEP, {}),
    (400, {"usr": "ann"}, {}),
    (400, {"pwd": "wrong"}, {}),
    (400, {"usr": " \u3000", "pwd": "wrong"}, {}),
    (400, {"usr": "ann", "pwd": None}, {}),
    (400, {"usr": ["ann"], "pwd": "wrong"}, {}),
    (400, {"usr": 7, "pwd": "wrong"}, {}),
    (400, {"usr": "ann", "pwd": "wrong", "remember": True}, {}),
    (413, {"usr": "ann", "pwd": "x" * 65_536}, {}),
    (403, {"usr": "ann", "pwd": "wrong"}, {"csrf": False}),
    (403, {"usr": "ann", "pwd": "wrong"}, {"headers": [("Sec-Fetch-Site", "cross-site")]}),
)


async def test_lockout_does_not_count_malformed_requests(site: HttpSite) -> None:
    """A malformed request moves no counter (H-16)."""
    await site.add_account("ann")
    for status, body, given in MALFORMED:
        reply = await site.ask("POST", "/api/login", body, **given)
        assert (reply.status, reply.header("set-cookie")) == (status, None), body
    for verb in ("GET", "PUT", "DELETE", "PATCH"):
        body = {"usr": "ann", "pwd": "wrong"}
        reply = await site.ask(verb, "/api/login", body)
        assert (reply.status, reply.header("allow")) == (405, "POST, OPTIONS"), verb
    assert await site.rows("SELECT * FROM fw_login_attempt") == []


async def test_sign_in_accepts_any_other_text(site: HttpSite) -> None:
    """Passwords may have control characters (H-14); an empty one is an attempt (A-35); a name
    that no account can have takes the decoy path (A-33, A-43, A-119, A-42)."""
    await site.add_account("ann")
    tries = [
        ("ann", ""), ("ann", "\x00\t\r\n"), ("ann", "x" * 60_000), ("x" * 321, PASSWORD),
        ("a\u202enn", PASSWORD), ("a\u200bnn", PASSWORD), ("Administrator", PASSWORD),
        ("\u00e9" * 320, PASSWORD), ("' OR 1=1 --", PASSWORD),
    ]  # fmt: skip
    hashes = site.site.hasher.statistics
    for number, (usr, pwd) in enumerate(tries, 1):
        reply = await site.login(usr, pwd)
        assert (reply.status, reply.error["message"]) == (401, "The name or the password is wrong.")
        assert hashes().hashes == number + 1, "one for the account, one for each try"


async def test_sign_in_with_control_character_in_name_is_malformed(site: HttpSite) -> None:
    """Control characters in an identifier or a new name are 400 over HTTP and move no counter;
    hidden ones are 401 and 422 (A-14, A-33, H-12, H-16)."""
    await site.add_account("boss", "System Manager")
    boss = await site.sid("boss")
    for character, sign_in, creation in (
        ("\x01", 400, 400), ("\t", 400, 400), ("\x7f", 400, 400), ("\x85", 400, 400),
        ("\u00ad", 401, 422), ("\u202e", 401, 422),
    ):  # fmt: skip
        counted = len(await site.rows("SELECT * FROM fw_login_attempt"))
        name = f"a{character}nn"
        assert (await site.login(name, PASSWORD)).status == sign_in
        counters = await site.rows("SELECT * FROM fw_login_attempt")
        assert (len(counters) > counted) == (sign_in == 401)
        invited = await site.op("users.invite", {"email": "ann@x.test", "name": name}, sid=boss)
        assert (invited.status, invited.error["extra"]["field"]) == (creation, "name")


async def test_sign_in_hashes_once_and_never_for_429(site: HttpSite) -> None:
    """`fw_password_hashes_total` counts decoys too (A-119), and a throttled attempt hashes
    nothing (A-42)."""
    await site.add_account("ann")

    async def hashes() -> float:
        page = (await site.ask("GET", "/metrics", peer="127.0.0.1")).body.decode()
        (line,) = [
            each for each in page.split("\n") if each.startswith("fw_password_hashes_total ")
        ]
        return float(line.split()[1])

    for usr in ("ann", "nobody-at-all"):
        before = await hashes()
        await lock(site, usr)
        assert await hashes() - before == 5
        for pwd in ("wrong", PASSWORD):
            seconds(await site.login(usr, pwd))
        assert await hashes() - before == 5


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/login", {"usr": "ann", "pwd": PASSWORD}),
        ("/api/auth/token", {"token": "x" * 32}),
    ],
)
async def test_sign_in_fails_if_its_counter_cannot_be_written(
    site: HttpSite, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, str]
) -> None:
    """A counter that cannot be written refuses the attempt with 503 (A-78)."""
    await site.add_account("ann")
    hashes = site.site.hasher.statistics().hashes

    def full(*args: object, **given: object) -> None:
        raise OverloadedError

    monkeypatch.setattr(attempts, "charge", full)
    reply = await site.ask("POST", path, body)
    assert (reply.status, reply.error["type"]) == (503, "OverloadedError")
    assert int(reply.header("retry-after") or 0) >= 1
    assert site.site.hasher.statistics().hashes == hashes
    assert await site.rows("SELECT * FROM fw_job") == []


@pytest.mark.parametrize("usr", ["ann", "nobody"])
async def test_forgot_password_hides_a_store_without_writes(
    site: HttpSite, monkeypatch: pytest.MonkeyPatch, usr: str
) -> None:
    """`forgot-password` answers `{ok: true}` while the store takes no writes (A-215)."""
    await site.add_account("ann")

    def full(*args: object, **given: object) -> None:
        raise OverloadedError

    monkeypatch.setattr(attempts, "charge", full)
    with capture_logs() as log:
        reply = await site.ask("POST", "/api/auth/forgot-password", {"usr": usr})
    assert (reply.status, reply.json) == (200, {"ok": True})
    assert await site.rows("SELECT * FROM fw_job") == []
    [line] = [each for each in log if each["event"] == "web.recovery_not_queued"]
    assert line["request_id"] == reply.header("x-request-id")
    assert usr not in str(line)


async def test_sign_in_never_adopts_the_clients_sid(site: HttpSite) -> None:
    """A `sid` that the client brings is never adopted, and none is read from a query (A-151)."""
    await site.add_account("ann")
    brought = "a" * 32
    assert await site.sid("ann", sid=brought) != brought
    assert not await site.alive(brought)
    live = await site.sid("ann")
    path = "/api/method/core.services.profile.getMyProfile"
    assert (await site.ask("GET", f"{path}?sid={live}")).status == 401
    assert (await site.ask("POST", path, {"sid": live})).status == 401
    query = await site.ask("POST", f"/api/login?sid={live}", {"usr": "ann", "pwd": PASSWORD})
    assert query.status == 400
    assert await site.alive(live)


async def test_sign_in_sets_the_cookie_of_the_contract(tmp_path: Path) -> None:
    """The attributes of the cookie (A-170, A-171), and one value for the stored expiry and Max-Age
    (A-152)."""
    async with http_site(tmp_path, session_days=3) as site:
        await site.add_account("ann")
        reply = await site.login("ann")
        cookie = (reply.header("set-cookie") or "").split("; ")
        assert cookie[0].startswith("sid=")
        assert set(cookie[1:]) == {"Max-Age=259200", "Path=/", "HttpOnly", "SameSite=Lax", "Secure"}
        assert reply.json["expires"] == "2027-01-18T08:00:00.000Z"
        sid = cookie[0].removeprefix("sid=")
        site.pass_time(3 * 86_400 - 0.001)
        assert await site.alive(sid)
        site.pass_time(0.001)
        assert not await site.alive(sid)


@pytest.mark.parametrize(("pwd", "outcome"), [("wrong", "throttled"), (PASSWORD, "signed_in")])
async def test_sign_in_of_a_client_that_disconnects_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pwd: str, outcome: str
) -> None:
    """The outcome is recorded though the client has gone (A-54): the failure locks."""
    async with http_site(tmp_path, max_login_attempts=1) as site:
        await site.add_account("ann")
        hashing, may_end, verify = trio.Event(), trio.Event(), site.site.hasher.verify

        async def slow(*args: Any, **given: Any) -> Any:
            hashing.set()
            await may_end.wait()
            return await verify(*args, **given)

        monkeypatch.setattr(site.site.hasher, "verify", slow)
        async with trio.open_nursery() as client:
            client.start_soon(site.login, "ann", pwd)
            await hashing.wait()
            client.cancel_scope.cancel()
        may_end.set()
        with trio.fail_after(5):
            await site.log.wait("sign_in.ended", 1)
        assert [line["outcome"] for line in site.log.of("sign_in.ended")] == [outcome]
        again = await site.login("ann")
        if pwd == PASSWORD:
            assert again.status == 200
        else:
            assert seconds(again) == MINUTES * 60


async def test_refusals_of_a_locked_identifier_write_nothing(site: HttpSite) -> None:
    """A refusal by a lock may be decided by a read only (A-82)."""
    await site.add_account("ann")
    await lock(site)
    before = site.site.store.statistics()
    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(site.login, "ann")
    after = site.site.store.statistics()
    assert [line["outcome"] for line in site.log.of("sign_in.ended")[5:]] == ["throttled"] * 50
    assert after.committed == before.committed
    assert after.reads - before.reads < 50  # one read answers those that wait for it


async def test_unlock_by_another_process_ends_the_known_lock(site: HttpSite) -> None:
    """Another process may unlock an identifier at any time; the rows decide (A-82)."""
    await site.add_account("ann")
    await lock(site)
    assert (await site.login("ann")).status == 429
    await site.rows("DELETE FROM fw_login_attempt")
    assert (await site.login("ann")).status == 200


async def test_lockout_refuses_a_flood_at_one_identifier_with_429(site: HttpSite) -> None:
    """Attempts above the limit while others are in flight wait a second (A-68), however many."""
    await site.add_account("ann")
    replies: list[ClientResponse] = []

    async def guess(number: int) -> None:
        replies.append(await site.login("ann", f"wrong {number}", peer=f"203.0.113.{number % 250}"))

    async with trio.open_nursery() as nursery:
        for number in range(400):
            nursery.start_soon(guess, number)
    assert {reply.status for reply in replies} == {401, 429}
    assert sum(reply.status == 401 for reply in replies) == 4


async def test_lockout_answers_429_only_above_its_limit(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A higher `maxLoginAttempts` admits as many at once (A-68); without a hash it is 503 (A-113),
    which counts for nothing (A-65)."""
    limit = 300
    replies: list[int] = []
    policy = {"max_login_attempts": limit, "address_attempts": 10 * limit}
    async with http_site(tmp_path, **policy) as site, trio.open_nursery() as nursery:
        take_virtual_time(site.service.site.hasher, nursery, count=2, seconds=0.1)

        async def guess(number: int) -> None:
            replies.append((await site.login("ann", "wrong", peer=f"10.0.{number}.1")).status)

        async with trio.open_nursery() as together:
            for number in range(limit):
                together.start_soon(guess, number)
        assert set(replies) == {401, 503}
        failures = "SELECT count(*) AS n FROM fw_login_attempt WHERE key = :key"
        known = site.service.site.installation_key
        key = attempts.counter_key(known, attempts.IDENTIFIER, "ann")
        assert await site.rows(failures, key=key) == [{"n": replies.count(401)}]
