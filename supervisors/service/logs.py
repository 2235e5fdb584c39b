"""The log of a process: one line per event on stderr, text or JSON, without secrets.

Events of structlog and of the standard library's loggers (hypercorn, quart, an app's own) get the
same format.

Scrubbing is a second line of defence; code must not log secrets in the first place.

Characters that do not print are escaped: a line break would start a second entry, an escape
sequence would control the terminal, invisible or direction-changing characters would disguise the
text, and the effect of private or unassigned characters depends on the terminal (O-100).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import select
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

from fw_actors.rules.safe_output import SCRUBBED, Scrubber, escaped
from fw_actors.runtime import Clock
from fw_actors.runtime.clock import MS_PER_SECOND
from fw_actors.tracing import CURRENT_TRACE

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger, Processor, WrappedLogger

if "rich" in sys.modules:
    import structlog
else:
    # structlog loads rich if it can, for tracebacks that are not written here: 5 MB in each process
    # of a service, and a seventh of its start.
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog

    del sys.modules["rich"]


_SECRET_WORDS: Final = frozenset(
    {"authorization", "cookie", "key", "password", "passwd", "pwd", "secret", "sid", "token"}
)
# The parts of snake_case, kebab-case and camelCase names.
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_MAX_DEPTH: Final = 8
_RESERVED: Final = frozenset({"_record", "level", "timestamp"})  # set here, never from outside


class EntryProcessor:
    """A structlog processor that dates and scrubs entries.

    `links` keeps `link` in `mail.sent` (O-102). `process` is the number of this process in a
    service of several.
    """

    def __init__(
        self, clock: Clock, scrubber: Scrubber, *, links: bool, process: int | None = None
    ) -> None:
        self._clock, self._scrubber, self._links = clock, scrubber, links
        self._process = process

    def __call__(
        self, _logger: object, _method: str, entry: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        entry["timestamp"] = self._clock.now()
        if self._process is not None:
            entry["process"] = self._process
        allowed = self._links and entry.get("event") == "mail.sent"
        # One search over all texts: secrets in entries are rare.
        texts = "\0".join([value for value in entry.values() if type(value) is str])
        has_secret = any(map(texts.__contains__, self._scrubber.forms))
        for name, value in entry.items():
            if name == "link":
                entry[name] = value if allowed else SCRUBBED
            elif name == "exception":  # a traceback with the text of the exception
                entry[name] = self._scrubber.scrub(str(value))
            elif name not in _RESERVED and (
                has_secret or type(value) is not str or is_secret(name)
            ):
                entry[name] = self._scrubbed(name, value, _MAX_DEPTH)
        return entry

    def _scrubbed(self, name: str, value: object, depth: int) -> object:
        if is_secret(name) and value is not None:
            return SCRUBBED
        if value is None or isinstance(value, (int, float)):
            return value
        if not isinstance(value, (Mapping, list, tuple)):
            return self._scrubber.scrub_known(str(value))
        if depth == 0:
            return "[too deep]"
        if isinstance(value, Mapping):
            return {
                self._scrubber.scrub_known(str(inner)): SCRUBBED
                if inner == "link"
                else self._scrubbed(str(inner), item, depth - 1)
                for inner, item in value.items()
            }
        return [self._scrubbed("", item, depth - 1) for item in value]


@lru_cache(maxsize=1024)  # names come from code, the same few in every entry
def is_secret(name: str) -> bool:
    """Return whether a field of this name holds a secret, by the words in it."""
    return any(word.lower() in _SECRET_WORDS for word in _WORD.findall(name))


# Fields with a fixed position in a line of text.
_PLACED: Final = frozenset({"timestamp", "level", "event", "exception"})
_PLAIN: Final = re.compile(r"[^\s\"'=\\]+")
# Created once: json.dumps with options creates an encoder at each call.
_to_ascii_json: Final = json.JSONEncoder(default=str).encode
_to_json: Final = json.JSONEncoder(default=str, ensure_ascii=False).encode


def json_line(_logger: object, _method: str, entry: MutableMapping[str, Any]) -> str:
    """Return the entry as a JSON object; ASCII, so that no character can break or colour a line."""
    first = {"timestamp": _time(entry), "level": entry.get("level"), "event": entry.get("event")}
    return _to_ascii_json({**first, **{name: entry[name] for name in entry if name not in first}})


def text_line(_logger: object, _method: str, entry: MutableMapping[str, Any]) -> str:
    """Return `time level event name=value …`, followed by a traceback with marked lines."""
    parts = [_time(entry), f"{entry.get('level', ''):<7}", str(entry.get("event", ""))]
    parts += [f"{name}={_value(value)}" for name, value in entry.items() if name not in _PLACED]
    trace = str(entry.get("exception", ""))
    below = "".join(f"\n  | {escaped(line)}" for line in trace.split("\n") if trace)
    line = " ".join(parts)
    return (line if line.isascii() and line.isprintable() else escaped(line)) + below


def _time(entry: MutableMapping[str, Any]) -> str:
    moment = datetime.fromtimestamp(entry["timestamp"] / MS_PER_SECOND, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _value(value: object) -> str:
    if isinstance(value, str):
        if _PLAIN.fullmatch(value):
            return value
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value) if type(value) is int else _to_json(value)


LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

# Their entries at level info duplicate the service's events.
_VERBOSE_LOGGERS: Final = ("hypercorn.error", "hypercorn.access", "quart.app", "quart.serving")


def configure(
    *,
    style: Literal["text", "json"],
    level: str,
    clock: Clock,
    stream: TextIO,
    scrubber: Scrubber,
    links: bool = False,
    process: int | None = None,
    traced: bool = False,
) -> FilteringBoundLogger:
    """Set up the logging of this process, and return the logger for its parts.

    `level` is a key of `LEVELS`. `scrubber` removes the site's secrets from every entry. `links`
    keeps the field `link` in the event `mail.sent`, for the transport log, where the log is the
    mail (O-102). `process` is in every entry of one of several processes. `traced` adds the id of
    the trace that an entry belongs to. Called once per process by its entry point; a second call
    replaces the first.
    Logging never fails the caller.
    """
    threshold = LEVELS[level]
    steps: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.format_exc_info,
        *((add_trace_id,) if traced else ()),
        EntryProcessor(clock, scrubber, links=links, process=process),
    ]
    render = json_line if style == "json" else text_line
    lines = _Lines(stream)
    _route_standard_library(threshold, steps, render, lines)
    structlog.configure(
        processors=[*steps, render],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,
    )
    logger: FilteringBoundLogger = structlog.get_logger()
    lines.report = lambda lost: logger.error("log.lines_lost", lines=lost)
    return logger.bind()


def add_trace_id(
    _logger: object, _method: str, entry: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Add the trace in which the entry was written, unless it names one (B-427)."""
    context = CURRENT_TRACE.get()
    if context is not None:
        entry.setdefault("trace_id", context.trace_id)
    return entry


