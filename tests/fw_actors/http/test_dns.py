"""Look-ups run in a few threads of their own, which dead names cannot use up (B-149)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence

import pytest
import trio
import trio.testing

from fw_actors.http import Address, DnsError, system_lookup
from fw_actors.http.dial import PROMPT_SECONDS, Resolver

FOUND: Sequence[Address] = [(socket.AF_INET, ("192.0.2.1", 443))]


class ScriptedNameServer:
    """A name server that answers, refuses, or hangs until it is released."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.at_once = self.peak = 0
        self._lock = threading.Lock()
        self._go = threading.Event()

    def lookup(self, host: str, port: int) -> Sequence[Address]:
        with self._lock:
            self.queries.append(host)
            self.at_once += 1
            self.peak = max(self.peak, self.at_once)
        try:
            if host.startswith("dead"):
                self._go.wait(60)
            if host == "unknown":
                raise socket.gaierror(socket.EAI_NONAME, "not known")
            return [] if host == "empty" else [(socket.AF_INET, ("192.0.2.1", port))]
        finally:
            with self._lock:
                self.at_once -= 1

    def release(self) -> None:
        self._go.set()


@pytest.fixture
def names() -> Iterator[ScriptedNameServer]:
    names = ScriptedNameServer()
    yield names
    names.release()


async def abandon(resolver: Resolver, host: str) -> None:
    """Begin a look-up, and cancel it once only its answer is missing."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(resolver.resolve, host, 443)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def settled(resolver: Resolver) -> None:
    """Wait until no look-up is under way."""
    with trio.fail_after(30):
        while resolver.statistics().hosts:  # noqa: ASYNC110 - threads set no event
            await trio.sleep(0.001)


async def test_resolver_returns_addresses_of_name(
    nursery: trio.Nursery, names: ScriptedNameServer
) -> None:
    resolver = Resolver(nursery, names.lookup)
    assert await resolver.resolve("good", 443) == FOUND
    assert resolver.statistics().hosts == resolver.statistics().threads == 0


@pytest.mark.parametrize("host", ["unknown", "empty"])
async def test_resolver_reports_missing_address_as_dns_error(
    nursery: trio.Nursery, names: ScriptedNameServer, host: str
) -> None:
    resolver = Resolver(nursery, names.lookup)
    with pytest.raises(DnsError, match=host):
        await resolver.resolve(host, 443)


async def test_resolver_shares_concurrent_lookups(
    nursery: trio.Nursery, names: ScriptedNameServer
) -> None:
    resolver = Resolver(nursery, names.lookup)
    async with trio.open_nursery() as callers:
        for _ in range(20):
            callers.start_soon(resolver.resolve, "dead.but.shared", 443)
        await trio.testing.wait_all_tasks_blocked()
        assert resolver.statistics().waiting == 20
        names.release()
    assert names.queries == ["dead.but.shared"]


async def test_resolver_abandoned_lookup_keeps_only_its_thread(
    nursery: trio.Nursery, names: ScriptedNameServer
) -> None:
    resolver = Resolver(nursery, names.lookup, threads=4)
    for number in range(2):
        await abandon(resolver, f"dead{number}")
    assert (resolver.statistics().threads, resolver.statistics().waiting) == (2, 0)
    with trio.fail_after(30):
        assert await resolver.resolve("good", 443) == FOUND
    names.release()
    await settled(resolver)
    assert resolver.statistics().threads == 0


async def test_resolver_reserves_quarter_of_threads_for_prompt_names(
    nursery: trio.Nursery, names: ScriptedNameServer
) -> None:
    resolver = Resolver(nursery, names.lookup, threads=4)
    await resolver.resolve("good", 443)
    for number in range(8):
        await abandon(resolver, f"dead{number}")
    assert resolver.statistics().threads == 3
    with trio.fail_after(30):
        assert await resolver.resolve("good", 443) == FOUND
    with pytest.raises(trio.TooSlowError), trio.fail_after(0.02):
        await resolver.resolve("new", 443)
    names.release()
    await settled(resolver)
    assert await resolver.resolve("new", 443) == FOUND


async def test_resolver_uses_at_most_two_threads_per_name(
    nursery: trio.Nursery, names: ScriptedNameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 32 threads, 2 of one host (B-149)."""
    monkeypatch.setattr("fw_actors.http.dial.PROMPT_SECONDS", 0.0)
    resolver = Resolver(nursery, names.lookup)
    for _ in range(5):
        await abandon(resolver, "dead")
    assert resolver.statistics().threads == 2
    names.release()
    await settled(resolver)
    assert names.queries == ["dead", "dead"]


async def test_resolver_shares_lookup_of_name_between_ports(
    nursery: trio.Nursery, names: ScriptedNameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent name must not take two threads for each of its ports (B-149)."""
    monkeypatch.setattr("fw_actors.http.dial.PROMPT_SECONDS", 0.0)
    resolver = Resolver(nursery, names.lookup)
    found: dict[int, Sequence[Address]] = {}

    async def resolve(port: int) -> None:
        found[port] = await resolver.resolve("dead", port)

    async with trio.open_nursery() as callers:
        for port in range(443, 448):
            callers.start_soon(resolve, port)
        await trio.testing.wait_all_tasks_blocked(0.02)
        counts = resolver.statistics()
        names.release()
    assert (counts.threads, counts.hosts, counts.waiting) == (2, 1, 5)
    assert found == {port: [(socket.AF_INET, ("192.0.2.1", port))] for port in range(443, 448)}


async def test_resolver_starts_second_lookup_beside_old_one(
    nursery: trio.Nursery, names: ScriptedNameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first may have gone to a name server that died meanwhile."""
    assert PROMPT_SECONDS == 1.0
    resolver = Resolver(nursery, names.lookup)
    await abandon(resolver, "dead")
    await abandon(resolver, "dead")
    assert resolver.statistics().threads == 1
    monkeypatch.setattr("fw_actors.http.dial.PROMPT_SECONDS", 0.0)
    await abandon(resolver, "dead")
    assert resolver.statistics().threads == 2
    names.release()


async def test_resolver_never_exceeds_thread_limit(
    nursery: trio.Nursery, names: ScriptedNameServer
) -> None:
    resolver = Resolver(nursery, names.lookup, threads=2)
    async with trio.open_nursery() as callers:
        for number in range(6):
            callers.start_soon(resolver.resolve, f"dead{number}", 443)
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert resolver.statistics().threads == 2
        names.release()
    assert (names.peak, len(names.queries)) == (2, 6)


async def test_resolver_skips_abandoned_waiting_lookups(
    nursery: trio.Nursery, names: ScriptedNameServer
) -> None:
    resolver = Resolver(nursery, names.lookup, threads=1)
    await abandon(resolver, "dead")
    for number in range(10):
        await abandon(resolver, f"late{number}")
    names.release()
    await settled(resolver)
    assert names.queries == ["dead"]


def test_system_lookup_returns_distinct_localhost_addresses() -> None:
    addresses = system_lookup("localhost", 80)
    assert (socket.AF_INET, ("127.0.0.1", 80)) in addresses
    assert len(set(addresses)) == len(addresses)
