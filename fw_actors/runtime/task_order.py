"""Makes the order in which trio runs its tasks a matter of a seed, so that it can be repeated.

trio runs what is ready in batches, each in its order of arrival or in reverse, by a random number
of its own; arrival depends on the addresses of objects, too. For Hypothesis it can sort a batch
and shuffle it with a random generator instead. This uses the same switch, for any test, with a
generator that belongs to the test.
"""

from __future__ import annotations

import random  # noqa: TID251 - a generator of the seed, for trio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import trio._core._run

_SWITCH: Final = "_ALLOW_DETERMINISTIC_SCHEDULING"
_DICE: Final = "_r"


@contextmanager
def task_order(seed: int) -> Iterator[None]:
    """Have every `trio.run` inside the block order its tasks by `seed` alone.

    The same seed gives the same order, in another process and under another hash seed too, as
    long as the tasks themselves do the same: time from a MockClock, no threads, no sockets.
    """
    names = vars(trio._core._run)
    before = _parts(names)
    names.update({_SWITCH: True, _DICE: random.Random(seed)})
    try:
        yield
    finally:
        names.update(before)


def _parts(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is replaced; a KeyError here means that trio does it in another way now."""
    return {name: names[name] for name in (_SWITCH, _DICE)}
