"""The field types of a DocType: what each takes, how it is stored, how JSON shows it.

Values in Python are those that JSON shows: text, whole numbers, floats, 0 or 1 for a Check,
`YYYY-MM-DD` for a Date, ISO 8601 UTC with milliseconds for a Datetime, lists of rows for a Table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

import sqlalchemy as sa

from fw_actors.documents.field import (
    CONTROLS,
    CONTROLS_AND_BREAKS,
    LARGEST_INTEGER,
    Field,
    ShapeError,
)
from fw_actors.errors import ValidationError

DATA_LENGTH: Final = 140
CONFIGURED: Final[dict[str, object]] = {"configured": True}  # what is shown of a Vault value


class _Textual(Field):
    controls: ClassVar[re.Pattern[str]] = CONTROLS_AND_BREAKS

    def _accept(self, value: Any) -> str:
        if not isinstance(value, str):
            raise self.shape()
        plain = value.isascii() and value.isprintable()  # what most are, seen without a search
        if not plain and self.controls.search(value):
            raise ShapeError(f"{self.name} holds a control character.")
        if self.length is not None and len(value) > self.length:
            raise ValidationError(
                f"{self.name} has at most {self.length} characters.", field=self.name
            )
        return value


class Data(_Textual):
    """One line of text, at most 140 characters unless `length` says otherwise."""

    type = "Data"

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"length": DATA_LENGTH, **options})


class Text(_Textual):
    """Text of any length, with tabs and line breaks."""

    type = "Text"
    controls = CONTROLS


class Password(_Textual):
    """A password for another system: plain at rest, blank on every read through the API."""

    type = "Password"
    secret = True
    plain = False
    controls = CONTROLS


class Vault(_Textual):
    """A secret that is encrypted at rest and never read back through the API."""

    type = "Vault"
    secret = True
    plain = False
    controls = CONTROLS

    def from_store(self, value: Any) -> dict[str, object] | None:
        return CONFIGURED if value else None


class Int(Field):
    """A whole number between -2^53 and 2^53."""

    type = "Int"
    column = sa.BigInteger()
    wanted = "a whole number"

    def __init__(self, *, minimum: int | None = None, maximum: int | None = None, **options: Any):
        super().__init__(**options)
        self.minimum, self.maximum = minimum, maximum

    def _accept(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.shape()
        if abs(value) > LARGEST_INTEGER:
            raise ShapeError(f"{self.name} is beyond 2^53.")
        low, high = self.minimum, self.maximum
        if (low is not None and value < low) or (high is not None and value > high):
            raise ValidationError(f"{self.name} is {self._range()}.", field=self.name)
        return value

    def _range(self) -> str:
        if self.minimum is None or self.maximum is None:
            return f"{self.maximum} or less" if self.minimum is None else f"{self.minimum} or more"
        return f"{self.minimum} to {self.maximum}"


class Float(Field):
    """A floating-point number; NaN and infinities are refused."""

    type = "Float"
    column = sa.Double()
    wanted = "a number"

    def _accept(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.shape()
        if (isinstance(value, int) and abs(value) > LARGEST_INTEGER) or not math.isfinite(value):
            raise ShapeError(f"{self.name} is no finite number within 2^53.")
        return value + 0.0  # SQLite keeps no sign of a zero, so -0.0 is 0.0


class Check(Field):
    """0 or 1; true and false are taken too. Never null."""

    type = "Check"
    column = sa.BigInteger()
    empty = 0
    wanted = "0 or 1"

    def accept(self, value: Any) -> int:
        if value is None:
            return 0
        if not isinstance(value, int):
            raise self.shape()
        if value not in (0, 1):
            raise ValidationError(f"{self.name} is 0 or 1.", field=self.name)
        return int(value)

    def from_store(self, value: Any) -> int:
        return value or 0


class Select(_Textual):
    """One of `options`; empty is allowed unless required."""

    type = "Select"

    def problems(self) -> Iterator[str]:
        options = self.options
        if (
            isinstance(options, str)
            or not isinstance(options, Sequence)
            or not options
            or not all(isinstance(option, str) and option for option in options)
        ):
            yield "options is a list of texts"
            return
        yield from super().problems()

    def _accept(self, value: Any) -> str:
        text = super()._accept(value)
        if text and text not in self.options:
            raise ValidationError(
                f"{self.name} is one of {', '.join(self.options)}.", field=self.name
            )
        return text


class Link(_Textual):
    """The name of a document of the DocType that `options` names."""

    type = "Link"

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"length": DATA_LENGTH, **options})

    def problems(self) -> Iterator[str]:
        if not isinstance(self.options, str) or not self.options:
            yield "options names the DocType that the link leads to"
        yield from super().problems()


class Table(Field):
    """Child rows of another DocType, in order; saved and read with their parent."""

    type = "Table"
    plain = False
    wanted = "a list of rows"

    def __init__(self, child: Any = None, /, **options: Any) -> None:
        super().__init__(**options)
        self.child: Any = child if child is not None else self.options

    def blank(self) -> list[Any]:
        return []

    def is_missing(self, value: object) -> bool:
        return not value

    def problems(self) -> Iterator[str]:
        if not isinstance(self.child, type):
            yield "Table takes a child DocType class"
        yield from super().problems()
