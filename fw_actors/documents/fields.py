"""The field types of DocTypes and their columns.

Values in Python are the same as in JSON: text, whole numbers, floats, 0 or 1 for a Check,
`YYYY-MM-DD` for a Date, ISO 8601 UTC with milliseconds for a Datetime, lists of rows for a Table.

Tables are only widened, so a column keeps the type of its field's first declaration. If a field's
type changes, SQLite would store mixed types in the column, and PostgreSQL would refuse or round
every write. `type_problems` reports such a field.

The module has more than 500 lines because each type is a short class beside the others.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from datetime import UTC, date, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

from fw_actors.errors import BadRequestError, ValidationError
from fw_actors.runtime.clock import MS_PER_SECOND, SECONDS_PER_DAY, US_PER_MS

if TYPE_CHECKING:
    from fw_actors.documents.doctype import Meta

MAX_INTEGER: Final = 2**53
SURROGATES: Final = re.compile(r"[\ud800-\udfff]")
CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
CONTROLS_AND_BREAKS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


_FLAGS: Final = ("required", "unique", "allow_on_submit", "read_only")


class ShapeError(ValueError):
    """Raised when a value has the wrong JSON type for its field: 400 over HTTP, 422 from code."""


class Field:
    """One field of a DocType; the class attribute's name is the field's name."""

    type: ClassVar[str]
    column: ClassVar[TypeEngine[Any]] = sa.Text()
    empty: ClassVar[object] = None
    secret: ClassVar[bool] = False
    plain: ClassVar[bool] = True  # its column appears unchanged in documents: no secret, no table
    stored: ClassVar[bool] = True  # False: it is write-only and has no column
    takes_options: ClassVar[bool] = False
    expected: ClassVar[str] = "text"

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
        description: str = "",
        **unknown: object,
    ) -> None:
        self.name = self.second_name = ""
        self.unknown = tuple(sorted(unknown))
        self.required, self.unique, self.default = required, unique, default
        self.options, self.length, self.permlevel = options, length, permlevel
        self.allow_on_submit, self.read_only = allow_on_submit, read_only
        self.description = description

    if TYPE_CHECKING:  # an instance holds the value; the class holds the field

        def __get__(self, instance: object, owner: object = None) -> Any: ...

        def __set__(self, instance: object, value: Any) -> None: ...

    def __set_name__(self, owner: object, name: str) -> None:
        if self.name not in ("", name):
            self.second_name = name
            return
        self.name = name

    def problems(self) -> Iterator[str]:
        """Yield the problems of the declaration itself."""
        yield from (f"no such option {option}" for option in self.unknown)
        yield from self._misuses()
        length: object = self.length  # an app may not use a type checker
        if length is not None and not (type(length) is int and length >= 1):
            yield "length must be a whole number, 1 or more"
            return
        if self.default is not None:
            try:
                self.accept(self.default)
            except (ShapeError, ValidationError) as error:
                yield f"default: {error}"

    def _misuses(self) -> Iterator[str]:
        """Yield the options whose values, or whose presence, would have an unexpected effect."""
        if self.second_name:
            yield f"it is declared as {self.second_name} too; each field needs its own object"
        description: object = self.description
        if not isinstance(description, str):
            yield "description must be text"
        for option in _FLAGS:
            if getattr(self, option) not in (True, False):
                yield f"{option} must be True or False"
        if type(self.permlevel) is not int or self.permlevel not in range(10):
            yield "permlevel must be between 0 and 9"
        if self.options is not None and not self.takes_options:
            yield f"options is not an option of {self.type}"
        if self.length is not None and not isinstance(self, _Textual):
            yield f"length is not an option of {self.type}"

    def accept(self, value: Any) -> Any:
        """Return `value` in the form that the field stores in a document; None stays None.

        Raises: ShapeError for a wrong type, ValidationError for a value out of range.
        """
        return None if value is None else self._accept(value)

    def hold(self, value: Any) -> Any:
        """Return `value` as `accept` does, but None for the "" of a unique field, so that any
        number of documents may leave the field empty."""
        taken = self.accept(value)
        return None if self.unique and taken == "" else taken

    def _accept(self, value: Any) -> Any:
        raise ShapeError(f"{self.name} must be {self.expected}.")

    def is_same(self, one: Any, other: Any) -> bool:
        """Whether two values of the field are equal to a reader of JSON."""
        return bool(one == other)

    @property
    def blank_is_made(self) -> bool:
        """Whether `blank` returns a mutable value, of which each document needs its own."""
        return isinstance(self.default, (list, dict))

    def blank(self) -> Any:
        """Return the value in a new document: a copy of the default, or None."""
        if self.default is None:
            return self.empty
        made = isinstance(self.default, (list, dict))
        return deepcopy(self.default) if made else self.accept(self.default)

    def is_missing(self, value: object) -> bool:
        """Whether a required field is refused with this value."""
        return value is None or value == ""

    def to_store(self, value: Any) -> Any:
        """Convert a document's value to the column's."""
        return value

    def from_store(self, value: Any) -> Any:
        """Convert a column's value to the document's."""
        return value

    def shape(self) -> ShapeError:
        return ShapeError(f"{self.name} must be {self.expected}.")


DATA_LENGTH: Final = 140
CONFIGURED: Final[Mapping[str, object]] = MappingProxyType({"configured": True})
"""What is shown for a stored Vault value, to compare with; `shown_vault` returns it."""


def shown_vault(is_stored: object) -> dict[str, object] | None:
    """Return the value of a Vault field as shown: for each document its own, because an app may
    change it."""
    return dict(CONFIGURED) if is_stored else None


class _Textual(Field):
    controls: ClassVar[re.Pattern[str]] = CONTROLS_AND_BREAKS

    def _accept(self, value: Any) -> str:
        if not isinstance(value, str):
            raise self.shape()
        # JSON's encoder refuses a text of a subclass. A field that is not stored may hold one: a
        # password that is hashed already.
        text = str.__str__(value) if type(value) is not str and self.stored else value
        plain = text.isascii() and text.isprintable()  # the fast path for most texts
        if not plain and self.controls.search(text):
            raise ShapeError(f"{self.name} must not contain a control character.")
        if self.length is not None and len(text) > self.length:
            raise ValidationError(
                f"{self.name} must have at most {self.length:,} characters.", field=self.name
            )
        return text


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
    """A password for another system: stored in plain text, blank in every read through the API."""

    type = "Password"
    secret = True
    plain = False
    controls = CONTROLS


class Vault(_Textual):
    """A secret that is encrypted at rest and cannot be read through the API."""

    type = "Vault"
    secret = True
    plain = False
    controls = CONTROLS

    def from_store(self, value: Any) -> dict[str, object] | None:
        return shown_vault(value)


class Int(Field):
    """A whole number between -2^53 and 2^53."""

    type = "Int"
    column = sa.BigInteger()
    expected = "a whole number"

    def __init__(self, *, minimum: int | None = None, maximum: int | None = None, **options: Any):
        super().__init__(**options)
        self.minimum, self.maximum = minimum, maximum

    def problems(self) -> Iterator[str]:
        limits: dict[str, object] = {"minimum": self.minimum, "maximum": self.maximum}
        wrong = [
            name
            for name, limit in limits.items()
            if limit is not None and not (type(limit) is int and abs(limit) <= MAX_INTEGER)
        ]
        if wrong:
            yield from (f"{name} must be a whole number between -2^53 and 2^53" for name in wrong)
        elif self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            yield "minimum must be at most maximum"
        else:
            yield from super().problems()

    def _accept(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.shape()
        number = value if type(value) is int else int(value)  # as in `_Textual`
        if abs(number) > MAX_INTEGER:
            raise ShapeError(f"{self.name} must be between -2^53 and 2^53.")
        low, high = self.minimum, self.maximum
        if (low is not None and number < low) or (high is not None and number > high):
            raise ValidationError(f"{self.name} must be {self._range()}.", field=self.name)
        return number

    def _range(self) -> str:
        if self.minimum is None or self.maximum is None:
            return f"{self.maximum} or less" if self.minimum is None else f"{self.minimum} or more"
        return f"between {self.minimum} and {self.maximum}"


class Float(Field):
    """A floating-point number; NaN and infinities are refused."""

    type = "Float"
    column = sa.Double()
    expected = "a number"

    def _accept(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.shape()
        if (isinstance(value, int) and abs(value) > MAX_INTEGER) or not math.isfinite(value):
            raise ShapeError(
                f"{self.name} must be finite; a whole number must be between -2^53 and 2^53."
            )
        return value + 0.0  # -0.0 becomes 0.0, because SQLite does not store the sign of zero


class Check(Field):
    """0 or 1; true and false are accepted too. Never null."""

    type = "Check"
    column = sa.BigInteger()
    empty = 0
    expected = "0 or 1"

    def accept(self, value: Any) -> int:
        if value is None:
            return 0
        if not isinstance(value, int):
            raise self.shape()
        if value not in (0, 1):
            raise ValidationError(f"{self.name} must be 0 or 1.", field=self.name)
        return int(value)

    def from_store(self, value: Any) -> int:
        return value or 0


class Select(_Textual):
    """One of `options`; empty is allowed unless required."""

    type = "Select"
    takes_options = True

    def problems(self) -> Iterator[str]:
        options = self.options
        if (
            isinstance(options, str)
            or not isinstance(options, Sequence)
            or not options
            or not all(isinstance(option, str) and option for option in options)
        ):
            yield "options must be a list of text values"
            return
        yield from super().problems()
        for option in options:
            try:
                super()._accept(option)
            except (ShapeError, ValidationError) as error:
                yield f"options: {option[:60]!r} can never be chosen: {error}"

    def _accept(self, value: Any) -> str:
        text = super()._accept(value)
        if text and text not in self.options:
            raise ValidationError(
                f"{self.name} must be one of {', '.join(self.options)}.", field=self.name
            )
        return text


class Link(_Textual):
    """The name of a document of the DocType that `options` names."""

    type = "Link"
    takes_options = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"length": DATA_LENGTH, **options})

    def problems(self) -> Iterator[str]:
        if not isinstance(self.options, str) or not self.options:
            yield "options must name the DocType that the link leads to"
        yield from super().problems()


class Table(Field):
    """Child rows of another DocType, in order; saved and read with their parent."""

    type = "Table"
    takes_options = True
    plain = False
    expected = "a list of rows"

    def __init__(self, child: Any = None, /, **options: Any) -> None:
        super().__init__(**options)
        self.child: Any = child if child is not None else self.options

    @property
    def blank_is_made(self) -> bool:
        return True

    def blank(self) -> list[Any]:
        return []

    def is_missing(self, value: object) -> bool:
        return not value

    def problems(self) -> Iterator[str]:
        if not isinstance(self.child, type):
            yield "Table must have a child DocType class"
        yield from super().problems()


MAX_LEVELS: Final = 32  # as in a request (H-12), whose body is one level


class JSON(Field):
    """Any JSON value, stored as its text."""

    type = "JSON"
    expected = "a JSON value"

    def _accept(self, value: Any) -> Any:
        """Return a copy in JSON's own types, so that the document shows the stored value."""
        try:
            copy = json.loads(json.dumps(value, allow_nan=False, ensure_ascii=False))
        except (TypeError, ValueError, RecursionError):
            raise self.shape() from None
        for leaf, depth in _leaves(copy):
            if depth > MAX_LEVELS:
                raise ShapeError(f"{self.name} must not be nested deeper than {MAX_LEVELS} levels.")
            if isinstance(leaf, str) and CONTROLS.search(leaf):
                raise ShapeError(f"{self.name} must not contain a control character.")
            if isinstance(leaf, int) and abs(leaf) > MAX_INTEGER:
                raise ShapeError(f"{self.name} must not contain a number beyond 2^53.")
        return copy

    def is_same(self, one: Any, other: Any) -> bool:
        """Compare as JSON does: true is not 1, and false is not 0."""
        if isinstance(one, bool) or isinstance(other, bool):
            return one is other
        if isinstance(one, dict) and isinstance(other, dict):
            return one.keys() == other.keys() and all(self.is_same(one[k], other[k]) for k in one)
        if isinstance(one, list) and isinstance(other, list):
            return len(one) == len(other) and all(map(self.is_same, one, other))
        return bool(one == other)

    def to_store(self, value: Any) -> str | None:
        return None if value is None else msgspec.json.encode(value).decode()

    def from_store(self, value: Any) -> Any:
        """Return the value; a text that is not JSON, of an earlier type of the field or of SQL, is
        the value itself."""
        if value is None:
            return None
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return value


