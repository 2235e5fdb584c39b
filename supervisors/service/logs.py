"""The log of a process: one line an event on stderr, as text or JSON, without secrets.

structlog and the standard library's loggers (hypercorn, quart, an app's own) come out alike.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

import structlog

from fw_actors.rules.scrubbing import Scrubber
from fw_actors.runtime import Clock
from supervisors.service.log_lines import json_line, text_line
from supervisors.service.log_secrets import LogScrubber

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger, Processor, WrappedLogger

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

# They tell at level info what our own events tell better.
_CHATTY: Final = ("hypercorn.error", "hypercorn.access", "quart.app", "quart.serving")


def configure(
    *,
    style: Literal["text", "json"],
    level: str,
    clock: Clock,
    stream: TextIO,
    scrubber: Scrubber,
    links: bool = False,
) -> FilteringBoundLogger:
    """Set up the logging of this process, and return the logger to hand to what runs in it.

    `level` is a key of `LEVELS`. `scrubber` removes the site's secrets from every entry. `links`
    lets the field `link` pass in the event `mail.sent`: for the transport log, where the log is
    the mail (interface §2). Called once a process, at its edge; a second call replaces the first.
    Writing never fails the caller.
    """
    threshold = LEVELS[level]
    steps: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        _stamp(clock),
        structlog.processors.format_exc_info,
        LogScrubber(scrubber, links=links),
    ]
    render = json_line if style == "json" else text_line
    _route_standard_library(threshold, steps, render, stream)
    structlog.configure(
        processors=[*steps, render],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=lambda *_: _Lines(stream),
        cache_logger_on_first_use=False,
    )
    logger: FilteringBoundLogger = structlog.get_logger()
    return logger.bind()


def log_unhandled(log: FilteringBoundLogger) -> None:
    """Have exceptions that nobody catches, in threads and finalisers, told as entries of the log.

    Python would print them on stderr, where the log goes as well, with whatever secret they hold.
    """

    def in_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_type is not SystemExit:
            name = None if args.thread is None else args.thread.name
            log.error("thread.failed", thread=name, exc_info=args.exc_value)

    def in_finaliser(args: sys.UnraisableHookArgs) -> None:
        log.error("finaliser.failed", exc_info=args.exc_value)

    threading.excepthook = in_thread
    sys.unraisablehook = in_finaliser


def _route_standard_library(
    threshold: int, steps: list[Processor], render: Processor, stream: TextIO
) -> None:
    handler = _Handler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_name_logger, *steps],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(threshold)
    for name in _CHATTY:
        quiet = threshold if threshold <= logging.DEBUG else max(threshold, logging.WARNING)
        logging.getLogger(name).setLevel(quiet)
    logging.captureWarnings(True)


def _stamp(clock: Clock) -> Processor:
    def stamp(
        _logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        event["timestamp"] = clock.now()
        return event

    return stamp


def _name_logger(
    _logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    record: logging.LogRecord = event["_record"]
    event["logger"] = record.name
    return event


class _Lines:
    """Where lines end: a stream that may have gone away (a closed pipe, a full disk)."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            pass  # nobody is left to be told, and the service is worth more than its log

    debug = info = warning = warn = error = err = exception = critical = fatal = log = msg


class _Handler(logging.Handler):
    """The same for the standard library's records."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._lines = _Lines(stream)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as error:  # a broken % template of some library must not end a request
            line = f"a log record of {record.name} can't be shown: {type(error).__name__}"
        self._lines.msg(line)
