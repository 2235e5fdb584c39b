"""Transport `method`: an app's own function `def send(fw, message)` (interface §8)."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any, Final, Protocol

import trio

from fw_actors.errors import ConfigurationError, OverloadedError
from fw_actors.mail.message import MailMessage
from fw_actors.mail.transport import MailNotSent
from fw_actors.rules.plain_call import is_left_undone, left_undone
from fw_actors.rules.raised_at import raised_at

AT_ONCE: Final = 2

Method = Callable[[Any, dict[str, str | None]], object]


class Run(Protocol):
    """Runs a function with the handle of interface §4, somewhere it may take its time."""

    async def __call__(self, fn: Callable[[Any], None]) -> None: ...


class MethodTransport:
    """Calls the function for each message, at most two at once; an exception is a retry."""

    def __init__(self, path: str, method: Method, run: Run) -> None:
        """`path` is the function's dotted path, for what is told of a failure."""
        self._path, self._method, self._run = path, method, run
        self._places = trio.CapacityLimiter(AT_ONCE)

    async def send(self, message: MailMessage) -> None:
        """See `Transport.send`."""
        async with self._places:
            await self._run(lambda fw: self._call(fw, message))

    def _call(self, fw: Any, message: MailMessage) -> None:
        try:
            value = self._method(fw, message.as_dict())
        except OverloadedError:
            raise MailNotSent(f"method: {self._path} found the store overloaded.") from None
        except (Exception, SystemExit) as error:
            # Its text is the app's and may hold the link; where it was raised helps as well.
            raise MailNotSent(f"method: {self._path} raised {raised_at(error)}.") from None
        if is_left_undone(value):
            raise MailNotSent(f"method: {left_undone(self._path)}.")


def load_method(path: str) -> Method:
    """Return the function under a dotted path. Raises: ConfigurationError."""
    module, _, name = path.rpartition(".")
    try:
        method = getattr(importlib.import_module(module), name, None)
    except (Exception, SystemExit) as error:  # whatever an app's own top level raises
        problem = f"FW_MAIL_METHOD: {module} can't be imported: {type(error).__name__}: {error}"
        raise ConfigurationError([problem]) from error
    if not callable(method):
        raise ConfigurationError([f"FW_MAIL_METHOD: {module} has no function {name}."])
    if inspect.iscoroutinefunction(method):  # called like this it would send nothing, and say so
        raise ConfigurationError([f"FW_MAIL_METHOD: {path} must be a plain function, not async."])
    found: Method = method
    return found
