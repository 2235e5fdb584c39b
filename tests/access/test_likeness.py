"""No answer and no time reveals which accounts exist (A-46, A-212).

The tests compare the work, which is exact, and then the time of alternating attempts: a rank
test with room for any machine.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.http_site import HttpSite, http_site

NAMES = ("ann", "nobody-at-all", "off", "invited")
ROUNDS, SAMPLES = 60, 4
LEAST, MOST = 0.2, 0.8  # alike means 0.5; 60 against 60 by chance stays within 0.25 to 0.75


@pytest.fixture
async def wide(tmp_path: Path) -> AsyncIterator[HttpSite]:
    policy = {"max_login_attempts": 1000, "address_attempts": 100_000, "recovery_attempts": 100_000}
    async with http_site(tmp_path, **policy) as site:
        await site.add_account("ann")
        await site.add_account("off")
        await site.add_account("invited", password=None)
        await site.rows("UPDATE doc_user SET enabled = 0 WHERE name = 'off'")
        yield site


def work_so_far(site: HttpSite) -> tuple[int, int, int]:
    """Hashes, transactions and reads since the start."""
    store = site.site.store.statistics()
    return site.site.hasher.statistics().hashes, store.committed, store.reads


async def ask(site: HttpSite, path: str, name: str) -> tuple[int, bytes, list[str]]:
    body = {"usr": name} if path.endswith("forgot-password") else {"usr": name, "pwd": "wrong"}
    reply = await site.ask("POST", path, body, headers=[("X-Request-Id", "same")])
    headers = [f"{k}: {v}" for k, v in reply.headers if k.lower() != "date"]  # a second may end
    return reply.status, reply.body, sorted(headers)


@pytest.mark.usefixtures("on_both_stores")
async def test_sign_in_failure_is_the_same_work_for_every_name(wide: HttpSite) -> None:
    """A refused sign-in costs exactly one argon2 verification (A-44)."""
    answers, works = [], []
    for name in NAMES:
        before = work_so_far(wide)
        answers.append(await ask(wide, "/api/login", name))
        after = work_so_far(wide)
        works.append(tuple(b - a for a, b in zip(before, after, strict=True)))
    assert answers == [answers[0]] * len(NAMES)
    assert works == [works[0]] * len(NAMES)
    assert works[0][0] == 1


@pytest.mark.usefixtures("on_both_stores")
async def test_forgot_password_responds_alike_and_hashes_nothing(wide: HttpSite) -> None:
    """The answer is the same for known and unknown names (A-212), and nothing is hashed
    (A-213)."""
    hashes, *_ = work_so_far(wide)
    answers = [await ask(wide, "/api/auth/forgot-password", name) for name in NAMES]
    assert answers == [answers[0]] * len(NAMES)
    assert work_so_far(wide)[0] == hashes


@pytest.mark.parametrize("path", ["/api/login", "/api/auth/forgot-password"])
async def test_sign_in_times_of_known_and_unknown_names_rank_alike(
    wide: HttpSite, path: str
) -> None:
    """A name that takes longer does so in each sample; the load of other programs varies."""
    shares: list[float] = []
    while len(shares) < SAMPLES and not (shares and LEAST < shares[-1] < MOST):
        shares.append(await share_of_later(wide, path))
    assert LEAST < shares[-1] < MOST, shares


async def share_of_later(wide: HttpSite, path: str) -> float:
    """Ask for a known and an unknown name in turn; how often the known one took longer."""
    times: dict[str, list[float]] = {"ann": [], "nobody-at-all": []}
    for number in range(ROUNDS):
        for name in sorted(times, reverse=bool(number % 2)):
            wide.pass_time(3600 if path.endswith("forgot-password") else 0)  # no throttle
            begun = time.perf_counter()
            status, *_ = await ask(wide, path, name)
            times[name].append(time.perf_counter() - begun)
            assert status == (200 if path.endswith("forgot-password") else 401), number
    known, unknown = times["ann"], times["nobody-at-all"]
    later = sum((k > u) + (k == u) / 2 for k in known for u in unknown)
    return later / (ROUNDS * ROUNDS)
