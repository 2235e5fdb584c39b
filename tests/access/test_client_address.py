"""The client address of a request, as the service sees it (H-90 to H-94)."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path

import pytest

from fw_actors.config import ProxyTrustPolicy
from tests.http_site import PEER, HttpSite, http_site

EVERYBODY = ProxyTrustPolicy(True, ())
THE_PROXY = ProxyTrustPolicy(False, (ip_network("203.0.113.0/24"), ip_network("10.0.0.0/8")))
FORWARDED = "X-Forwarded-For"


async def address_of(site: HttpSite, lines: Sequence[tuple[str, str]]) -> str:
    """The address that a session is noted with."""
    sid = await site.sid("ann", headers=lines)
    (mine, *_) = (await site.op("sessions.listMySessions", sid=sid)).json["sessions"]
    await site.op("sessions.revokeMySession", {"id": mine["id"]}, sid=sid)
    return str(mine["ip"])


@pytest.mark.parametrize(
    ("trust", "lines", "address"),
    [
        (EVERYBODY, [(FORWARDED, "6.6.6.6, 198.51.100.7")], "198.51.100.7"),
        (EVERYBODY, [(FORWARDED, "198.51.100.7"), (FORWARDED, "198.51.100.8")], "198.51.100.8"),
        (EVERYBODY, [("X_Forwarded_For", "198.51.100.7")], PEER),
        (EVERYBODY, [("Forwarded", "for=198.51.100.7"), ("X-Real-IP", "198.51.100.7")], PEER),
        (EVERYBODY, [(FORWARDED, "198.51.100.7:443")], PEER),
        (EVERYBODY, [(FORWARDED, "[2001:db8::1]")], PEER),
        (EVERYBODY, [(FORWARDED, "fe80::1%eth0")], PEER),
        (EVERYBODY, [(FORWARDED, "")], PEER),
        (EVERYBODY, [(FORWARDED, "198.51.100.7,")], PEER),
        (EVERYBODY, [(FORWARDED, "unknown")], PEER),
        (EVERYBODY, [(FORWARDED, "::ffff:198.51.100.7")], "198.51.100.7"),
        (THE_PROXY, [(FORWARDED, "6.6.6.6, 198.51.100.7, 10.1.2.3")], "198.51.100.7"),
        (THE_PROXY, [(FORWARDED, "10.9.9.9, 10.1.2.3")], "10.9.9.9"),
        (THE_PROXY, [(FORWARDED, "6.6.6.6, nonsense, 10.1.2.3")], PEER),
        (ProxyTrustPolicy(False, (ip_network("10.0.0.0/8"),)), [(FORWARDED, "6.6.6.6")], PEER),
        (ProxyTrustPolicy(False, ()), [(FORWARDED, "6.6.6.6")], PEER),
    ],
)
async def test_session_records_the_clients_address(
    tmp_path: Path, trust: ProxyTrustPolicy, lines: list[tuple[str, str]], address: str
) -> None:
    async with http_site(tmp_path, trust_proxy=trust) as site:
        await site.add_account("ann")
        assert await address_of(site, lines) == address


async def test_address_budget_is_shared_by_an_ipv6_household(tmp_path: Path) -> None:
    """IPv6 is counted per /64 (A-93), for sign-ins, links and keys alike, and per /56 and /48
    (A-94)."""
    async with http_site(tmp_path, address_attempts=3, recovery_attempts=3) as site:
        peers = [f"2001:db8:0:1::{number}" for number in range(1, 5)]
        tries = [await site.login(f"nobody{n}", "wrong", peer=p) for n, p in enumerate(peers)]
        assert [reply.status for reply in tries] == [401, 401, 401, 429]
        body = {"token": "x" * 32}
        looks = [await site.ask("POST", "/api/auth/token", body, peer=p) for p in peers]
        assert [reply.status for reply in looks] == [400, 400, 400, 429]
        next_door = await site.login("nobody", "wrong", peer="2001:db8:0:2::1")
        assert next_door.status == 401