def _leaves(value: Any) -> Iterator[tuple[Any, int]]:
    """Yield the keys and leaves of a JSON value, empty containers included, each with its nesting
    depth.
    """
    waiting = [(value, 0)]
    while waiting:
        each, depth = waiting.pop()
        if isinstance(each, dict | list):
            depth += 1
            inner = (*each, *each.values()) if isinstance(each, dict) else each
            waiting += [(one, depth) for one in inner]
        if not isinstance(each, dict | list) or not each:
            yield each, depth


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def to_ms(instant: datetime) -> int:
    """Return milliseconds since the epoch; a time without an offset is UTC."""
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    whole = instant - _EPOCH
    return (
        whole.days * SECONDS_PER_DAY + whole.seconds
    ) * MS_PER_SECOND + whole.microseconds // US_PER_MS


@lru_cache(maxsize=4096)  # as below
def ms_of(text: str) -> int:
    """Return milliseconds since the epoch of ISO 8601. Raises: ValueError, OverflowError."""
    return to_ms(datetime.fromisoformat(text))


_A_TIME: Final = "a time in ISO 8601, such as 2026-01-31T08:00:00Z"


def requested_time(text: object, field: str) -> int:
    """Return the time that a request gives in `field`, in ms. Raises: BadRequestError."""
    try:
        if not isinstance(text, str):
            raise ValueError
        moment = datetime.fromisoformat(text)
        # OverflowError for one that `iso` cannot write: not within the years 1 to 9999 in UTC.
        return to_ms(moment.astimezone(UTC) if moment.tzinfo else moment)
    except (ValueError, OverflowError):
        raise BadRequestError(f"{field} must be {_A_TIME}.", field=field) from None


