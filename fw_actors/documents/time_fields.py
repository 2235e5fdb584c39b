"""The field types Date and Datetime: days and instants, as the texts that JSON shows."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Any, Final

import sqlalchemy as sa

from fw_actors.documents.field import Field
from fw_actors.documents.times import iso, ms_of, to_ms
from fw_actors.errors import ValidationError

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}\Z")


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
        if not isinstance(value, str | datetime):
            raise self.shape()
        try:
            return iso(to_ms(value) if isinstance(value, datetime) else ms_of(value))
        except (ValueError, OverflowError):
            raise ValidationError(f"{self.name} is a time as ISO 8601.", field=self.name) from None

    def to_store(self, value: Any) -> int | None:
        return None if value is None else ms_of(value)

    def from_store(self, value: Any) -> str | None:
        return None if value is None else iso(value)
