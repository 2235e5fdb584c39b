"""Look-ups that are never answered, on a real socket (B-149, B-140)."""

from __future__ import annotations

import pytest
import trio

from fw_actors.http import ResponseTimeout, Sender, open_sender, parse_endpoint
from fw_actors.http.dial import MAX_PER_HOST, MAX_THREADS
from tests.fw_actors.http.dead_names import DeadNames
from tests.fw_actors.http.receiver import OK, SocketReceiver, headers, once, receiving

DEAD = 60
LONG, SHORT = 60.0, 0.5


async def post(sender: Sender, receiver: SocketReceiver, host: str, timeout: float) -> int:
    target = parse_endpoint(f"http://{host}:{receiver.port}/hook", development=True)
    return (await sender.post(target, b"{}", headers, timeout=timeout)).status


async def test_dead_names_do_not_delay_prompt_receiver() -> None:
    """The connection is closed after each answer, so that each POST resolves its name."""
    with DeadNames() as names:
        async with (
            receiving(once(OK)) as receiver,
            open_sender(lookup=names.lookup) as sender,
            trio.open_nursery() as nursery,
        ):
            assert await post(sender, receiver, "healthy.example", LONG) == 200
            for number in range(DEAD):
                nursery.start_soon(post, sender, receiver, f"dead{number}.example", LONG)
            await names.have_swallowed(MAX_THREADS - MAX_THREADS // 4)
            for _ in range(5):
                assert await post(sender, receiver, "healthy.example", LONG) == 200
            resolver = sender.statistics().resolver
            assert (resolver.waiting, resolver.threads) == (DEAD, names.swallowed)
            assert names.swallowed == MAX_THREADS - MAX_THREADS // 4
            nursery.cancel_scope.cancel()


async def test_deadline_holds_without_name_server_answer() -> None:
    """`timeout` is one deadline over DNS, connect, TLS, sending and the answer."""
    ended = []

    async def late(sender: Sender, receiver: SocketReceiver, number: int) -> None:
        with pytest.raises(ResponseTimeout, match=f"dead{number}"):
            await post(sender, receiver, f"dead{number}.example", SHORT)
        ended.append(number)

    with DeadNames() as names:
        async with receiving(once(OK)) as receiver, open_sender(lookup=names.lookup) as sender:
            async with trio.open_nursery() as nursery:
                for number in range(DEAD):
                    nursery.start_soon(late, sender, receiver, number)
            assert len(ended) == DEAD
            resolver = sender.statistics().resolver
            assert resolver.waiting == 0
            assert resolver.threads == names.swallowed, "abandoned look-ups keep their threads"
            assert receiver.requests == []


async def test_dead_name_takes_two_threads_at_most() -> None:
    with DeadNames() as names:
        async with receiving(once(OK)) as receiver, open_sender(lookup=names.lookup) as sender:
            for _ in range(5):
                with pytest.raises(ResponseTimeout):
                    await post(sender, receiver, "dead.example", SHORT)
            assert names.swallowed == sender.statistics().resolver.threads == MAX_PER_HOST
