"""The place of an error in an app's code."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from fw_actors.rules.safe_output import app_frame, raised_at, storable

HERE = Path(__file__).name


def raised_by(code: str) -> Exception:
    """Return the error of this code, which an app has in `/srv/desk/shop.py`."""
    names = {"json": json, "msgspec": msgspec, "storable": storable}
    try:
        exec(compile(code, "/srv/desk/shop.py", "exec"), names)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_raised_at_names_line_of_app_that_called_standard_library() -> None:
    error = raised_by("text = 'x'\njson.loads(text)")
    assert raised_at(error) == "JSONDecodeError in shop.py, line 2"


def test_raised_at_names_line_of_app_that_called_installed_library() -> None:
    error = raised_by("def f():\n    msgspec.convert(1, 5)\nf()")
    assert raised_at(error) == "TypeError in shop.py, line 2"


def test_raised_at_names_line_of_app_that_called_this_project() -> None:
    assert raised_at(raised_by("storable(5)")) == "TypeError in shop.py, line 1"


def test_raised_at_of_error_without_frames_is_its_type() -> None:
    assert (raised_at(KeyError("x")), app_frame(KeyError("x"))) == ("KeyError", None)
