"""`fw.enqueue`: a function of an app, to be run later as the same user (interface §4)."""

from __future__ import annotations

import importlib
import json
from typing import Any, Final

from fw_actors.documents.handle import Fw
from fw_actors.errors import ValidationError
from fw_actors.store import jobs

QUEUE: Final = "app"


def enqueue_function(fw: Fw, function: object, arguments: dict[str, object]) -> int:
    """Record a job in the writer's transaction; return its number.

    Raises: ValidationError for a function that can't be found again by its name, or arguments
        that are no JSON.
    """
    module, name = getattr(function, "__module__", ""), getattr(function, "__name__", "")
    if not module or getattr(importlib.import_module(module), name, None) is not function:
        raise ValidationError("A job is a function at the top level of an app's module.")
    return jobs.enqueue(
        fw.tx, queue=QUEUE, function=f"{module}.{name}", arguments=_json(arguments), user=fw.user
    )


def _json(arguments: dict[str, Any]) -> str:
    try:
        return json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise ValidationError("The arguments of a job are JSON.") from None
