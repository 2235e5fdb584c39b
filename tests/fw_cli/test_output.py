"""Output of commands: tables, and JSON for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

import msgspec
import pytest

from fw_cli.output import json_text, show, show_sections, spool

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
    """C-126."""
    show([{"name": "n" * 500, "roles": ["r" * 500]}], COLUMNS, json=False)
    assert "n" * 500 in capsys.readouterr().out


@pytest.mark.parametrize("shown", [1200, 0])
def test_long_table_is_aligned_to_its_longest_values(
    shown: int, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"name": f"user {number}", "count": 7} for number in range(shown)]
    show([*rows, {"name": "n" * 40, "count": 8}], COLUMNS, json=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + shown + 1
    assert {line.rstrip()[:40].rstrip() for line in lines[2:-1]} == {row["name"] for row in rows}
    assert {line.rindex("7") for line in lines[2:-1] if line.rstrip().endswith("7")} <= {
        lines[-1].rindex("8")
    }


def test_table_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "50")
    rows = [{"name": "n" * 70, "roles": ["r" * 40], "enabled": True, "count": 12345}]
    show(rows, COLUMNS, json=False)
    out = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out)
    assert max(map(len, out.splitlines())) <= 50
    assert (out.count("n"), out.count("r"), out.count("12345")) == (70 + 2, 40, 1)


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


def test_spooled_rows_are_read_again_and_shown_as_a_list_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [{"name": f"ü{number}\n", "roles": ["A"], "count": None} for number in range(1001)]
    with spool() as spooled:
        spooled.fill(rows)
        assert list(spooled) == rows == list(spooled)
        for as_json in (True, False):
            show(spooled, COLUMNS, json=as_json)
            shown = capsys.readouterr().out
            show(rows, COLUMNS, json=as_json)
            assert shown == capsys.readouterr().out


def test_json_output_is_indented(capsys: pytest.CaptureFixture[str]) -> None:
    lists: tuple[list[dict[str, Any]], ...] = (ROWS, [], [{}])
    for rows in lists:
        show(rows, COLUMNS, json=True)
        indented = msgspec.json.format(json_text(rows), indent=2)
        assert capsys.readouterr().out == f"{indented}\n"
    users: dict[str, Any] = {"anna": {"roles": ["A"]}, "bob": {}}
    show_sections({"users": users.items(), "roles": ["A", "B"], "hooks": ()}, lists={"roles"})
    content = {"users": users, "roles": ["A", "B"], "hooks": {}}
    assert capsys.readouterr().out == msgspec.json.format(json_text(content), indent=2) + "\n"


class Row(dict[str, object]):
    """A row whose life can be observed."""

    __hash__ = object.__hash__  # type: ignore[assignment]


class ObservedRows:
    """Rows that count how many of them are in memory at once."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.most = 0

    def __iter__(self) -> Iterator[Row]:
        living: WeakSet[Row] = WeakSet()
        for number in range(self._count):
            row = Row(name=f"user {number}")
            living.add(row)
            self.most = max(self.most, len(living))
            yield row


@pytest.mark.parametrize("as_json", [True, False])
def test_rows_are_shown_a_page_at_a_time(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """C-176: a million accounts take no more memory than a page of them."""
    rows = ObservedRows(3000)
    show(rows, COLUMNS, json=as_json)
    assert capsys.readouterr().out.count("user ") == 3000
    assert rows.most < 1100


def test_spooled_rows_are_not_kept_in_memory() -> None:
    rows = ObservedRows(3000)
    with spool() as spooled:
        spooled.fill(rows)
        assert len(list(spooled)) == 3000
    assert rows.most < 10


def test_json_output_has_all_row_fields(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, COLUMNS, json=True)
    out = capsys.readouterr().out
    assert json.loads(out) == ROWS
    assert "\x1b" not in out
