"""Each attempt at a password is one line of the log (A-55, A-253)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.access.sign_in import SignInAttempt
from tests.accounts_kit import PASSWORD
from tests.http_site import PEER, HttpSite

OTHER = "another decent passphrase"
PASSWORD_AS_NAME = "oh no, this is my password"


def lines(site: HttpSite, event: str = "sign_in.ended") -> list[dict[str, Any]]:
    return [dict(fields) for fields in site.log.of(event)]


async def test_attempt_log_has_one_line_for_a_sign_in(site: HttpSite) -> None:
    await site.add_account("ann")
    await site.login("ANN", headers=[("X-Request-Id", "r-1")])
    (line,) = lines(site)
    assert len(line.pop("counter")) == 12
    assert line == {"request_id": "r-1", "outcome": "signed_in", "address": PEER, "user": "ann"}


async def test_attempt_log_names_no_user_of_a_failure(site: HttpSite) -> None:
    """People type passwords into the name field, so no line holds what was typed (A-55)."""
    await site.add_account("ann")
    for usr in ("ann", PASSWORD_AS_NAME):
        for number in range(7):
            await site.login(usr, "wrong", headers=[("X-Request-Id", f"{usr[0]}-{number}")])
    found = lines(site)
    assert [line["outcome"] for line in found] == (["wrong"] * 4 + ["throttled"] * 3) * 2
    assert [line["request_id"] for line in found[:2]] == ["a-0", "a-1"]
    assert [len({line["counter"] for line in half}) for half in (found[:7], found[7:])] == [1, 1]
    assert found[0]["counter"] != found[7]["counter"]
    assert all(set(line) == {"request_id", "outcome", "address", "counter"} for line in found)
    assert PASSWORD_AS_NAME not in str(site.log.entries)


async def test_attempt_log_has_one_line_for_a_throttled_address(site: HttpSite) -> None:
    for number in range(52):
        await site.login(f"nobody-{number}", "wrong")
    assert len(lines(site)) == 52
    for last in lines(site)[-2:]:
        assert (last["outcome"], last["address"]) == ("throttled", PEER)


async def test_attempt_log_has_no_counter_for_a_malformed_request(
    site: HttpSite,
) -> None:
    for number in range(50):
        await site.login(f"nobody-{number}", "wrong")
    assert (await site.ask("POST", "/api/login", {"usr": 1})).status == 429
    last = lines(site)[-1]
    assert (last["outcome"], last["address"], "counter" in last) == ("throttled", PEER, False)


@pytest.mark.parametrize(
    ("current", "password", "outcome"),
    [(PASSWORD, OTHER, "changed"), ("wrong", OTHER, "wrong"), (PASSWORD, "short", "refused")],
)
async def test_attempt_log_has_one_line_for_a_password_change(
    site: HttpSite, current: str, password: str, outcome: str
) -> None:
    await site.add_account("ann")
    sid = await site.sid("ann")
    body = {"current": current, "password": password}
    await site.op("profile.changeMyPassword", body, sid=sid, headers=[("X-Request-Id", "r-2")])
    (line,) = lines(site, "password_change.ended")
    assert line == {"request_id": "r-2", "outcome": outcome, "user": "ann"}


async def test_attempt_log_agrees_with_the_metrics(site: HttpSite) -> None:
    await site.add_account("ann")
    await site.login("ann")
    for _ in range(6):
        await site.login("nobody", "wrong")
    page = (await site.ask("GET", "/metrics", peer="127.0.0.1")).body.decode()
    outcomes = [line["outcome"] for line in lines(site)]
    for outcome in ("signed_in", "wrong", "throttled", "overloaded"):
        assert f'fw_sign_ins_total{{outcome="{outcome}"}} {outcomes.count(outcome)}.0' in page


async def test_attempt_log_ignores_malformed_requests(site: HttpSite) -> None:
    for body in ({"usr": "ann"}, {"usr": " ", "pwd": "x"}, b"{"):
        await site.ask("POST", "/api/login", body)
    assert lines(site) == []


def test_attempt_log_never_shows_a_password() -> None:
    attempt = SignInAttempt("ann", PASSWORD, PEER, "", "a sid", "r")
    assert PASSWORD not in repr(attempt)
    assert "a sid" not in repr(attempt)
