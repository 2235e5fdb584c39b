"""What verbs do with the fields of a DocType, told apart once: they run for every document."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from fw_actors.documents.field import Field
from fw_actors.documents.fields import Link, Select, Table, Vault

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """The fields of one DocType by what is to be done with them, each group in order."""

    accepted: tuple[tuple[str, Convert], ...]
    """Those that take any value their type takes, each with what brings it into form."""
    secrets: tuple[Field, ...]
    """Password and Vault: null leaves what is stored."""
    checked: tuple[Field, ...]
    """Those with a rule beyond their type: required, Link, Select, Table."""
    same: tuple[str, ...]
    """Columns that hold what documents hold."""
    encoded: tuple[tuple[str, Convert], ...]
    """Columns that hold something else, each with what makes it."""
    sealed: tuple[Vault, ...]
    decoded: tuple[tuple[str, Convert], ...]
    """Fields that hold something else than their columns, each with what reads it."""
    limited: tuple[Field, ...]
    """Those that not everybody who writes the document may write: read_only, or a permlevel."""
    levelled: tuple[Field, ...]
    """Those above permlevel 0."""
    pick: Callable[[dict[str, Any]], tuple[Any, ...]]
    """Gives what JSON shows of a document's attributes, in order."""


def plan_of(fields: Iterable[Field], standard: Iterable[str], shown: Iterable[str]) -> Plan:
    """Return the plan for the fields of a DocType.

    `standard`: what every document has, but for the times; `shown`: all that JSON shows.
    """
    fields = tuple(fields)
    columns = [f for f in fields if f.stored and not isinstance(f, Table)]
    open_columns = [f for f in columns if not isinstance(f, Vault)]
    return Plan(
        accepted=tuple((f.name, f.hold if f.unique else f.accept) for f in fields if f.plain),
        secrets=tuple(f for f in fields if not f.plain and not isinstance(f, Table)),
        checked=tuple(f for f in fields if f.required or isinstance(f, Link | Select | Table)),
        same=(*standard, *(f.name for f in open_columns if type(f).to_store is Field.to_store)),
        encoded=tuple(
            (f.name, f.to_store) for f in open_columns if type(f).to_store is not Field.to_store
        ),
        sealed=tuple(f for f in columns if isinstance(f, Vault)),
        decoded=tuple(
            (f.name, f.from_store) for f in columns if type(f).from_store is not Field.from_store
        ),
        limited=tuple(f for f in fields if f.read_only or f.permlevel),
        levelled=tuple(f for f in fields if f.permlevel),
        pick=itemgetter(*shown),
    )
