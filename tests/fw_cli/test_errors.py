"""Errors of commands: one sentence on stderr, and the exit code."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from fw_actors.errors import (
    ConfigurationError,
    DatabaseUnreachableError,
    NotFoundError,
    OverloadedError,
    ValidationError,
)
from fw_actors.rules.safe_output import Scrubber
from fw_cli.errors import CommandError, CommandFailed, command_error, is_defect, is_store_away
from supervisors.service.site_files import AlreadyRunning, StartFailed

SECRET = "sk_live_51Habcd"


def message_of(error: BaseException, *, debugging: bool = False) -> str:
    refused = command_error(error, debugging=debugging, scrubber=Scrubber([SECRET]))
    assert isinstance(refused, CommandError)
    assert refused.exit_code == 1
    return refused.message


def caught(error: Exception) -> Exception:
    """The same error with a traceback, as one that was raised."""
    try:
        raise error
    except Exception as raised:
        return raised


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (NotFoundError("There is no User x."), "There is no User x."),
        (CommandFailed("no terminal"), "no terminal"),
        (ConfigurationError(["a is wrong", "b too"]), "a is wrong\nb too"),
        (AlreadyRunning(Path("/site"), 7), "process 7 already serves the site /site: stop it with "
         "`fw stop`, or join it with `fw worker`"),
        (StartFailed("ended", Path("/log"), ["one", "two"]),
         "the service did not start: it ended; /log ends with\n  | one\n  | two"),
    ],
)  # fmt: skip
def test_refusal_is_printed_in_its_own_words(error: Exception, message: str) -> None:
    assert message_of(error) == message
    assert not is_defect(error)


def test_missing_module_and_odd_system_error_are_defects() -> None:
    """A module of this project is in no extra, and only a system's refusal has a reason."""
    for error in (ModuleNotFoundError("no web.x", name="web.x"), OSError("odd")):
        assert is_defect(error)
        assert message_of(error).startswith(f"internal error: {type(error).__name__}: ")


def test_ctrl_c_is_no_defect() -> None:
    assert not is_defect(KeyboardInterrupt())
    assert not is_defect(BaseExceptionGroup("", [KeyboardInterrupt(), NotFoundError("x")]))


def test_store_is_away_only_if_nothing_else_has_failed() -> None:
    away = OverloadedError()
    assert is_store_away(ExceptionGroup("", [away, DatabaseUnreachableError("no server")]))
    assert not is_store_away(ExceptionGroup("", [away, ValueError()]))
    assert not is_store_away(ConfigurationError(["a is wrong"]))


def test_defect_is_one_line_with_traceback_at_debug() -> None:
    error = caught(ValueError("two\nlines"))
    assert is_defect(error)
    line = "internal error: ValueError: two\nlines (FW_LOG_LEVEL=debug shows where)"
    assert message_of(error) == line
    first, second, *_ = message_of(error, debugging=True).splitlines()
    assert (first, second) == ("internal error: ValueError: two", "lines")
    assert "Traceback" in message_of(error, debugging=True)
    assert "test_errors.py" in message_of(error, debugging=True)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied", "/srv/fw.json"),
         "cannot open /srv/fw.json: Permission denied"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
)  # fmt: skip
def test_refusal_of_operating_system_is_no_internal_error(error: OSError, message: str) -> None:
    assert message_of(error) == message
    assert is_defect(error)  # in a service: its log has the traceback
    assert "Traceback" in message_of(caught(error), debugging=True)


def test_error_text_scrubs_secrets_of_site() -> None:
    error = caught(RuntimeError(f"upstream refused {SECRET}"))
    assert "upstream refused [scrubbed]" in message_of(error)
    assert SECRET not in message_of(error, debugging=True)
    assert message_of(CommandFailed(f"no {SECRET}")) == "no [scrubbed]"


def test_error_without_message_is_printed_by_class_name() -> None:
    assert message_of(AssertionError()).startswith("internal error: AssertionError (")


def test_exception_group_prints_distinct_errors_once() -> None:
    one = ValidationError("first")
    group = ExceptionGroup("", [one, ExceptionGroup("", [NotFoundError("second"), one])])
    assert message_of(group) == "first\nsecond"
    assert not is_defect(group)
    assert is_defect(ExceptionGroup("", [one, KeyError("x")]))


@pytest.mark.parametrize("wrapped", [False, True])
def test_ctrl_c_is_an_abort(wrapped: bool) -> None:
    error: BaseException = KeyboardInterrupt()
    if wrapped:
        error = BaseExceptionGroup("", [error, ValueError()])
    assert isinstance(command_error(error, debugging=False, scrubber=Scrubber()), click.Abort)


def test_command_error_escapes_lines(capsys: pytest.CaptureFixture[str]) -> None:
    CommandError(["\x1b[31mred\nfw: forged", "ü"]).show()
    assert capsys.readouterr().err == "fw: \\u001b[31mred\\u000afw: forged\nfw: ü\n"
