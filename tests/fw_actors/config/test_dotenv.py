"""The file .env has `#` comments and optional quotes (C-53)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.config.parsing import parse_dotenv


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=1", "1"),
        ("  A = two words  ", "two words"),
        ("A=", ""),
        ("A=   ", ""),
        ('A = "two words"', "two words"),
        ('A=""', ""),
        ("A=''", ""),
        ("A='it\"s'", 'it"s'),
        ('A="it\'s"', "it's"),
        ("A=it's", "it's"),
        ('A="  kept  "', "  kept  "),
        ("A=one # a comment", "one"),
        ("A= # a comment", ""),
        ("A=one#two", "one#two"),
        ("A=#one", "#one"),
        ('A="one # two" # a comment', "one # two"),
        ("A=$HOME\\n", "$HOME\\n"),
        ("A=a=b", "a=b"),
        ("A=Größe\u2028x", "Größe\u2028x"),
    ],
)
def test_dotenv_line_has_a_name_and_a_value(line: str, value: str) -> None:
    read = parse_dotenv(line)
    assert (read.problems, read.values) == ((), {"A": value})


def test_dotenv_skips_comments_and_empty_lines() -> None:
    read = parse_dotenv("# facts\r\n\r\n  # more\rA=1\nB=2\r\n")
    assert (read.problems, read.values) == ((), {"A": "1", "B": "2"})


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("hidden", "line 2 is not NAME=value"),
        ("export A=hidden", "line 2 is not NAME=value"),
        ("1A=hidden", "line 2 is not NAME=value"),
        ("=hidden", "line 2 is not NAME=value"),
        ('A="hidden', "line 2: the quotes around A's value are not closed"),
        ("A='hidden\"", "line 2: the quotes around A's value are not closed"),
        ('A="hid"den', "line 2: the quotes around A's value are not closed"),
        ("B=hidden", "line 2: B is defined twice"),
    ],
)
def test_dotenv_names_a_malformed_line_without_its_value(line: str, says: str) -> None:
    assert parse_dotenv(f"B=1\n{line}\nC=3").problems == (says,)


def test_dotenv_names_all_malformed_lines() -> None:
    assert len(parse_dotenv("x\ny\nA=1\nA=2").problems) == 3


@given(st.text())
def test_dotenv_reads_or_refuses_any_text(text: str) -> None:
    read = parse_dotenv(text)
    assert all(name.isascii() for name in read.values)


@given(st.text(st.characters(exclude_characters='"\n\r')))
def test_dotenv_keeps_quoted_text_unchanged(value: str) -> None:
    assert parse_dotenv(f'A="{value}"').values == {"A": value}
