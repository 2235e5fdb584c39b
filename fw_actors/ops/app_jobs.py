"""`fw.enqueue`: a function of an app, recorded to be run later as the same user (D-210)."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

from fw_actors.documents.functions import Whitelisted
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

        Raises: ValidationError for a function that another process can't find again by its name,
            or that does not take the arguments; and for arguments that are no JSON.
        """
        path = _path_of(function)
        _judge_call(function, arguments)
        number = jobs.enqueue_numbered(
            fw.tx,
            queue=QUEUE,
            function=path,
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


def _path_of(function: object) -> str:
    """Return the dotted path by which another process imports a function."""
    plain = isinstance(function, FunctionType | Whitelisted)
    if not plain or inspect.iscoroutinefunction(inspect.unwrap(function)):  # type: ignore[arg-type]
        raise ValidationError("A job is a plain function of an app's module.")
    module, name = str(function.__module__), str(function.__name__)  # type: ignore[attr-defined]
    home = sys.modules.get(module)
    if module == "__main__" or getattr(home, name, None) is not function:
        raise ValidationError(
            f"Another process can't import {module}.{name}: a job is a function at the top level "
            "of an app's module, under its own name."
        )
    return f"{module}.{name}"


def _judge_call(function: Any, arguments: dict[str, Any]) -> None:
    try:
        inspect.signature(function).bind(None, **arguments)
    except TypeError as error:
        raise ValidationError(f"{function.__name__} can't be called like this: {error}.") from None


def _json(arguments: dict[str, Any]) -> str:
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        text.encode()
        return text
    except (TypeError, ValueError, RecursionError):
        raise ValidationError("The arguments of a job are JSON.") from None