def log_unhandled(log: FilteringBoundLogger) -> None:
    """Log uncaught exceptions in threads and finalisers.

    Python would print them on stderr, which is the log, with any secret they contain.
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
    threshold: int, steps: list[Processor], render: Processor, lines: _Lines
) -> None:
    handler = _Handler(lines)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_name_logger, *steps],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(threshold)
    for name in _VERBOSE_LOGGERS:
        quiet = threshold if threshold <= logging.DEBUG else max(threshold, logging.WARNING)
        logging.getLogger(name).setLevel(quiet)
    logging.captureWarnings(True)


def _name_logger(
    _logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    record: logging.LogRecord = event["_record"]
    event["logger"] = record.name
    return event


PATIENCE_SECONDS: Final = 0.5
WAIT_RATIO: Final = 20
"""A log waits for its reader at most 1 / `WAIT_RATIO` of the time."""


class _Pipe:
    """Writes to a pipe or a socket, of which the reader may be slow or have stopped.

    The service's event loop writes the log. A full pipe would block it, so it waits only for a
    short time; what does not fit then is lost.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._poll = select.poll()
        self._poll.register(number, select.POLLOUT)
        self._waits_again = 0.0
        self._was_cut = False

    def write(self, text: str) -> bool:
        """Write whole lines; return False if not all of it was written."""
        if self._was_cut:
            text = f"\n{text}"
        data = memoryview(text.encode("utf-8", "backslashreplace"))
        left = data
        with contextlib.suppress(BlockingIOError):  # another process has filled the pipe meanwhile
            while left and self._has_room():  # for select.PIPE_BUF bytes
                left = left[os.write(self._number, left[: select.PIPE_BUF]) :]
        if len(left) < len(data):
            self._was_cut = bool(left)
        return not left

    def _has_room(self) -> bool:
        if self._poll.poll(0):
            return True
        began = time.monotonic()
        if began < self._waits_again:
            return False
        found = self._poll.poll(PATIENCE_SECONDS * MS_PER_SECOND)
        end = time.monotonic()
        self._waits_again = end + WAIT_RATIO * (end - began)
        return bool(found)


def _pipe_of(stream: TextIO) -> _Pipe | None:
    """Return the pipe or socket of a stream, if it is one. Other files do not wait for a reader."""
    try:
        number = stream.fileno()
        mode = os.fstat(number).st_mode
    except (OSError, ValueError):  # io.UnsupportedOperation is both
        return None
    if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode):
        return None
    with contextlib.suppress(OSError):  # a socket, no /proc, or the pipe belongs to another user
        # Not `set_blocking`: that would also apply to the other programs that write to the pipe.
        number = os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return _Pipe(number)


class _Lines:
    """Writes lines to a stream that may fail (a closed pipe, a full disk).

    `report` logs the number of lines that were lost, once the reader reads again.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._pipe = stream, _pipe_of(stream)
        self._lock = threading.RLock()  # a finaliser may log while its thread holds it
        self._lost, self._reports = 0, False
        self.report: Callable[[int], None] = lambda _lost: None

    def msg(self, line: str) -> None:
        try:
            if self._pipe is None:
                self._stream.write(line + "\n")
                self._stream.flush()
                return
            with self._lock:
                if not self._pipe.write(line + "\n"):
                    self._lost += 1
                elif self._lost and not self._reports:
                    self._report_lost()
        except (OSError, ValueError):
            pass  # there is no way to report it, and the service must not fail because of its log

    def _report_lost(self) -> None:
        lost, self._lost, self._reports = self._lost, 0, True
        self.report(lost)  # calls `msg`
        self._reports = False
        if self._lost:  # the report itself
            self._lost = lost

    debug = info = warning = warn = error = err = exception = critical = fatal = log = msg


class _Handler(logging.Handler):
    """Writes the standard library's records as lines of the log."""

    def __init__(self, lines: _Lines) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as error:  # a broken % template of a library must not end a request
            line = f"a log record of {record.name} cannot be shown: {type(error).__name__}"
        self._lines.msg(line)
