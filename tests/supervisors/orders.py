"""Runs a test of supervision in many orders of trio's tasks, each time with a new runtime."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial, wraps
from typing import Any, Final

import trio
from trio.testing import MockClock

from fw_actors.runtime import SeededEntropy, TrioClock, open_runtime
from fw_actors.runtime.testing import task_order
from tests.fw_actors.runtime.sample_actors import LogBook

ORDERS: Final = int(os.environ.get("TASK_ORDERS", "50"))
_OWN: Final = ("runtime", "log", "order")
_START_MS: Final = 1_700_000_000_000


def in_many_orders(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test in virtual time once for each of 50 orders (`TASK_ORDERS`).

    The test gets what it names of `runtime`, `log` (of the runtime) and `order` (its number); other
    parameters are pytest's. It is one test for pytest, which takes longer to set one up than most
    of these run. A failure has a note with the number of its order.
    """
    signature = inspect.signature(test)
    own = [name for name in signature.parameters if name in _OWN]
    others = [p for name, p in signature.parameters.items() if name not in _OWN]

    @wraps(test)
    def run_all(**values: Any) -> None:
        for order in range(ORDERS):
            run = partial(_run, test, own, order, values)
            try:
                with task_order(order):
                    trio.run(run, clock=MockClock(autojump_threshold=0))
            except BaseException as error:
                error.add_note(f"in order {order}")
                raise

    run_all.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
    return run_all


async def _run(
    test: Callable[..., Awaitable[None]],
    own: Iterable[str],
    order: int,
    values: Mapping[str, Any],
) -> None:
    log = LogBook()
    async with open_runtime(
        clock=TrioClock(_START_MS), entropy=SeededEntropy(1), log=log
    ) as runtime:
        given = {"runtime": runtime, "log": log, "order": order}
        await test(**values, **{name: given[name] for name in own})
