"""Signing in (A-40 to A-55, A-60 to A-65).

The module has more than 500 lines because an attempt to sign in is one unit: its charges, its hash
and its session depend on each other.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from hashlib import pbkdf2_hmac
from pathlib import Path
from typing import Any

import pytest
import trio

from fw_actors.access.accounts import Account, Accounts
from fw_actors.access.api_keys import MadeKey
from fw_actors.access.attempts import FAILED
from fw_actors.access.links import MintedLink
from fw_actors.access.passwords import AdmittedChange, PasswordChange, set_password
from fw_actors.access.recovery import SentLink
from fw_actors.access.sign_in import Admitted, SignedIn
from fw_actors.access.users import add_user
from fw_actors.actors.lockout import AttemptSignIn, LockoutActor
from fw_actors.config import Argon2
from fw_actors.errors import AuthenticationError, OverloadedError, TooManyRequestsError
from fw_actors.hashing import Hasher, usable_hash
from fw_actors.mail import TemplateValues
from fw_actors.ops.site import open_site
from fw_actors.rules.identifiers import ApiKey
from fw_actors.runtime import KeyedPool, SystemClock, open_runtime
from fw_actors.store import Tx
from tests.accounts_kit import PASSWORD
from tests.fw_actors.access.sign_in_kit import SignInClient, make_attempt
from tests.fw_actors.virtual_site_kit import APPS, VirtualSite, open_virtual_site
from tests.site_kit import database_of, make_config

pytestmark = pytest.mark.usefixtures("on_both_stores")

DAY = 86_400_000
OTHER = "another decent passphrase"


@pytest.fixture
async def client(site: VirtualSite) -> SignInClient:
    await site.add_account("ada", email="Ada.L@x.test")
    return SignInClient(site)


async def test_sign_in_with_the_right_password_makes_a_session(client: SignInClient) -> None:
    """The session's lifetime is one value of the policy (A-152, A-41)."""
    answer = await client.enter()
    assert isinstance(answer, SignedIn)
    assert (answer.user, answer.full_name, answer.max_age) == ("ada", "Ada", 30 * 86_400)
    assert answer.expires == 1_800_000_000_000 + 30 * DAY
    rows = await client.site.sql('SELECT "user", ip, user_agent, expires FROM fw_session')
    assert rows == [("ada", "192.0.2.1", "a browser", answer.expires)]


@pytest.mark.parametrize("usr", ["ada", "ADA", " ada ", "ada.l@x.test", "ADA.L@X.TEST", "\uff41da"])
async def test_sign_in_accepts_all_spellings_of_name_and_e_mail(
    client: SignInClient, usr: str
) -> None:
    assert await client.result_of(usr) == "ada"


async def test_sign_in_makes_a_new_sid_of_192_bits(client: SignInClient) -> None:
    """A `sid` has 192 random bits and is new at every sign-in (A-150)."""
    sids = set()
    for _ in range(5):
        answer = await client.enter()
        assert isinstance(answer, SignedIn)
        sids.add(answer.sid)
    assert {len(sid) for sid in sids} == {32}
    assert len(sids) == 5


async def test_sign_in_with_a_live_sid_ends_that_session(client: SignInClient) -> None:
    """Signing in with a live `sid` ends that session (A-53)."""
    first = await client.enter()
    assert isinstance(first, SignedIn)
    assert await client.result_of(pwd="wrong", old_sid=first.sid) == 401
    assert await client.site.sql("SELECT count(*) FROM fw_session") == [(1,)]
    second = await client.enter(old_sid=first.sid)
    assert isinstance(second, SignedIn)
    assert second.sid != first.sid
    assert await client.site.sql("SELECT count(*) FROM fw_session") == [(1,)]


async def refusals(site: VirtualSite) -> list[tuple[str, str]]:
    """Names and passwords that are refused, each for another cause."""
    await site.add_account("invited", password=None)
    await site.add_account("off")
    await site.add_account("damaged")
    await site.sql("UPDATE doc_user SET enabled = 0 WHERE name = 'off'")
    await site.sql("""UPDATE fw_password SET hash = 'x' WHERE "user" = 'damaged'""")
    return [
        ("ada", "wrong"), ("ada", ""), ("ada", "x" * 257), ("nobody", PASSWORD),
        ("invited", PASSWORD), ("invited", ""), ("off", PASSWORD), ("damaged", PASSWORD),
        ("Administrator", PASSWORD), ("a\u202eda", PASSWORD), ("x" * 400, PASSWORD),
        ("\ud800", "\ud800"), ("\u200b", PASSWORD),
    ]  # fmt: skip