@lru_cache(maxsize=4096)  # a document's times recur in it, its rows and its events
def iso(ms: int) -> str:
    """Return ISO 8601 UTC with milliseconds and `Z` (H-35)."""
    seconds, rest = divmod(ms, MS_PER_SECOND)
    instant = datetime.fromtimestamp(seconds, UTC).replace(
        tzinfo=None, microsecond=rest * US_PER_MS
    )
    return instant.isoformat(timespec="milliseconds") + "Z"


def iso_or_none(ms: Any) -> str | None:
    """Return a stored time as `iso` does; None without one, and for a value that is not a time,
    which only SQL can have written."""
    try:
        return None if ms is None else iso(ms)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}\Z")


class Date(Field):
    """A day, `YYYY-MM-DD`."""

    type = "Date"
    expected = "a date as YYYY-MM-DD"

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
                f"{self.name} must be a date as YYYY-MM-DD.", field=self.name
            ) from None


_MAX_TIME_CHARACTERS: Final = 64  # Python reads any number of decimals, and `ms_of` keeps the texts


class Datetime(Field):
    """An instant: ISO 8601 with an offset (none means UTC), kept to the millisecond."""

    type = "Datetime"
    column = sa.BigInteger()
    expected = _A_TIME

    def _accept(self, value: Any) -> str:
        if not isinstance(value, str | datetime):
            raise self.shape()
        try:
            if isinstance(value, datetime):
                return iso(to_ms(value))
            if len(value) > _MAX_TIME_CHARACTERS:
                raise ValueError
            return iso(ms_of(value))
        except (ValueError, OverflowError):
            raise ValidationError(f"{self.name} must be {_A_TIME}.", field=self.name) from None

    def to_store(self, value: Any) -> int | None:
        return None if value is None else ms_of(value)

    def from_store(self, value: Any) -> str | None:
        return iso_or_none(value)


_TEXT, _WHOLE, _FLOATING = "text", "whole numbers", "floating-point numbers"
# By the first word of a type's name in either database; an operator may have created a column.
_HOLDS: Final = MappingProxyType(
    {
        **dict.fromkeys(("text", "varchar", "character"), _TEXT),
        **dict.fromkeys(("bigint", "integer", "int", "smallint"), _WHOLE),
        **dict.fromkeys(("double", "real", "float"), _FLOATING),
    }
)
_NEEDS: Final = MappingProxyType({sa.Text: _TEXT, sa.BigInteger: _WHOLE, sa.Double: _FLOATING})


def type_problems(meta: Meta, present: Mapping[str, str]) -> Iterator[str]:
    """Yield the fields whose column was created for another type; `present`: see `Tx.columns`."""
    for field in meta.columns:
        kind = present.get(field.name, "").partition(" ")[0].partition("(")[0]
        holds, needs = _HOLDS.get(kind), _NEEDS[type(field.column)]
        if holds is not None and holds != needs:
            yield (
                f"class {meta.cls.__name__}: {field.name}: {meta.table}.{field.name} was made for "
                f"{holds}, and {field.type} needs {needs}: give the field another name, or "
                "change the column in the database first"
            )
