"""Attempts in flight never exceed B-236, and all of them end, for any behaviour of receivers.

A model of the slot rules is checked at each POST.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from fw_actors.http import Endpoint, ReceiverResponse, ResponseTimeout
from fw_actors.http.exchange import MakeHeaders
from tests.fw_actors.actors.delivery_kit import RecordedPost, ScriptedReceiver, delivering

SLOW = 1.0  # "an attempt that waits over 1 s for an answer's head"
TIMEOUT = 5


@dataclass
class ReceiverModel:
    """One receiver: the duration of each answer (None: no answer), and its slots."""

    durations: list[float | None]
    window: int = 1
    slow: bool = False
    since: float = -1.0  # when the slots last shrank
    in_flight: int = 0
    requests: int = 0


@dataclass
class ModelledReceivers(ScriptedReceiver):
    """Receivers by host; each POST is checked at its beginning."""

    answers: list[str] = field(default_factory=list)
    models: dict[str, ReceiverModel] = field(default_factory=dict)
    slots: int = 0
    per_receiver: int = 0
    broken: list[str] = field(default_factory=list)

    async def post(
        self, target: Endpoint, body: bytes, make_headers: MakeHeaders, *, timeout: float
    ) -> ReceiverResponse:
        model = self.models[target.origin.host]
        now = trio.current_time()
        self._check_limits(model, now)
        headers = {key.decode(): value.decode() for key, value in make_headers()}
        self.posts.append(RecordedPost(now - self.began, target.display, body, headers))
        pace = model.durations[min(model.requests, len(model.durations) - 1)]
        model.requests += 1
        model.in_flight += 1
        try:
            if pace is None:
                await trio.sleep(timeout)
                self._shrink(model)
                raise ResponseTimeout(f"no answer within {timeout} s.")
            await trio.sleep(pace)
            if pace > SLOW:
                self._shrink(model)
            else:
                model.window, model.slow = min(self.per_receiver, model.window * 2), False
            answer = ReceiverResponse(204, b"", None, None)
            answer.times.answer = pace * 1000
            return answer
        finally:
            model.in_flight -= 1

    def _shrink(self, model: ReceiverModel) -> None:
        model.window, model.slow, model.since = 1, True, trio.current_time()

    def _check_limits(self, model: ReceiverModel, now: float) -> None:
        """Check the slots; a window that shrank at this instant may not be known yet."""
        everywhere = sum(each.in_flight for each in self.models.values())
        if everywhere >= self.slots:
            self.broken.append("more than deliveryConcurrency")
        if model.in_flight >= self.per_receiver:
            self.broken.append("more than perReceiverConcurrency")
        if model.since < now and model.in_flight >= model.window:
            self.broken.append(f"{model.in_flight + 1} at a receiver of {model.window}")
        if model.slow and model.since < now and everywhere >= self.slots - self.slots // 4:
            self.broken.append("a slow receiver took a slot of the reserve")


PACES = st.lists(st.sampled_from([0.0, 0.01, 0.4, 1.0, 1.5, None]), min_size=1, max_size=6)
BURST = st.lists(st.integers(0, 8), min_size=1, max_size=16)  # the receiver of each event
BURSTS = st.lists(BURST, min_size=1, max_size=4)


@settings(max_examples=15, deadline=None)
@given(st.lists(PACES, min_size=1, max_size=8), BURSTS, st.integers(1, 8), st.integers(1, 8))
def test_receiver_slots_slow_start_and_reserve_hold_throughout(
    paces: list[list[float | None]], bursts: list[list[int]], slots: int, each: int
) -> None:
    """A receiver's slots grow, shrink and leave a reserve (B-231, B-232, B-233)."""
    clock = MockClock(autojump_threshold=0)
    trio.run(partial(deliver_bursts, paces, bursts, slots, each), clock=clock)


async def deliver_bursts(
    paces: list[list[float | None]], bursts: list[list[int]], slots: int, each: int
) -> None:
    """Emit bursts, each in one transaction; two Webhooks lead to the first receiver."""
    models = {f"r{number}.example": ReceiverModel(pace) for number, pace in enumerate(paces)}
    receivers = ModelledReceivers([], models=models, slots=slots, per_receiver=each)
    limits: dict[str, Any] = {"delivery_concurrency": slots, "per_receiver_concurrency": each}
    with tempfile.TemporaryDirectory() as folder:
        async with delivering(Path(folder), receivers, backoff_seconds=1.0, **limits) as post:
            hosts = [*models, "r0.example"]
            for number, host in enumerate(hosts):
                url = f"https://{host}/{number}"
                await post.webhook(url, f"to.r{number}", timeout=TIMEOUT, max_attempts=3)
            owed: list[str] = []
            for burst in bursts:
                names = [f"to.r{number % len(hosts)}" for number in burst]
                owed += await post.site.write("Administrator", partial(emit, names))
                await trio.sleep(0.3)
            ended = [await post.settled(delivery) for delivery in owed]
    assert receivers.broken == []
    sent = Counter(got.headers["webhook-id"] for got in receivers.posts)
    assert sent == {each["name"]: each["attempts"] for each in ended}


def emit(names: list[str], fw: Any) -> list[str]:
    """Emit all of them; return the ids of the deliveries."""
    return [id for name in names for id in fw.webhooks.emit(name, {})["deliveries"]]