async def test_sign_in_refusals_share_one_message_after_one_hash(client: SignInClient) -> None:
    """Each refusal takes one hash, of a decoy if necessary (A-43, A-44), and has one message (A-19,
    A-45)."""
    reported = set()
    for usr, pwd in await refusals(client.site):
        before = client.hasher.statistics().hashes
        answer = await client.enter(usr, pwd)
        assert isinstance(answer, AuthenticationError), usr
        reported.add(str(answer))
        assert client.hasher.statistics().hashes - before == 1, usr
    assert reported == {"The name or the password is wrong."}


async def test_fifth_failure_locks_and_is_answered_429(client: SignInClient) -> None:
    """The failure that reaches the limit locks and is answered 429 itself (A-69)."""
    answers = [await client.result_of(pwd="wrong") for _ in range(6)]
    assert answers == [401, 401, 401, 401, 900, 900]


async def test_locked_identifier_refuses_the_correct_password(client: SignInClient) -> None:
    """A locked identifier refuses the correct password too (A-71)."""
    for _ in range(5):
        await client.result_of(pwd="wrong")
    before = client.hasher.statistics().hashes
    assert await client.result_of() == 900
    assert client.hasher.statistics().hashes == before
    await trio.sleep(899)
    assert await client.result_of() == 1
    await trio.sleep(1)
    assert await client.result_of() == "ada"


async def test_unknown_identifier_locks_like_a_known_one(client: SignInClient) -> None:
    """Failures are counted per typed identifier, known or not (A-60)."""
    for usr in ("nobody", "a\u202eda", "y" * 400):
        answers = [await client.result_of(usr, "wrong") for _ in range(6)]
        assert answers == [401, 401, 401, 401, 900, 900]


async def test_name_and_e_mail_have_separate_budgets(client: SignInClient) -> None:
    """Name and e-mail have budgets of their own (A-62)."""
    for usr in ("ada", "ADA", "\uff41da", " ada", "Ada"):
        await client.result_of(usr, "wrong")
    assert await client.result_of("ada") == 900
    assert await client.result_of("ada.l@x.test") == "ada"


async def test_success_clears_the_typed_identifier_only(client: SignInClient) -> None:
    """A success clears the typed spelling (A-75, A-65)."""
    for usr in ("ada", "ada.l@x.test"):
        for _ in range(4):
            await client.result_of(usr, "wrong")
    assert await client.result_of("ada") == "ada"
    assert [
        await client.result_of("ada", "wrong"),
        await client.result_of("ada.l@x.test", "wrong"),
    ] == [401, 900]


async def test_parallel_guesses_are_hashed_up_to_the_limit(client: SignInClient) -> None:
    """Parallel guesses never hash more than `maxLoginAttempts` (A-64)."""
    before = client.hasher.statistics().hashes
    answers = await guesses(client, ["wrong"] * 100)
    assert client.hasher.statistics().hashes - before == 5
    assert answers.pop("401") == 4
    assert set(answers) <= {"429 after 900 s", "429 after 1 s"}
    assert sum(answers.values()) == 96


async def guesses(client: SignInClient, passwords: list[str], usr: str = "ada") -> Counter[str]:
    """Send all passwords at once through the identifier's LockoutActor; the answers by kind."""
    answers: list[str] = []
    async with lockouts(client) as pool:

        async def guess(pwd: str) -> None:
            attempt = make_attempt(usr, pwd)
            identified = client.sign_in.identify(attempt)
            message = AttemptSignIn(attempt, identified)
            answer = await pool[identified.key.hex()].ask(message, deadline=60.0)
            if isinstance(answer, TooManyRequestsError):
                answers.append(f"429 after {answer.retry_after} s")
            else:
                answers.append("in" if isinstance(answer, SignedIn) else str(answer.status))

        async with trio.open_nursery() as nursery:
            for pwd in passwords:
                nursery.start_soon(guess, pwd)
    return Counter(answers)


