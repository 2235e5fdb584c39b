"""Data migrations of an app: functions that `fw migrate` runs once each, in their order (D-173)."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from types import ModuleType
from typing import Any, Final

from fw_actors.documents.hooks import call_plainly

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class DataMigration:
    """A numbered function of an app; still callable as itself.

    Attributes:
        number: its place among those of the app, from 1 without gaps.
        in_batches: whether it takes a cursor as its second parameter. Such a function does a part
            of the work, in a transaction of its own, and returns the cursor of the next part, or
            None when it is done. The first cursor is None.
    """

    def __init__(self, number: int, function: Callable[..., Any]) -> None:
        self.number = number
        self.function = function
        self.name = getattr(function, "__name__", "")
        self.module = function.__module__
        self._parameters = tuple(inspect.signature(function).parameters.values())
        self.in_batches = len(self._parameters) == 2
        functools.update_wrapper(self, function)

    def __call__(self, /, *args: Any) -> Any:
        """Call it; see `call_plainly`."""
        return call_plainly(f"{self.module}.{self.name}", self.function, *args)

    @property
    def is_plain(self) -> bool:
        """Whether it takes fw, or fw and a cursor, and has done its work when it returns."""
        return (
            len(self._parameters) in (1, 2)
            and all(each.kind in _POSITIONAL for each in self._parameters)
            and not inspect.iscoroutinefunction(self.function)
            and not inspect.isgeneratorfunction(self.function)
        )


def migration(number: int) -> Callable[[Callable[..., Any]], DataMigration]:
    """Make a function of an app its data migration with this number, from 1 without gaps.

    `fw migrate` runs it once for a site, as Administrator, in a transaction: `function(fw)`. With
    a second parameter it runs in batches, see `DataMigration`.
    """
    return functools.partial(DataMigration, number)


def migrations_in(module: ModuleType) -> tuple[DataMigration, ...]:
    """Return the data migrations of an app, sorted by number."""
    found = {
        id(value): value
        for value in vars(module).values()
        if isinstance(value, DataMigration) and f"{value.module}.".startswith(f"{module.__name__}.")
    }
    # Not a number: it is reported, and must not end the sorting.
    return tuple(sorted(found.values(), key=lambda each: (str(type(each.number)), each.number)))


def migration_problems(apps: Mapping[str, tuple[DataMigration, ...]]) -> Iterator[str]:
    """Yield the problems of the data migrations of each app."""
    for app, migrations in apps.items():
        numbered = True
        for each in migrations:
            where = f"{_file_of(each)}: migration {each.name}"
            if type(each.number) is not int or each.number < 1:
                numbered = False
                yield f"{where}: its number must be a whole number from 1: @migration(1)"
            if not each.is_plain:
                yield f"{where}: it must be a plain function of fw, or of fw and cursor"
        if not numbered:
            continue
        for one, other in pairwise(migrations):
            if one.number == other.number:
                yield f"{app}: migrations {one.name} and {other.name} have the number {one.number}"
        numbers = {each.number for each in migrations}
        lacking = sorted(set(range(1, len(numbers) + 1)) - numbers)
        if lacking:
            yield (
                f"{app}: there is no migration {lacking[0]}: numbers have no gaps, and one that "
                "was released is kept"
            )


def _file_of(found: DataMigration) -> str:
    return str(getattr(sys.modules.get(found.module), "__file__", None) or found.module)
