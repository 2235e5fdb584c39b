"""A rate limiter over TCP: one actor for each key, in memory only while the key is in use.

A client sends a key per line and reads `ok`, or `wait` with the seconds until the next is allowed:

    python -m examples.rate_limiter &
    printf 'ann\\nann\\nbob\\n' | nc localhost 9100
"""

from __future__ import annotations

import signal
from contextlib import suppress
from functools import partial

import trio
from trio.abc import Stream

from fw_actors.runtime import (
    ActorError,
    KeyedActor,
    KeyedPool,
    Request,
    Runtime,
    SystemClock,
    SystemEntropy,
    handles,
    open_runtime,
)

MAX_KEY = 200  # bytes: a client without line breaks must not fill the memory


class Take(Request[float], frozen=True):
    """Takes one; answered with 0, or with the seconds until the next is allowed."""


class Bucket(KeyedActor):
    """Allows `burst` at once and `rate` a second in the long run."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate, self.burst = rate, burst
        self.tokens = float(burst)
        self.filled_at = 0.0

    async def started(self) -> None:
        self.filled_at = self.context.time()

    @handles(Take)
    def take(self, message: Take) -> float:
        now = self.context.time()
        self.tokens = min(self.burst, self.tokens + (now - self.filled_at) * self.rate)
        self.filled_at = now
        if self.tokens < 1:
            return (1 - self.tokens) / self.rate
        self.tokens -= 1
        return 0.0


def limits(runtime: Runtime, *, rate: float, burst: int, keys: int = 100_000) -> KeyedPool:
    """Return the buckets. An idle one is forgotten when it is full: a new one is full, too."""
    return KeyedPool(
        runtime, "limits", lambda _: Bucket(rate, burst), capacity=keys, idle_seconds=burst / rate
    )


async def serve(buckets: KeyedPool, client: Stream) -> None:
    """Answer the lines of one client."""
    line = b""
    with suppress(trio.BrokenResourceError):  # the client has gone
        async with client:
            async for part in client:
                *lines, line = (line + part).split(b"\n")
                for key in lines:
                    answer = await take(buckets, key.decode(errors="replace"))
                    await client.send_all(answer.encode())
                if len(line) > MAX_KEY:
                    return


async def take(buckets: KeyedPool, key: str) -> str:
    """Return the answer for one key."""
    try:
        seconds = await buckets[key].ask(Take(), deadline=1.0)
    except ActorError:  # all keys are in use, or the machine is too slow
        return "busy\n"
    return f"wait {seconds:.3f}\n" if seconds else "ok\n"


async def main() -> None:
    """Serve until SIGINT or SIGTERM; what is in hand then is answered."""
    async with open_runtime(clock=SystemClock(), entropy=SystemEntropy()) as runtime:
        buckets = limits(runtime, rate=5, burst=10)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_tcp, partial(serve, buckets), 9100)
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                async for _ in signals:
                    nursery.cancel_scope.cancel()
                    break


if __name__ == "__main__":
    trio.run(main)
