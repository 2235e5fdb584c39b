"""What every field of a DocType has in common: its options, and how a value is judged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, Final

import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

from fw_actors.errors import ValidationError

LARGEST_INTEGER: Final = 2**53
SURROGATES: Final = re.compile(r"[\ud800-\udfff]")
CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
CONTROLS_AND_BREAKS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class ShapeError(ValueError):
    """Raised when a value has the wrong JSON type for its field: 400 over HTTP, 422 from code."""


class Field:
    """One field of a DocType; the class attribute's name is the field's name."""

    type: ClassVar[str]
    column: ClassVar[TypeEngine[Any]] = sa.Text()
    empty: ClassVar[object] = None
    secret: ClassVar[bool] = False
    plain: ClassVar[bool] = True  # a column that documents show as it is: no secret, no table
    stored: ClassVar[bool] = True  # False: it is written only, and no column keeps it
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
        **unknown: object,
    ) -> None:
        self.name = ""
        self.unknown = tuple(sorted(unknown))
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
        yield from (f"no such option {option}" for option in self.unknown)
        if self.permlevel not in range(10):
            yield "permlevel is 0 to 9"
        length: object = self.length  # an app's author is bound by no type checker
        if length is not None and not (isinstance(length, int) and length >= 1):
            yield "length is a whole number from 1"
            return
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

    def hold(self, value: Any) -> Any:
        """Return `value` as a document keeps it: as `accept` does, but for the "" of a unique
        field, which is null, so that any number of documents may leave the field empty."""
        taken = self.accept(value)
        return None if self.unique and taken == "" else taken

    def _accept(self, value: Any) -> Any:
        raise ShapeError(f"{self.name} takes {self.wanted}.")

    def is_same(self, one: Any, other: Any) -> bool:
        """Whether two values that the field holds are one to who reads them as JSON."""
        return bool(one == other)

    def blank(self) -> Any:
        """Return what a new document holds: the default, a copy of its own, or nothing."""
        if self.default is None:
            return self.empty
        return deepcopy(self.default) if isinstance(self.default, (list, dict)) else self.default

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