@asynccontextmanager
async def lockouts(client: SignInClient) -> AsyncIterator[KeyedPool]:
    site = client.site.site
    async with open_runtime(clock=site.clock, entropy=site.entropy) as runtime:
        yield KeyedPool(
            runtime,
            "lockouts",
            make=lambda key: LockoutActor(key, client.sign_in, client.changes, client.attempt_log),
            capacity=100,
            idle_seconds=60.0,
        )


async def test_parallel_valid_sign_ins_lock_no_account(client: SignInClient) -> None:
    """Valid sign-ins at the same moment cause no lock (A-68)."""
    answers = await guesses(client, [PASSWORD] * 20)
    assert sum(answers.values()) == 20
    assert set(answers) <= {"in", "429 after 1 s"}
    assert answers["in"] >= 5
    assert await client.result_of() == "ada"


async def test_parallel_sign_ins_succeed_during_a_rehash(client: SignInClient) -> None:
    """A hash is made anew at sign-in when the parameters have changed (A-50)."""
    hasher = Hasher(Argon2(72, 1, 1), 8, client.site.site.entropy, slots=1, inline=True)
    answers = await guesses(SignInClient(client.site, hasher), [PASSWORD] * 4)
    assert answers == {"in": 4}
    (row,) = await client.site.sql("SELECT hash FROM fw_password")
    assert "m=72" in row[0]


async def test_imported_hash_is_replaced_at_the_first_sign_in(client: SignInClient) -> None:
    """An import requires no new passwords (C-164)."""
    digest = pbkdf2_hmac("sha256", OTHER.encode(), b"salt", 10).hex()
    stored = usable_hash(f"pbkdf2:sha256:10$salt${digest}")
    await client.site.site.write(
        "Administrator",
        lambda fw: add_user(fw, "eve", "eve@x.test", password_hash=stored) and None,
    )
    assert await client.result_of("eve", "wrong") == 401
    assert await client.result_of("eve", OTHER) == "eve"
    hashes = await client.site.sql("SELECT hash FROM fw_password WHERE \"user\" = 'eve'")
    assert hashes[0][0].startswith("$argon2id$")
    assert await client.result_of("eve", OTHER) == "eve"


class NoRehashes(Hasher):
    """Has slots for attempts only."""

    async def rehash(self, *args: Any, **given: Any) -> Any:
        raise OverloadedError


async def test_sign_in_succeeds_with_the_old_hash_if_no_rehash_is_possible(
    client: SignInClient,
) -> None:
    """The hash is made anew at a later sign-in (A-50); the charges are taken back (A-65)."""
    before = await client.site.sql("SELECT hash FROM fw_password")
    hasher = NoRehashes(Argon2(72, 1, 1), 8, client.site.site.entropy, inline=True)
    assert await SignInClient(client.site, hasher).result_of() == "ada"
    assert await client.site.sql("SELECT hash FROM fw_password") == before
    assert await client.site.sql("SELECT count(*) FROM fw_login_attempt") == [(0,)]


class BusyHasher(Hasher):
    """Has no free slot."""

    async def verify(self, *args: Any, **given: Any) -> Any:
        raise OverloadedError


async def test_busy_hasher_releases_the_charges_of_sign_ins(client: SignInClient) -> None:
    """A charge is taken back on success and on 503 (A-65, A-113)."""
    site = client.site.site
    busy = SignInClient(client.site, BusyHasher(Argon2(64, 1, 1), 8, site.entropy, inline=True))
    for _ in range(10):
        assert await busy.result_of() == 503
    assert await client.site.sql("SELECT count(*) FROM fw_login_attempt") == [(0,)]


