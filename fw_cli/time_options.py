"""The types of options for a time (an age such as `7d`, or ISO 8601) and a duration (`30m`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

TimeResolver = Callable[[int], int]
"""Returns the time in ms since the epoch, given the current time."""

_AMOUNT_AND_UNIT: Final = re.compile(r"([0-9]{1,6})([dhm])\Z")
_UNITS: Final = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1)}
_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Since(click.ParamType[TimeResolver]):
    """The type of `--since`."""

    name = "moment"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> TimeResolver:
        """Return the parsed time; a time without an offset is UTC."""
        if callable(value):
            return value  # type: ignore[no-any-return]
        amount = _AMOUNT_AND_UNIT.match(value)
        if amount is not None:
            back = int(amount[1]) * _UNITS[amount[2]] // _MILLISECOND
            return lambda now: max(0, now - back)
        try:
            moment = datetime.fromisoformat(value)
            at = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        except (ValueError, OverflowError):  # OverflowError: not within the years 1 to 9999 in UTC
            self.fail(f"{value!r} must be a time (2026-01-31T08:00Z) or an age (7d, 12h, 30m).")
        ms = max(0, (at - _EPOCH) // _MILLISECOND)
        return lambda now: ms


SINCE: Final = Since()


class Duration(click.ParamType[int]):
    """The type of a duration, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the seconds."""
        if isinstance(value, int):
            return value
        match = _AMOUNT_AND_UNIT.match(value)
        if match is None or not int(match[1]):
            self.fail(f"{value!r} must be a duration: 30m, 2h or 7d.")
        return int(match[1]) * _UNITS[match[2]] // timedelta(seconds=1)


DURATION: Final = Duration()
