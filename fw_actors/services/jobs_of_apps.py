"""`fw.enqueue`: a function of an app, recorded to be run later as the same user (interface §4)."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any, Final

from fw_actors.documents.handle import Fw
from fw_actors.errors import ValidationError
from fw_actors.store import LeasedJob, jobs

QUEUE: Final = "app"

AppFunction = Callable[..., object]


class UnknownFunctionError(Exception):
    """Raised for a job whose function is not there any more: the app has changed since."""


class JobRecorder:
    """What `fw.enqueue` is for one site."""

    def __init__(self, recorded: Callable[[], None]) -> None:
        """`recorded` is called after each commit that holds a job, on trio's thread."""
        self._recorded = recorded

    def __call__(self, fw: Fw, function: object, arguments: dict[str, object]) -> int:
        """Record a job in the writer's transaction; return its number.

        Raises: ValidationError for a function that can't be found again by its name, or
            arguments that are no JSON.
        """
        module, name = getattr(function, "__module__", ""), getattr(function, "__name__", "")
        if not module or getattr(importlib.import_module(module), name, None) is not function:
            raise ValidationError("A job is a function at the top level of an app's module.")
        number = jobs.enqueue_numbered(
            fw.tx,
            queue=QUEUE,
            function=f"{module}.{name}",
            arguments=_json(arguments),
            user=fw.user,
        )
        fw.tx.after_commit(self._recorded)
        return number


def function_of(job: LeasedJob) -> AppFunction:
    """Return the function that a job names.

    May import its module, so it is not called within a transaction. Raises: UnknownFunctionError.
    """
    module, _, name = job.function.rpartition(".")
    try:
        found: object = getattr(importlib.import_module(module), name, None)
    except Exception as error:  # whatever an app's own top level raises
        raise UnknownFunctionError(f"{module} can't be imported: {type(error).__name__}") from error
    if not callable(found):
        raise UnknownFunctionError(f"{module} has no function {name}")
    return found


def arguments_of(job: LeasedJob) -> dict[str, Any]:
    """Return the keyword arguments of a job, as they were recorded."""
    arguments: dict[str, Any] = json.loads(job.arguments)
    return arguments


def _json(arguments: dict[str, Any]) -> str:
    try:
        return json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise ValidationError("The arguments of a job are JSON.") from None
