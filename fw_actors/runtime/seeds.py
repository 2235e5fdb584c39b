"""Runs a test of actors under many orders of trio's tasks, each time with a new runtime."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial, wraps
from typing import Any, Final

import trio
from trio.testing import MockClock

from fw_actors.runtime.clock import SeededEntropy, TrioClock
from fw_actors.runtime.log_book import LogBook
from fw_actors.runtime.system import open_runtime
from fw_actors.runtime.task_order import task_order

GIVEN: Final = ("runtime", "log", "seed")
START_MS: Final = 1_700_000_000_000
"""The Unix time at which runtimes of tests begin, in ms."""


class SeedOption:
    """The seed that `--only-seed` of the pytest plugin has chosen for all tests."""

    only: int | None = None


def seeds(
    count: int, *, only: int | None = None
) -> Callable[[Callable[..., Awaitable[object]]], Callable[..., None]]:
    """Run an async test in virtual time, once for each of the seeds from 0 to `count` - 1.

    The seed decides the order in which trio runs its tasks, and is that of the runtime's entropy.
    The test gets what its parameters name of `runtime`, `log` (the runtime's `LogBook`) and
    `seed`; other parameters are left to pytest, whose async fixtures it cannot have. It is a plain
    function, so it needs no plugin, nor pytest. A failure has a note with its seed, and with how
    to run that one alone: `only=`, or `--only-seed` of `fw_actors.runtime.pytest_plugin`.
    Raises ValueError if `count` is less than 1.
    """
    if count < 1:
        raise ValueError("count must be at least 1")

    def decorate(test: Callable[..., Awaitable[object]]) -> Callable[..., None]:
        signature = inspect.signature(test)
        given = [name for name in signature.parameters if name in GIVEN]
        others = [p for name, p in signature.parameters.items() if name not in GIVEN]

        @wraps(test)
        def run_all(*values: Any, **named: Any) -> None:
            chosen = SeedOption.only if only is None else only
            for seed in range(count) if chosen is None else (chosen,):
                run = partial(_run, partial(test, *values), given, seed, named)
                try:
                    with task_order(seed):
                        trio.run(run, clock=MockClock(autojump_threshold=0))
                except BaseException as error:
                    error.add_note(
                        f"under seed {seed} of {count}; this one alone: "
                        f"@seeds({count}, only={seed}), or pytest --only-seed={seed}"
                    )
                    raise

        # For pytest, which must not look for fixtures of these names.
        run_all.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run_all

    return decorate


async def _run(
    test: Callable[..., Awaitable[object]],
    given: Iterable[str],
    seed: int,
    named: Mapping[str, Any],
) -> None:
    log = LogBook()
    clock, entropy = TrioClock(START_MS), SeededEntropy(seed)
    async with open_runtime(clock=clock, entropy=entropy, log=log) as runtime:
        values = {"runtime": runtime, "log": log, "seed": seed}
        await test(**named, **{name: values[name] for name in given})