async def test_busy_hasher_releases_the_charge_of_a_password_change(client: SignInClient) -> None:
    """A charge is taken back on 503 (A-65); a change of the password shares the name's budget
    (A-245)."""
    site = client.site.site
    changes = SignInClient(
        client.site, BusyHasher(Argon2(64, 1, 1), 8, site.entropy, inline=True)
    ).changes
    change = PasswordChange("ada", "no session", PASSWORD, OTHER)
    for _ in range(10):
        admitted = await changes.admit(change, changes.counter("ada"))
        assert isinstance(admitted, AdmittedChange)
        assert isinstance(await changes.verify(change, admitted), OverloadedError)
    assert await client.site.sql("SELECT count(*) FROM fw_login_attempt") == [(0,)]


async def test_wrong_current_password_keeps_its_charge_if_the_store_is_busy(
    client: SignInClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A charge is kept on failure (A-65): as a failure that cannot be counted at once, it counts
    after 30 s (A-66)."""
    change = PasswordChange("ada", "no session", "wrong", OTHER)
    admitted = await client.changes.admit(change, client.changes.counter("ada"))
    assert isinstance(admitted, AdmittedChange)
    store, refusals = client.site.site.store, [OverloadedError("The store is busy.")]
    write = store.write

    async def refuse_once(*args: Any, **given: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return await write(*args, **given)

    monkeypatch.setattr(store, "write", refuse_once)
    with pytest.raises(OverloadedError):
        await client.changes.verify(change, admitted)
    assert await client.site.sql("SELECT count(*) FROM fw_login_attempt") == [(1,)]


async def test_password_change_of_a_disabled_account_is_refused_uncharged(
    client: SignInClient,
) -> None:
    """Disabling ends sessions at once (A-20); the refusal is no attempt (A-65)."""
    change = PasswordChange("ada", "no session", PASSWORD, OTHER)
    counter = client.changes.counter("ada")
    admitted = await client.changes.admit(change, counter)
    assert isinstance(admitted, AdmittedChange)
    await client.site.sql("UPDATE doc_user SET enabled = 0")
    assert isinstance(await client.changes.admit(change, counter), AuthenticationError)
    assert await client.site.sql("SELECT count(*) FROM fw_login_attempt") == [(1,)]
    before = await client.site.sql("SELECT hash FROM fw_password")
    assert isinstance(await client.changes.verify(change, admitted), AuthenticationError)
    assert await client.site.sql("SELECT hash FROM fw_password") == before


@pytest.mark.parametrize("change", ["UPDATE doc_user SET enabled = 0", "DELETE FROM fw_identifier"])
async def test_password_is_not_changed_if_the_account_changed_meanwhile(
    client: SignInClient, change: str
) -> None:
    """The attempt counts as a failure (A-65), even where its session is still there."""
    own = PasswordChange("ada", await session_of_ada(client), PASSWORD, OTHER)
    admitted = await client.changes.admit(own, client.changes.counter("ada"))
    assert isinstance(admitted, AdmittedChange)
    await client.site.sql(change)
    before = await client.site.sql("SELECT hash FROM fw_password")
    assert isinstance(await client.changes.verify(own, admitted), AuthenticationError)
    assert await client.site.sql("SELECT hash FROM fw_password") == before
    assert await client.site.sql("SELECT state FROM fw_login_attempt") == [(FAILED,)]


async def test_password_change_in_an_ended_session_clears_the_failures(
    client: SignInClient,
) -> None:
    """The current password was right, so that its attempt succeeded (A-65, A-75)."""
    own = PasswordChange("ada", await session_of_ada(client), PASSWORD, OTHER)
    assert await client.result_of(pwd="wrong") == 401
    admitted = await client.changes.admit(own, client.changes.counter("ada"))
    assert isinstance(admitted, AdmittedChange)
    await client.site.sql("DELETE FROM fw_session")
    before = await client.site.sql("SELECT hash FROM fw_password")
    assert isinstance(await client.changes.verify(own, admitted), AuthenticationError)
    assert await client.site.sql("SELECT hash FROM fw_password") == before
    assert await client.site.sql(
        "SELECT count(*) FROM fw_login_attempt WHERE key = :key", key=client.changes.counter("ada")
    ) == [(0,)]


async def test_attempt_is_not_hashed_after_its_charge_expired(client: SignInClient) -> None:
    """No more than `maxLoginAttempts` attempts in a window are verified (A-64, A-67).

    A process that is stopped between charge and hash, and goes on after the window, would verify
    an attempt that is not counted.
    """
    attempt = make_attempt("ada", PASSWORD)
    identified = client.sign_in.identify(attempt)
    change = PasswordChange("ada", await session_of_ada(client), PASSWORD, OTHER)
    for stopped, late in ((29, False), (30, True), (1000, True)):
        admitted = await client.sign_in.admit(identified)
        assert isinstance(admitted, Admitted)
        admitted_change = await client.changes.admit(change, client.changes.counter("ada"))
        assert isinstance(admitted_change, AdmittedChange)
        await trio.sleep(stopped)
        before = client.hasher.statistics().hashes
        answers = (
            await client.sign_in.verify(attempt, admitted),
            await client.changes.verify(change, admitted_change),
        )
        assert [isinstance(a, OverloadedError) for a in answers] == [late, late]
        assert (client.hasher.statistics().hashes == before) is late
        assert await client.site.sql("SELECT count(*) FROM fw_login_attempt") == [(0,)]


@pytest.mark.parametrize(
    ("pwd", "outcome", "failures"), [("wrong", "wrong", 2), (PASSWORD, "signed_in", 0)]
)
async def test_departed_client_leaves_its_charge_settled(
    client: SignInClient, pwd: str, outcome: str, failures: int
) -> None:
    """A success releases its charge, and a failure counts, even if the client has gone (A-54)."""
    begun, may_end = trio.Event(), trio.Event()

    class SlowHasher(Hasher):
        async def verify(self, *args: Any, **given: Any) -> Any:
            begun.set()
            await may_end.wait()
            return await super().verify(*args, **given)

    slow = SignInClient(
        client.site, SlowHasher(Argon2(64, 1, 1), 8, client.site.site.entropy, inline=True)
    )
    attempt = make_attempt("ada", pwd)
    identified = slow.sign_in.identify(attempt)
    async with lockouts(slow) as pool:
        message = AttemptSignIn(attempt, identified)
        async with trio.open_nursery() as caller:
            ref = pool[identified.key.hex()]
            caller.start_soon(partial(ref.ask, message, deadline=60.0))
            await begun.wait()
            caller.cancel_scope.cancel()
        may_end.set()
        while not slow.log.of("sign_in.ended"):
            await trio.lowlevel.checkpoint()
    assert [line["outcome"] for line in slow.log.of("sign_in.ended")] == [outcome]
    assert await client.site.sql("SELECT state FROM fw_login_attempt") == [(1,)] * failures


async def test_interrupted_attempt_stays_charged(client: SignInClient) -> None:
    """A crash between charge and outcome leaves the charge (A-66)."""
    for _ in range(5):
        assert isinstance(await client.admit("ada"), Admitted)
    assert await client.result_of() == 1
    await trio.sleep(30)
    assert await client.result_of() == 870


async def test_throttle_precedes_user_lookup_and_hash(
    client: SignInClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The throttle runs before the user lookup and before any hashing (A-42)."""
    for _ in range(5):
        await client.result_of(pwd="wrong")
    lookups: list[str] = []
    find_account = Accounts.find

    def find(accounts: Accounts, tx: Tx, key: str) -> Account | None:
        lookups.append(key)
        return find_account(accounts, tx, key)

    monkeypatch.setattr(Accounts, "find", find)
    before = client.hasher.statistics().hashes
    await client.result_of()
    assert (lookups, client.hasher.statistics().hashes) == ([], before)


async def fail_for_many(client: SignInClient, number: int, address: str) -> list[str | int]:
    return [await client.result_of(f"user{n}", "wrong", address=address) for n in range(number)]


async def test_address_is_limited_to_50_failures_in_15_minutes(client: SignInClient) -> None:
    """The 50th failure of an address is answered 401, the next 429 (A-90, A-91)."""
    assert await fail_for_many(client, 50, "192.0.2.9") == [401] * 50
    assert await client.result_of(address="192.0.2.9") == 900
    assert await client.result_of(address="192.0.2.10") == "ada"
    await trio.sleep(899)
    assert await client.result_of(address="192.0.2.9") == 1
    await trio.sleep(1)
    assert await client.result_of(address="192.0.2.9") == "ada"


async def test_refused_address_is_refused_by_a_read_until_it_is_admitted(
    client: SignInClient,
) -> None:
    """A read decides only for an address that was refused before (A-82): all others would pay
    for it."""
    attempt = make_attempt("ada", PASSWORD, address="192.0.2.9")
    identified = client.sign_in.identify(attempt)
    known = partial(client.sign_in.cached_refusal_wait, attempt, identified)
    await fail_for_many(client, 50, "192.0.2.9")
    assert await known() is None
    assert await client.result_of(address="192.0.2.9") == 900
    assert await known() == 900
    await trio.sleep(900)
    assert await known() is None
    await fail_for_many(client, 50, "192.0.2.9")
    assert await known() is None


async def test_success_releases_only_its_own_charge_of_the_address(client: SignInClient) -> None:
    """A success takes back its own charge only (A-92)."""
    await fail_for_many(client, 49, "192.0.2.9")
    assert await client.result_of(address="192.0.2.9") == "ada"
    assert await client.result_of("someone", "wrong", address="192.0.2.9") == 401
    assert await client.result_of(address="192.0.2.9") == 900


async def test_attempts_refused_by_identifier_do_not_count_for_the_address(
    client: SignInClient,
) -> None:
    """Only verified attempts count for the address (A-91)."""
    for _ in range(100):
        await client.result_of(pwd="wrong", address="192.0.2.9")
    rows = await client.site.sql("SELECT count(*) FROM fw_login_attempt GROUP BY key")
    assert rows == [(5,), (5,)]


async def test_ipv6_address_is_counted_per_64(tmp_path: Path) -> None:
    """IPv6 is counted per /64 (A-93)."""
    async with open_virtual_site(tmp_path, address_attempts=2) as site:
        client = SignInClient(site)
        for host in ("1", "2"):
            assert await client.result_of("a", "wrong", address=f"2001:db8:1:2::{host}") == 401
        assert await client.result_of("a", "wrong", address="2001:db8:1:2:ffff::3") == 900
        assert await client.result_of("a", "wrong", address="2001:db8:1:3::1") == 401


async def test_ipv6_addresses_of_a_56_share_a_limit(tmp_path: Path) -> None:
    """The attempts of a /56 are limited to 4 times the limit of one address (A-94)."""
    async with open_virtual_site(tmp_path, address_attempts=1) as site:
        client = SignInClient(site)
        for network in range(4):
            assert await client.result_of("a", "wrong", address=f"2001:db8:0:{network:x}::1") == 401
        assert await client.result_of("b", "wrong", address="2001:db8:0:ff::1") == 900
        assert await client.result_of("b", "wrong", address="2001:db8:0:100::1") == 401


async def test_first_failure_locks_if_the_limit_is_one(tmp_path: Path) -> None:
    """`maxLoginAttempts: 1` answers the first failure with 429 (A-70)."""
    async with open_virtual_site(tmp_path, max_login_attempts=1, lockout_minutes=1) as site:
        await site.add_account("ada")
        client = SignInClient(site)
        assert [await client.result_of(pwd="wrong"), await client.result_of()] == [60, 60]


async def test_account_changed_during_the_hash_is_not_signed_in(client: SignInClient) -> None:
    attempt = make_attempt("ada", PASSWORD)
    changes = [
        "UPDATE doc_user SET enabled = 0",
        "UPDATE doc_user SET enabled = 1",
        "UPDATE fw_password SET hash = 'other', changed = changed + 1",
        "DELETE FROM fw_identifier",
    ]
    answers = []
    for change in changes:
        admitted = await client.sign_in.admit(client.sign_in.identify(attempt))
        assert isinstance(admitted, Admitted)
        await client.site.sql(change)
        answer = await client.sign_in.verify(attempt, admitted)
        answers.append("in" if isinstance(answer, SignedIn) else str(answer.status))
    assert answers == ["401", "401", "401", "401"]


async def session_of_ada(client: SignInClient, password: str = PASSWORD) -> str:
    """Sign ada in; return the handle of the session."""
    assert isinstance(await client.enter("ada", password), SignedIn)
    (*_, (handle,)) = await client.site.sql("SELECT id FROM fw_session ORDER BY created")
    return str(handle)


async def test_password_set_in_the_same_millisecond_ends_the_old_one(client: SignInClient) -> None:
    """Virtual time stands still here: an old password fails once a new one is set."""
    site = client.site.site
    attempt = make_attempt("ada", PASSWORD)
    admitted = await client.sign_in.admit(client.sign_in.identify(attempt))
    assert isinstance(admitted, Admitted)
    hashed = await site.hash_password(OTHER, "ada", "ada@x.test")
    await site.store.write(lambda tx: set_password(tx, "ada", hashed))
    assert isinstance(await client.sign_in.verify(attempt, admitted), AuthenticationError)
    session = await session_of_ada(client, OTHER)
    change = PasswordChange("ada", session, OTHER, "a third decent passphrase")
    begun = await client.changes.admit(change, client.changes.counter("ada"))
    assert isinstance(begun, AdmittedChange)
    await site.store.write(lambda tx: set_password(tx, "ada", hashed, session))
    assert isinstance(await client.changes.verify(change, begun), AuthenticationError)


async def test_counters_and_sessions_store_no_typed_text(client: SignInClient) -> None:
    """People type passwords into the name field, so no line holds what was typed (A-55)."""
    await client.result_of("hunter2-as-a-name", "hunter2")
    for table in ("fw_login_attempt", "fw_session"):
        assert "hunter2" not in str(await client.site.sql(f"SELECT * FROM {table}"))


@pytest.mark.parametrize(
    "value",
    [
        make_attempt("ada", "s3cret", old_sid="s3cret"),
        SignedIn("s3cret", "ada", "", 0, 0),
        PasswordChange("ada", "a session", "s3cret", "s3cret"),
        MadeKey("a key", "a label", None, "s3cret"),
        ApiKey("a key", "s3cret"),
        MintedLink("s3cret", 0),
        SentLink(0, "s3cret"),
        TemplateValues("tests", "ada", "Ada", "ada@x.test", "s3cret"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_of_access_hide_secrets_in_repr(value: object) -> None:
    """No password, `sid`, key or link shows in a repr or a log line (O-101)."""
    assert "s3cret" not in repr(value)


class RealClock(trio.abc.Clock):
    """Real time, for code that runs in threads."""

    def start_clock(self) -> None:
        """Runs already."""

    def current_time(self) -> float:
        return time.perf_counter()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - time.perf_counter()


@pytest.fixture
def real_clock() -> RealClock:
    return RealClock()


async def test_parallel_guesses_on_real_threads_meet_the_limit(
    tmp_path: Path, real_clock: RealClock
) -> None:
    config = make_config(APPS, database=database_of(tmp_path))
    async with open_site(config, clock=SystemClock()) as opened:
        site = VirtualSite(opened)
        await site.add_account("ada")
        before = opened.hasher.statistics().hashes
        answers = await guesses(SignInClient(site), ["wrong"] * 100)
        assert opened.hasher.statistics().hashes - before == 5
    assert (answers["401"], sum(answers.values()), "in" in answers) == (4, 100, False)


async def test_sign_in_with_an_identifier_that_moved_meanwhile_fails(site: VirtualSite) -> None:
    """The password of one account opens no other, even if both were set at the same time."""
    hashed = [await site.site.hash_password(PASSWORD, name, "") for name in ("ada", "bob")]

    def add_both(fw: Any) -> None:
        add_user(fw, "ada", "shared@x.test", "", (), hashed[0])
        add_user(fw, "bob", "bob@x.test", "", (), hashed[1])

    def move(fw: Any) -> None:
        for name, email in (("ada", "ada@x.test"), ("bob", "shared@x.test")):
            user = fw.get_doc("User", name)
            user.email = email
            user.save()

    await site.do(add_both)
    client = SignInClient(site)
    attempt = make_attempt("shared@x.test", PASSWORD)
    admitted = await client.sign_in.admit(client.sign_in.identify(attempt))
    assert isinstance(admitted, Admitted)
    await site.do(move)
    assert isinstance(await client.sign_in.verify(attempt, admitted), AuthenticationError)
    assert await site.sql("SELECT id FROM fw_session") == []
