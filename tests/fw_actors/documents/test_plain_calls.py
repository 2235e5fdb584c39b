"""The results of an app's functions, and how they end (D-145, D-146)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fw_actors.documents.hooks import call_plainly


def test_call_plainly_passes_arguments_and_return_value() -> None:
    given = call_plainly("f", lambda *args, **named: (args, named), 1, what=2, function=3)
    assert given == ((1,), {"what": 2, "function": 3})


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_call_plainly_converts_process_exit_to_runtime_error(end: type[BaseException]) -> None:
    def leave() -> None:
        raise end

    with pytest.raises(RuntimeError) as raised:
        call_plainly("shop.leave", leave)
    assert str(raised.value).startswith(
        f"shop.leave would have ended the process: {end.__name__} in test_plain_calls.py, line "
    )


def test_call_plainly_passes_exceptions_through() -> None:
    with pytest.raises(ZeroDivisionError):
        call_plainly("f", lambda: 1 / 0)


def test_call_plainly_refuses_and_closes_a_generator() -> None:
    """None of its code has run, as of a coroutine's (D-145)."""
    generator: Any = (each for each in range(1))
    with pytest.raises(RuntimeError, match=r"^shop\.f returned a generator and did nothing"):
        call_plainly("shop.f", lambda: generator)
    assert generator.gi_frame is None


def test_call_plainly_refuses_an_asynchronous_generator() -> None:
    """D-145."""

    async def later() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(RuntimeError, match=r"^shop\.f returned an asynchronous generator and did"):
        call_plainly("shop.f", later)


def test_call_plainly_refuses_and_closes_a_coroutine() -> None:
    """An unclosed coroutine would cause a warning later, without its origin."""

    async def later() -> None: ...

    coroutine: Any = later()
    with pytest.raises(RuntimeError, match=r"^shop\.f returned a coroutine"):
        call_plainly("shop.f", lambda: coroutine)
    assert coroutine.cr_frame is None
