"""The results of an app's functions, and how they end (D-145, D-146)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.rules.plain_call import call_plainly, is_unawaited


def test_arguments_and_value_pass_through() -> None:
    given = call_plainly("f", lambda *args, **named: (args, named), 1, what=2, function=3)
    assert given == ((1,), {"what": 2, "function": 3})


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_it_ends_no_process(end: type[BaseException]) -> None:
    def leave() -> None:
        raise end

    with pytest.raises(RuntimeError, match=r"^shop\.leave would have ended the process"):
        call_plainly("shop.leave", leave)


def test_what_it_raises_goes_on_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        call_plainly("f", lambda: 1 / 0)


def test_a_coroutine_is_told_and_closed() -> None:
    """Left open, it would be warned of elsewhere, where nobody knows whose it was."""

    async def later() -> None: ...

    made: list[Any] = [later(), later()]
    with pytest.raises(RuntimeError, match=r"^shop\.f returned a coroutine"):
        call_plainly("shop.f", made.pop)
    coroutine = made[0]
    assert is_unawaited(coroutine)
    assert coroutine.cr_frame is None
    assert not is_unawaited({"a": 1})
