"""The log of a process: one line per event, escaped and without secrets (O-100, O-101)."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import logging
import os
import select
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from fw_actors.rules.safe_output import Scrubber
from fw_actors.runtime import Clock
from fw_actors.tracing import TraceContext, in_trace
from supervisors.service.logs import configure, is_secret, log_unhandled

MOMENT = 1_700_000_000_123


class StoppedClock:
    def now(self) -> int:
        return MOMENT


class WrittenLog:
    """A configured log, and the lines that it wrote."""

    def __init__(
        self,
        style: Any = "json",
        level: str = "info",
        links: bool = False,
        secrets: tuple[str, ...] = (),
        traced: bool = False,
    ) -> None:
        self.stream = io.StringIO()
        clock: Clock = StoppedClock()
        self.logger = configure(
            style=style,
            level=level,
            clock=clock,
            stream=self.stream,
            scrubber=Scrubber(secrets),
            links=links,
            traced=traced,
        )

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()

    @property
    def entry(self) -> dict[str, Any]:
        (line,) = self.lines
        entry: dict[str, Any] = json.loads(line)
        return entry


@pytest.mark.parametrize("traced", [True, False])
def test_log_entry_names_its_trace(traced: bool) -> None:
    """B-427; one that names a trace itself keeps it."""
    log = WrittenLog(traced=traced)
    with in_trace(TraceContext("1" * 32, "2" * 16)):
        log.logger.info("web.request")
        log.logger.info("delivery.attempted", trace_id="3" * 32)
        logging.getLogger("app").warning("by the standard library")
    log.logger.info("outside")
    own = "1" * 32 if traced else None
    assert [json.loads(line).get("trace_id") for line in log.lines] == [own, "3" * 32, own, None]


def test_json_entry_has_time_level_event_and_fields() -> None:
    log = WrittenLog()
    log.logger.info("delivery.sent", delivery="msg_1", status=204, parts=["a", 1])
    assert log.entry == {
        "timestamp": "2023-11-14T22:13:20.123Z",
        "level": "info",
        "event": "delivery.sent",
        "delivery": "msg_1",
        "status": 204,
        "parts": ["a", 1],
    }


def test_text_entry_is_one_readable_line() -> None:
    log = WrittenLog("text")
    log.logger.warning(
        "delivery.failed", delivery="msg_1", status=503, error="went away", none=None
    )
    assert log.lines == [
        "2023-11-14T22:13:20.123Z warning delivery.failed delivery=msg_1 status=503 "
        'error="went away" none=null'
    ]


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize("evil", ["\r", "\n", "\x1b", "\u2028", "\x85", "\x9b", "\u202e", "\ud800"])
def test_log_escapes_line_ends_and_terminal_commands(style: str, evil: str) -> None:
    log = WrittenLog(style)
    log.logger.info(f"event{evil}", **{f"name{evil}": f"value{evil}forged", "deep": [{"a": evil}]})
    written = log.stream.getvalue()
    assert evil not in written.removesuffix("\n")
    assert "forged" in written
    assert written.count("\n") == 1


def test_json_entry_decodes_to_the_logged_value() -> None:
    log = WrittenLog()
    log.logger.info("x", value="line\nline\u2028ü\x1b")
    assert log.entry["value"] == "line\nline\u2028ü\x1b"


SECRET = [
    "password", "pwd", "token", "sid", "secret", "key", "new_password", "password_hash",
    "apiKey", "api-key", "API_KEY", "secretKey", "Authorization", "cookie", "sidHash", "Set-Cookie",
]  # fmt: skip
PLAIN = ["event", "user", "monkey", "keyboard", "tokens_left", "inside", "webhook", "delivery"]


@pytest.mark.parametrize("name", SECRET)
@pytest.mark.parametrize("style", ["text", "json"])
def test_log_scrubs_fields_with_secret_names_at_any_depth(name: str, style: str) -> None:
    """O-103."""
    log = WrittenLog(style)
    fields: dict[str, Any] = {name: "hunter2", "deep": {"list": [{name: ["hunter2"]}]}}
    log.logger.info("x", **fields)
    assert "hunter2" not in log.stream.getvalue()
    assert log.stream.getvalue().count("[scrubbed]") == 2


@pytest.mark.parametrize("name", PLAIN)
def test_log_keeps_fields_with_plain_names(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("links", "event", "shown"),
    [(True, "mail.sent", True), (False, "mail.sent", False), (True, "mail.failed", False)],
)
def test_log_shows_links_in_mail_sent_of_transport_log_only(
    links: bool, event: str, shown: bool
) -> None:
    """A mail is one log line with event `mail.sent` and the link (O-54, O-102)."""
    log = WrittenLog(links=links)
    log.logger.info(event, link="http://x/reset-password#token=t", deep={"link": "http://y/#t"})
    assert ("token=t" in log.stream.getvalue()) is shown
    assert "http://y" not in log.stream.getvalue()


@pytest.mark.parametrize(
    ("level", "written"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_log_level_applies_to_standard_library_loggers(level: str, written: list[str]) -> None:
    """C-61."""
    log = WrittenLog(level=level)
    for logger in (log.logger, logging.getLogger("some.library")):
        for name in ("debug", "info", "warning", "error"):
            getattr(logger, name)("x")
    assert [json.loads(line)["level"] for line in log.lines] == written * 2


def test_standard_library_loggers_write_the_same_form() -> None:
    log = WrittenLog()
    logging.getLogger("hypercorn.error").warning("bad %s", "line\n\x1b")
    entry = log.entry
    assert (entry["event"], entry["logger"], entry["level"]) == (
        "bad line\n\x1b", "hypercorn.error", "warning",
    )  # fmt: skip
    assert entry["timestamp"] == "2023-11-14T22:13:20.123Z"
    assert set(entry) == {"timestamp", "level", "event", "logger"}


def test_hypercorn_info_is_logged_at_level_debug_only() -> None:
    quiet = WrittenLog(level="info")
    logging.getLogger("hypercorn.error").info("Running on …")
    assert quiet.lines == []
    loud = WrittenLog(level="debug")
    logging.getLogger("hypercorn.error").info("Running on …")
    assert loud.entry["event"] == "Running on …"


def test_python_warnings_are_logged() -> None:
    log = WrittenLog()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old ways", DeprecationWarning, stacklevel=1)
    assert "old ways" in log.entry["event"]


@pytest.mark.parametrize("library", [False, True])
def test_traceback_is_marked_line_by_line(library: bool) -> None:
    log = WrittenLog("text")
    logger: Any = logging.getLogger("lib") if library else log.logger
    try:
        raise ValueError("first\n2023-11-14T22:13:20.123Z info    forged\x1b")
    except ValueError:
        logger.error("failed", exc_info=True)
    head, *trace = log.lines
    assert head.startswith("2023-11-14T22:13:20.123Z error   failed")
    assert trace[0] == "  | Traceback (most recent call last):"
    assert all(line.startswith("  | ") for line in trace)
    assert "\x1b" not in log.stream.getvalue()


@pytest.mark.parametrize("library", [False, True])
def test_traceback_is_scrubbed_of_secrets(library: bool) -> None:
    """No password, token or key is written, nor the query string of any URL (O-101)."""
    log = WrittenLog("text")
    logger: Any = logging.getLogger("lib") if library else log.logger
    raised = "password=" + "hunter2", "https://x.test/?" + "q=private"
    try:
        raise ValueError(" and ".join(raised))
    except ValueError:
        logger.error("failed", exc_info=True)
    assert log.lines[-1] == ("  | ValueError: password=[scrubbed] and https://x.test/?[scrubbed]")
    assert not [word for word in ("=hunter2", "q=private") if word in log.stream.getvalue()]


def test_log_survives_a_broken_message_template() -> None:
    log = WrittenLog()
    logging.getLogger("lib").warning("%d", "no number")
    assert "cannot be shown" in log.lines[0]


def test_log_survives_a_closed_stream() -> None:
    log = WrittenLog()
    log.stream.close()
    log.logger.error("nobody reads this")
    logging.getLogger("lib").error("nor this")


def test_configure_again_replaces_the_first_setup() -> None:
    first, second = WrittenLog(), WrittenLog()
    logging.getLogger("lib").error("once")
    assert (len(first.lines), len(second.lines)) == (0, 1)


def test_log_entry_has_bound_fields_and_context_variables() -> None:
    log = WrittenLog()
    with structlog.contextvars.bound_contextvars(request_id="r1"):
        log.logger.bind(user="u").info("x")
    assert (log.entry["request_id"], log.entry["user"]) == ("r1", "u")


def test_uncaught_failure_of_thread_or_finaliser_is_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python would print it on stderr, in another form and with its secrets (O-104)."""

    class BadFinaliser:
        def __del__(self) -> None:
            raise ValueError("hidden word")

    def fail() -> None:
        raise ValueError("hidden word")

    for hook, module in (("excepthook", threading), ("unraisablehook", sys)):
        monkeypatch.setattr(module, hook, getattr(module, hook))  # put back at the end
    log = WrittenLog(secrets=("hidden word",))
    log_unhandled(log.logger)
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    BadFinaliser()
    entries = [json.loads(line) for line in log.lines]
    assert [entry["event"] for entry in entries] == ["thread.failed", "finaliser.failed"]
    assert "ValueError" in str(entries)
    assert "hidden word" not in str(entries)


