"""The field types of a DocType: what each takes, how it is stored, how JSON shows it.

Values in Python are those that JSON shows: text, whole numbers, floats, 0 or 1 for a Check,
`YYYY-MM-DD` for a Date, ISO 8601 UTC with milliseconds for a Datetime, lists of rows for a Table.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

from fw_actors.errors import ValidationError

DATA_LENGTH: Final = 140
LARGEST_INTEGER: Final = 2**53
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_CONTROLS_AND_BREAKS: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


class ShapeError(ValueError):
    """Raised when a value has the wrong JSON type for its field: 400 over HTTP, 422 from code."""


class Field:
    """One field of a DocType; the class attribute's name is the field's name."""

    type: ClassVar[str]
    column: ClassVar[TypeEngine[Any]] = sa.Text()
    empty: ClassVar[object] = None
    secret: ClassVar[bool] = False
    wanted: ClassVar[str] = "text"

    def __init__(
        self,
        *,
        required: bool = False,
        unique: bool = False,
        default: object = None,
        options: Any = None,
        length: int | None = None,
        permlevel: int = 0,
        allow_on_submit: bool = False,
        read_only: bool = False,
    ) -> None:
        self.name = ""
        self.required, self.unique, self.default = required, unique, default
        self.options, self.length, self.permlevel = options, length, permlevel
        self.allow_on_submit, self.read_only = allow_on_submit, read_only

    if TYPE_CHECKING:  # an instance holds the value; the class holds the field

        def __get__(self, instance: object, owner: object = None) -> Any: ...

        def __set__(self, instance: object, value: Any) -> None: ...

    def __set_name__(self, owner: object, name: str) -> None:
        self.name = name

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the declaration itself."""
        if self.permlevel not in range(10):
            yield "permlevel is 0 to 9"
        if self.length is not None and self.length < 1:
            yield "length is a whole number from 1"
        if self.default is not None:
            try:
                self.accept(self.default)
            except (ShapeError, ValidationError) as error:
                yield f"default: {error}"

    def accept(self, value: Any) -> Any:
        """Return `value` as the field holds it; None stays None.

        Raises: ShapeError for a wrong type, ValidationError for a value out of range.
        """
        return None if value is None else self._accept(value)

    def _accept(self, value: Any) -> Any:
        raise ShapeError(f"{self.name} takes {self.wanted}.")

    def is_missing(self, value: object) -> bool:
        """Whether a required field would be refused with this value."""
        return value is None or value == ""

    def to_store(self, value: Any) -> Any:
        """Return what the column holds."""
        return value

    def from_store(self, value: Any) -> Any:
        """Return what the document holds."""
        return value

    def shape(self) -> ShapeError:
        return ShapeError(f"{self.name} takes {self.wanted}.")


class _Textual(Field):
    controls: ClassVar[re.Pattern[str]] = _CONTROLS_AND_BREAKS

    def _accept(self, value: Any) -> str:
        if not isinstance(value, str):
            raise self.shape()
        if self.controls.search(value):
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
    controls = _CONTROLS


class Password(_Textual):
    """A password for another system: plain at rest, blank on every read through the API."""

    type = "Password"
    secret = True
    controls = _CONTROLS


class Vault(_Textual):
    """A secret that is encrypted at rest and never read back through the API."""

    type = "Vault"
    secret = True
    controls = _CONTROLS


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
            raise ValidationError(f"{self.name} is {low} to {high}.", field=self.name)
        return value


class Float(Field):
    """A floating-point number; NaN and infinities are refused."""

    type = "Float"
    column = sa.Double()
    wanted = "a number"

    def _accept(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.shape()
        if not math.isfinite(value) or (isinstance(value, int) and abs(value) > LARGEST_INTEGER):
            raise ShapeError(f"{self.name} is no finite number within 2^53.")
        return float(value)


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


class Date(Field):
    """A day, `YYYY-MM-DD`."""

    type = "Date"
    wanted = "a date as YYYY-MM-DD"

    def _accept(self, value: Any) -> str:
        if isinstance(value, date) and not isinstance(value, datetime):
            return value.isoformat()
        if not isinstance(value, str):
            raise self.shape()
        try:
            if not _DATE.match(value):
                raise ValueError
            return date.fromisoformat(value).isoformat()
        except ValueError:
            raise ValidationError(
                f"{self.name} is a date as YYYY-MM-DD.", field=self.name
            ) from None


class Datetime(Field):
    """An instant: ISO 8601 with an offset (none means UTC), kept to the millisecond."""

    type = "Datetime"
    column = sa.BigInteger()
    wanted = "a time as ISO 8601"

    def _accept(self, value: Any) -> str:
        if isinstance(value, datetime):
            return iso(to_ms(value))
        if not isinstance(value, str):
            raise self.shape()
        try:
            return iso(to_ms(datetime.fromisoformat(value)))
        except (ValueError, OverflowError):
            raise ValidationError(f"{self.name} is a time as ISO 8601.", field=self.name) from None

    def to_store(self, value: Any) -> int | None:
        return None if value is None else to_ms(datetime.fromisoformat(value))

    def from_store(self, value: Any) -> str | None:
        return None if value is None else iso(value)


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


class JSON(Field):
    """Any JSON value, stored as its text."""

    type = "JSON"
    wanted = "a JSON value"

    def _accept(self, value: Any) -> Any:
        try:
            text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            raise self.shape() from None
        if _CONTROLS.search(text):
            raise ShapeError(f"{self.name} holds a control character.")
        return value

    def to_store(self, value: Any) -> str | None:
        return None if value is None else json.dumps(value, ensure_ascii=False)

    def from_store(self, value: Any) -> Any:
        return None if value is None else json.loads(value)


class Table(Field):
    """Child rows of another DocType, in order; saved and read with their parent."""

    type = "Table"
    wanted = "a list of rows"

    def __init__(self, child: Any = None, /, **options: Any) -> None:
        super().__init__(**options)
        self.child: Any = child if child is not None else self.options

    def is_missing(self, value: object) -> bool:
        return not value

    def problems(self) -> Iterator[str]:
        if not isinstance(self.child, type):
            yield "Table takes a child DocType class"
        yield from super().problems()


def to_ms(instant: datetime) -> int:
    """Return milliseconds since the epoch; a time without an offset is UTC."""
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    whole = instant - _EPOCH
    return (whole.days * 86_400 + whole.seconds) * 1000 + whole.microseconds // 1000


def iso(ms: int) -> str:
    """Return ISO 8601 UTC with milliseconds and `Z` (interface §1, Times)."""
    seconds, rest = divmod(ms, 1000)
    instant = datetime.fromtimestamp(seconds, UTC)
    return f"{instant:%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
