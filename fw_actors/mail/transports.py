"""The mail transport interface, and the transports `log` and `method`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Final, Protocol

import trio

from fw_actors.errors import (
    ConfigurationError,
    OverloadedError,
    UnawaitedCoroutineError,
    refuse_coroutine,
)
from fw_actors.mail.message import MailMessage
from fw_actors.rules.redaction import raised_at
from fw_actors.runtime import Log


class MailFault(Exception):
    """A message that was not sent. The text is the `error` of an Email Delivery: it begins with the
    kind and a colon, and holds no part of the message. Raise one of its children.
    """

    final: ClassVar[bool] = False


class MailNotSent(MailFault):
    """Raised when a later try may succeed."""


class MailRefused(MailFault):
    """Raised when no later try can: the recipient is refused for good, or we must not send."""

    final = True


class Transport(Protocol):
    """A way that mail leaves the site."""

    async def send(self, message: MailMessage) -> None:
        """Send one message; it is out of our hands when this returns.

        Cancelled, the message may or may not have gone out; nothing is left running that could
        send it much later.

        Raises: MailNotSent, MailRefused.
        """


EVENT: Final = "mail.sent"


class LogTransport:
    """Writes each message's recipient, template and link; never its text."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def send(self, message: MailMessage) -> None:
        """Log the message instead of sending it; never fails."""
        await trio.lowlevel.checkpoint()
        self.write(message.recipient, message.template, message.link)

    def write(self, recipient: str, template: str, link: str | None) -> None:
        """Write the line of one message."""
        shown = {} if link is None else {"link": link}
        self._log.info(EVENT, recipient=recipient, template=template, **shown)


AT_ONCE: Final = 2

Method = Callable[[Any, dict[str, str | None]], object]


RunWithFw = Callable[[Callable[[Any], None]], Awaitable[None]]
"""Runs a function with the handle `fw` on a thread where it may take its time (O-57)."""


class MethodTransport:
    """Calls the function for each message, at most two at once; an exception is a retry."""

    def __init__(self, path: str, method: Method, run: RunWithFw) -> None:
        """`path` is the dotted path of the function, for error texts."""
        self._path, self._method, self._run = path, method, run
        self._limiter = trio.CapacityLimiter(AT_ONCE)

    async def send(self, message: MailMessage) -> None:
        """Call the function with the message; see `Transport.send`."""
        async with self._limiter:
            await self._run(lambda fw: self._call(fw, message))

    def _call(self, fw: Any, message: MailMessage) -> None:
        try:
            refuse_coroutine(self._path, self._method(fw, message.as_dict()))
        except OverloadedError:
            raise MailNotSent(f"method: {self._path} found the store overloaded.") from None
        except UnawaitedCoroutineError as error:
            raise MailNotSent(f"method: {error}.") from None
        except (Exception, SystemExit) as error:
            # Its text is the app's and may hold the link; where it was raised helps as well.
            raise MailNotSent(f"method: {self._path} raised {raised_at(error)}.") from None


def load_method(path: str) -> Method:
    """Return the function under a dotted path. Raises: ConfigurationError."""
    module, _, name = path.rpartition(".")
    try:
        method = getattr(importlib.import_module(module), name, None)
    except (Exception, SystemExit) as error:  # anything that an app's top level raises
        problem = f"FW_MAIL_METHOD: {module} can't be imported: {type(error).__name__}: {error}"
        raise ConfigurationError([problem]) from error
    if not callable(method):
        raise ConfigurationError([f"FW_MAIL_METHOD: {module} has no function {name}."])
    if inspect.iscoroutinefunction(method):  # called like this it would send nothing, and say so
        raise ConfigurationError([f"FW_MAIL_METHOD: {path} must be a plain function, not async."])
    found: Method = method
    return found
