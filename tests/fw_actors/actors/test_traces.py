"""A trace shows the types of an actor's messages for a minute, without their contents."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from fw_actors.actors.console_view import (
    MAX_TRACES,
    MESSAGES_KEPT,
    TRACE_KEPT_SECONDS,
    TRACE_SECONDS,
    Traces,
)
from fw_actors.errors import OverloadedError
from fw_actors.runtime import Actor, Request, SystemClock, handles, open_runtime
from fw_actors.runtime.clock import SeededEntropy


class Tell(Request[bool], frozen=True):
    name: str
    password: str


class Listening(Actor):
    @handles(Tell)
    def tell(self, message: Tell) -> bool:
        return True


async def test_actor_trace_shows_message_types_and_field_names_only(
    autojump_clock: MockClock,
) -> None:
    """H-174."""
    clock = SystemClock()
    async with open_runtime(clock=clock, entropy=SeededEntropy(1)) as runtime:
        traces = Traces(clock)
        async with runtime.running("ear", Listening) as ref:
            traces.begin(ref)
            for _ in range(MESSAGES_KEPT + 5):
                await ref.ask(Tell("ada", "s3cret"), deadline=1.0)
            (shown,) = traces.shown()
            assert (shown.actor, shown.seen, len(shown.messages)) == ("ear", 105, 100)
            assert {(m.message, m.fields) for m in shown.messages} == {("Tell", "name, password")}
            assert "s3cret" not in repr(shown)
            await trio.sleep(TRACE_SECONDS)
            await ref.ask(Tell("ada", "s3cret"), deadline=1.0)
            assert traces.shown()[0].seen == 105
            await trio.sleep(TRACE_KEPT_SECONDS + 1)
            assert traces.shown() == []


async def test_actor_traces_are_limited_to_four(autojump_clock: MockClock) -> None:
    clock = SystemClock()
    async with open_runtime(clock=clock, entropy=SeededEntropy(1)) as runtime:
        traces = Traces(clock)
        for number in range(MAX_TRACES):
            traces.begin(runtime.ref(f"ear {number}"))
        with pytest.raises(OverloadedError):
            traces.begin(runtime.ref("ear 5"))
        traces.begin(runtime.ref("ear 0"))  # again, from now on
        await trio.sleep(TRACE_SECONDS)
        traces.begin(runtime.ref("ear 5"))
