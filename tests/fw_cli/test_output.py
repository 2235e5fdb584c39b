"""Output of commands: tables, and JSON for programs."""

from __future__ import annotations

import json

import pytest

from fw_cli.output import show

COLUMNS = {"name": "Name", "roles": "Roles", "enabled": "Enabled", "count": "Count"}
ROWS = [
    {"name": "anna", "roles": ["A", "B"], "enabled": True, "count": 3, "hidden": "x"},
    {"name": "[red]b\x1b[31m\n", "roles": [], "enabled": False, "count": None},
]


def test_table_shows_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, COLUMNS, json=False)
    head, _, first, second = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head == ["Name", "Roles", "Enabled", "Count"]
    assert first == ["anna", "A,", "B", "yes", "3"]
    assert second == ["[red]b\\u001b[31m\\u000a", "no"]


def test_piped_table_truncates_and_wraps_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    show([{"name": "n" * 500, "roles": ["r" * 500]}], COLUMNS, json=False)
    assert "n" * 500 in capsys.readouterr().out


def test_empty_table_prints_header(capsys: pytest.CaptureFixture[str]) -> None:
    show([], COLUMNS, json=False)
    assert "Name" in capsys.readouterr().out


@pytest.mark.parametrize("character", ["\x7f", "\x9b", "\u202e", "\u2066", "\u2028", "\U000e0001"])
def test_json_output_escapes_control_characters(
    character: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"name": f"a\\{character}ü🙂", character: 1}]
    show(rows, COLUMNS, json=True)
    out = capsys.readouterr().out
    assert character not in out
    assert "ü🙂" in out
    assert json.loads(out) == rows


def test_json_output_has_all_row_fields(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, COLUMNS, json=True)
    out = capsys.readouterr().out
    assert json.loads(out) == ROWS
    assert "\x1b" not in out