class UnreadPipe:
    """A log that goes to a short pipe, which nobody reads until `read` is called."""

    def __init__(self, kind: str) -> None:
        if kind == "socket":
            theirs, ours = socket.socketpair()
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            self._read, write = theirs.detach(), ours.detach()
        else:
            self._read, write = os.pipe()
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 8192)
        self.stream = os.fdopen(write, "w", encoding="utf-8")
        self.logger = configure(
            style="json", level="info", clock=StoppedClock(), stream=self.stream,
            scrubber=Scrubber(()),
        )  # fmt: skip
        os.set_blocking(self._read, False)

    def read(self) -> list[str]:
        """Return what the reader gets now, line by line."""
        found = b""
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._read, 65536):
                found += piece
        return found.decode().splitlines()

    def close(self) -> None:
        self.stream.close()
        os.close(self._read)


@pytest.fixture(params=["pipe", "socket"])
def unread(request: pytest.FixtureRequest) -> Iterator[UnreadPipe]:
    pipe = UnreadPipe(request.param)
    yield pipe
    pipe.close()


def fill(pipe: UnreadPipe) -> int:
    """Write entries until the next one has no room; return how many were written."""
    for number in range(100_000):
        if not select.select([], [pipe.stream], [], 0)[1]:
            return number
        pipe.logger.info("filling", number=number)
    raise AssertionError("the pipe is never full")


