"""Records the jobs of `fw.enqueue`: functions of apps, run later as the same user (D-210)."""

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
    """Raised for a job whose function no longer exists: the app has changed."""


class JobRecorder:
    """Implements `fw.enqueue` for one site."""

    def __init__(self, recorded: Callable[[], None]) -> None:
        """`recorded` is called on trio's thread after each commit that contains a job."""
        self._recorded = recorded

    def __call__(self, fw: Fw, function: object, arguments: dict[str, object]) -> int:
        """Record a job in the writer's transaction; return its number.

        Raises: ValidationError if another process cannot import the function by its name, if the
            function does not take the arguments, or if they are not JSON.
        """
        path = _path_of(function)
        _validate_call(function, arguments)
        number = jobs.enqueue_numbered(
            fw.tx, queue=QUEUE, function=path, arguments=_json(arguments), user=fw.user
        )
        fw.tx.after_commit(self._recorded)
        return number


def function_of(job: LeasedJob) -> AppFunction:
    """Return the function that a job names.

    This may import a module: do not call it in a transaction. Raises: UnknownFunctionError.
    """
    module, _, name = job.function.rpartition(".")
    try:
        found: object = getattr(importlib.import_module(module), name, None)
    except Exception as error:  # the app's top level may raise anything
        raise UnknownFunctionError(
            f"{module} cannot be imported: {type(error).__name__}"
        ) from error
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
        raise ValidationError("A job must be a plain function of an app's module.")
    module, name = str(function.__module__), str(function.__name__)  # type: ignore[attr-defined]
    home = sys.modules.get(module)
    if module == "__main__" or getattr(home, name, None) is not function:
        raise ValidationError(
            f"Another process cannot import {module}.{name}: a job must be a function at the top "
            "level of an app's module, under its own name."
        )
    return f"{module}.{name}"


def _validate_call(function: Any, arguments: dict[str, Any]) -> None:
    try:
        inspect.signature(function).bind(None, **arguments)
    except TypeError as error:
        raise ValidationError(
            f"{function.__name__} cannot be called with these arguments: {error}."
        ) from None


def _json(arguments: dict[str, Any]) -> str:
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        text.encode()
        return text
    except (TypeError, ValueError, RecursionError):
        raise ValidationError("The arguments of a job must be JSON.") from None
