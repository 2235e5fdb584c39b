"""Names to addresses, in threads that a dead name server can't use up.

`getaddrinfo` can't be interrupted: a look-up that nobody waits for any more keeps its thread until
the resolver gives up. So there are at most 32 such threads, at most two for one name, and none of
them come from trio's own limit, which the rest of the service shares (pitfalls page). A quarter of
them is closed to names whose last look-up was not prompt, so that names that all went dead at once
don't keep a healthy receiver waiting.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

import trio

from fw_actors.http.errors import DnsError

SocketAddress = tuple[str, int] | tuple[str, int, int, int]
Address = tuple[socket.AddressFamily, SocketAddress]
Lookup = Callable[[str, int], Sequence[Address]]

MAX_THREADS: Final = 32
MAX_PER_HOST: Final = 2
PROMPT_SECONDS: Final = 1.0  # an older look-up may be a dead one: who comes then begins a second
MAX_PROMPT: Final = 4096  # names remembered as prompt; the one asked for longest ago goes first


def system_lookup(host: str, port: int) -> Sequence[Address]:
    """All addresses of a name in the system's order of preference. Blocks.

    Raises: OSError (socket.gaierror), or UnicodeError for what can't be a name.
    """
    addresses: dict[Address, None] = {}
    for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        if isinstance(address[0], str):  # else Python has no IPv6, and the address is raw bytes
            addresses[family, address] = None
    return list(addresses)


@dataclass(frozen=True, slots=True)
class ResolverStatistics:
    """What the resolver is doing.

    Args:
        threads: threads taken, those of abandoned look-ups too.
        waiting: callers that wait for an answer.
        hosts: names that are being looked up.
    """

    threads: int
    waiting: int
    hosts: int


@dataclass(eq=False, slots=True)
class _Running:
    """One look-up under way, with everybody who waits for it."""

    began: float
    done: trio.Event = field(default_factory=trio.Event)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    waiting: int = 0
    threaded: bool = False
    addresses: Sequence[Address] | None = None


class Resolver:
    """Looks names up; callers that ask for the same name at the same time share a look-up.

    Args:
        nursery: holds the look-ups, which outlive the callers that give up.
        lookup: the blocking function that is run in a thread.
        threads: how many of them at once.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        lookup: Lookup = system_lookup,
        threads: int = MAX_THREADS,
    ) -> None:
        self._nursery = nursery
        self._lookup = lookup
        self._limiter = trio.CapacityLimiter(threads)
        self._doubtful = trio.CapacityLimiter(max(1, threads - threads // 4))
        self._prompt: dict[str, None] = {}  # in the order in which they were last looked up
        self._running: dict[tuple[str, int], list[_Running]] = {}

    async def resolve(self, host: str, port: int) -> Sequence[Address]:
        """Return all addresses of a name, the preferred ones first; at least one.

        Cancelled, it leaves the look-up to others who wait for it; where nobody does and no thread
        has begun it yet, it never begins.

        Raises: DnsError.
        """
        running = self._join_or_begin((host, port))
        running.waiting += 1
        try:
            await running.done.wait()
        finally:
            running.waiting -= 1
            if not running.waiting and not running.threaded:
                running.scope.cancel()
        if not running.addresses:
            raise DnsError(f"The name {host} has no address that could be found out.")
        return running.addresses

    def statistics(self) -> ResolverStatistics:
        """Counts of now."""
        return ResolverStatistics(
            threads=self._limiter.borrowed_tokens,
            waiting=sum(r.waiting for each in self._running.values() for r in each),
            hosts=len(self._running),
        )

    def _join_or_begin(self, key: tuple[str, int]) -> _Running:
        mine = self._running.get(key, [])
        now = trio.current_time()
        joinable = [r for r in mine if not r.scope.cancel_called]
        if joinable and (len(mine) >= MAX_PER_HOST or now - joinable[-1].began < PROMPT_SECONDS):
            return joinable[-1]
        running = _Running(now)
        self._running.setdefault(key, []).append(running)
        self._nursery.start_soon(self._run, key, running)
        return running

    async def _run(self, key: tuple[str, int], running: _Running) -> None:
        host, _ = key
        prompt = host in self._prompt
        self._prompt.pop(host, None)
        try:
            async with AsyncExitStack() as places:
                with running.scope:
                    if not prompt:
                        await places.enter_async_context(self._doubtful)
                    await places.enter_async_context(self._limiter)
                    running.threaded = True
                if running.threaded:
                    await self._look_up(key, running)
        finally:
            running.done.set()
            mine = self._running[key]
            mine.remove(running)
            if not mine:
                del self._running[key]

    async def _look_up(self, key: tuple[str, int], running: _Running) -> None:
        began = trio.current_time()
        try:
            running.addresses = await trio.to_thread.run_sync(
                self._lookup,
                *key,
                abandon_on_cancel=True,  # cancelled by the end of the sender alone
                limiter=trio.CapacityLimiter(1),  # ours were asked already
            )
        except (OSError, UnicodeError):
            running.addresses = None
        if trio.current_time() - began < PROMPT_SECONDS:
            self._prompt[key[0]] = None
            if len(self._prompt) > MAX_PROMPT:
                del self._prompt[next(iter(self._prompt))]
