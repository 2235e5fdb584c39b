"""Delays of a store's writes in virtual time, as of one that is busy or far away."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import trio

from fw_actors.store import Store

Write = Callable[..., Any]


def delay_writes(
    monkeypatch: pytest.MonkeyPatch,
    store: Store,
    *,
    before: Callable[[], float] = lambda: 0.0,
    after: Callable[[Any], float] = lambda answer: 0.0,
) -> Write:
    """Delay each write by `before()` seconds, and its answer by `after(answer)` seconds.

    Returns: the method without delays.
    """
    write = store.write

    async def write_slowly(*args: Any, **options: Any) -> object:
        await trio.sleep(before())
        answer = await write(*args, **options)
        await trio.sleep(after(answer))
        return answer

    monkeypatch.setattr(store, "write", write_slowly)
    return write


def delay_writes_randomly(
    monkeypatch: pytest.MonkeyPatch, store: Store, random: Random, slowest: float
) -> Write:
    """Delay each write and its answer by random times up to `slowest` seconds.

    Returns: the method without delays.
    """

    def delay(*_: object) -> float:
        return random.uniform(0.0, slowest)

    return delay_writes(monkeypatch, store, before=delay, after=delay)