@pytest.mark.timeout(60)
def test_log_does_not_wait_for_a_reader_that_has_stopped(unread: UnreadPipe) -> None:
    """O-108: the loop of the service writes the log. A wait for each entry would take minutes."""
    written = fill(unread)
    for _ in range(1000):
        unread.logger.info("lost")
    assert len(unread.read()) == written
    read: list[str] = []
    for _ in range(2):
        unread.logger.info("later")
        read += unread.read()
    entries = [json.loads(line) for line in read]
    reports = [each["lines"] for each in entries if each["event"] == "log.lines_lost"]
    assert reports == [1000]
    assert [each["event"] for each in entries].count("later") == 2


@pytest.mark.timeout(60)
def test_log_begins_a_line_after_one_that_was_cut(unread: UnreadPipe) -> None:
    """O-108: an entry that is longer than the pipe."""
    unread.logger.info("long", text="x" * 1_000_000)
    cut = "\n".join(unread.read())
    assert cut.startswith("{")
    unread.logger.info("later")
    assert json.loads(unread.read()[-1])["event"] in ("later", "log.lines_lost")


def test_log_survives_a_reader_that_has_ended() -> None:
    """O-108: as `fw serve 2>&1 | head` leaves it."""
    read, write = os.pipe()
    os.close(read)
    with open(write, "w", encoding="utf-8") as stream:
        log = configure(
            style="text", level="info", clock=StoppedClock(), stream=stream, scrubber=Scrubber(()),
        )  # fmt: skip
        log.info("nobody reads this")
