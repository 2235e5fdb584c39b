"""A flood of sign-ins delays itself: honest ones find a slot in the queue for hashes
(A-116, A-117), and one network has a limited budget of attempts (A-94)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.accounts_kit import PASSWORD
from tests.http_site import HttpSite, http_site
from tests.virtual_hashing import take_virtual_time

CONNECTIONS = 100
ADDRESSES = 2_559
SECONDS = 4.0
HASH_SECONDS = 0.025  # on each of two cores: 80 hashes a second


def of_one_48(number: int) -> str:
    return f"2001:db8:7:{number:x}::1"


def of_a_botnet(number: int) -> str:
    return f"100.{64 + number // 256}.{number % 256}.9"


async def flood(site: HttpSite, address_of: Callable[[int], str], answers: Counter[int]) -> None:
    """Guess at unknown names, from one address after the other, for `SECONDS`."""
    end, tries = trio.current_time() + SECONDS, iter(range(10**9))

    async def guess(connection: int) -> None:
        await trio.sleep(connection / 1000)
        while trio.current_time() < end:
            number = next(tries)
            peer = address_of(number % ADDRESSES)
            reply = await site.login(f"nobody{number}", "wrong", peer=peer)
            answers[reply.status] += 1
            await trio.sleep(0.2)

    async with trio.open_nursery() as nursery:
        for connection in range(CONNECTIONS):
            nursery.start_soon(guess, connection)


async def honest(site: HttpSite, usr: str, peer: str, answers: list[int]) -> None:
    """Sign in with the right password, again and again, while the flood lasts."""
    for _ in range(round(SECONDS) - 1):
        await trio.sleep(1)
        answers.append((await site.login(usr, PASSWORD, peer=peer)).status)


@pytest.mark.parametrize(("address_of", "stranger"), [(of_one_48, [200] * 3), (of_a_botnet, None)])
async def test_honest_sign_ins_get_hash_slots_beside_flood(
    tmp_path: Path,
    autojump_clock: MockClock,
    address_of: Callable[[int], str],
    stranger: list[int] | None,
) -> None:
    """A known address gets a slot also beside a flood from thousands of networks."""
    flooded: Counter[int] = Counter()
    known: list[int] = []
    unknown: list[int] = []
    async with http_site(tmp_path) as site, trio.open_nursery() as nursery:
        for name in ("ann", "bob"):
            await site.add_account(name)
        await site.sid("ann", peer="198.51.100.7")
        site.pass_time(86_400)
        hasher = site.service.site.hasher
        take_virtual_time(hasher, nursery, count=2, seconds=HASH_SECONDS)
        async with trio.open_nursery() as load:
            load.start_soon(flood, site, address_of, flooded)
            load.start_soon(honest, site, "ann", "198.51.100.7", known)
            load.start_soon(honest, site, "bob", "203.0.113.77", unknown)
    assert flooded[503] > 50, "the queue was full"
    assert known == [200] * 3
    assert stranger is None or unknown == stranger


@pytest.mark.usefixtures("on_both_stores")
async def test_attempts_are_counted_by_56_and_48_prefix(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Four and sixteen times an address's budget; a success takes back its own charge only."""
    async with http_site(tmp_path, address_attempts=2) as site:
        await site.add_account("ann")

        async def login_statuses(network: str, count: int) -> list[int]:
            return [
                (await site.login(f"x{network}{n}", "wrong", peer=f"{network}{n:x}::1")).status
                for n in range(count)
            ]

        assert await login_statuses("2001:db8:7:a0", 10) == [401] * 8 + [429] * 2, "a /56"
        assert (await site.login("ann", peer="2001:db8:7:a0f::1")).status == 429
        assert (await site.login("ann", peer="2001:db8:7:b00::1")).status == 200
        for network in ("b", "c"):
            assert await login_statuses(f"2001:db8:7:{network}0", 8) == [401] * 8
        assert (await site.login("ann", peer="2001:db8:7:d00::1")).status == 200
        assert await login_statuses("2001:db8:7:d0", 10) == [401] * 8 + [429] * 2
        assert (await site.login("ann", peer="2001:db8:7:e00::1")).status == 429, "a /48"
        assert (await site.login("ann", peer="2001:db8:8::1")).status == 200
        assert (await site.login("ann", peer="192.0.2.1")).status == 200
        refused = await site.login("ann", peer="2001:db8:7:e01::1")
        assert refused.error["extra"] == {"retryAfter": 900}
        site.pass_time(900)
        assert (await site.login("ann", peer="2001:db8:7:e00::1")).status == 200


@pytest.mark.usefixtures("on_both_stores")
async def test_recovery_has_sixteen_hash_slots_then_503(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Recovery and password change have 16 slots, then 503 (A-114); the link of a refused request
    is as good as before (A-187)."""
    async with http_site(tmp_path) as site, trio.open_nursery() as nursery:
        await site.add_account("boss", "System Manager")
        boss = await site.sid("boss")
        tokens = []
        for number in range(18):
            await site.add_account(f"user{number}")
            sent = await site.op("users.sendPasswordReset", {"user": f"user{number}"}, sid=boss)
            tokens.append(sent.json["link"].partition("#token=")[2])
        take_virtual_time(site.service.site.hasher, nursery, count=1, seconds=1.0)
        answers: Counter[int] = Counter()
        refused: list[tuple[int, str | None]] = []

        async def reset(number: int) -> None:
            body = {"token": tokens[number], "password": "another decent passphrase"}
            peer = f"198.51.100.{number}"
            reply = await site.ask("POST", "/api/auth/reset-password", body, peer=peer)
            answers[reply.status] += 1
            if reply.status == 503:
                refused.append((number, reply.header("retry-after")))

        async with trio.open_nursery() as together:
            for number in range(18):
                together.start_soon(reset, number)
        assert answers == {200: 17, 503: 1}, "one under way, 16 that wait"
        ((late, retry_after),) = refused
        assert retry_after == "1"
        await reset(late)
        assert answers == {200: 18, 503: 1}
