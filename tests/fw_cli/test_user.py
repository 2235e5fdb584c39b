"""`user add` and `user list` (interface §5)."""

from __future__ import annotations

import pytest

from tests.fw_cli.conftest import PASSWORD, CommandLine


def add(name: str, *more: str) -> tuple[str, ...]:
    return ("user", "add", name, "--email", f"{name}@example.test", *more, "--password-stdin")


def test_an_added_account_is_listed(fw: CommandLine) -> None:
    roles = ("--role", "System Manager", "--role", "Event Publisher")
    fw.done(*add("anna", "--full-name", "Anna A", *roles), stdin=PASSWORD + "\n")
    (anna,) = fw.json("user", "list", "--json")
    assert (anna["name"], anna["email"], anna["fullName"], anna["enabled"], anna["roles"]) == (
        "anna", "anna@example.test", "Anna A", True, ["System Manager", "Event Publisher"],
    )  # fmt: skip
    assert "argon2" not in fw.done("user", "list", "--json")
    table = fw.done("user", "list")
    assert "anna@example.test" in table
    assert "System Manager, Event Publisher" in table


@pytest.mark.parametrize(
    ("more", "password"),
    [(("--role", "No Such Role"), PASSWORD), ((), "short"), ((), "   "), ((), "x" * 1000)],
)
def test_a_refused_account_leaves_nothing_behind(
    fw: CommandLine, more: tuple[str, ...], password: str
) -> None:
    fw.refused(*add("frieda", *more), stdin=password + "\n")
    assert fw.json("user", "list", "--json") == []
    fw.done(*add("frieda"), stdin=PASSWORD + "\n")


def test_a_taken_name_is_refused_in_any_spelling(fw: CommandLine) -> None:
    fw.done(*add("anna"), stdin=PASSWORD + "\n")
    assert "name" in fw.refused(*add("ANNA"), stdin=PASSWORD + "\n")
    assert len(fw.json("user", "list", "--json")) == 1


def test_without_a_password_to_be_had_nothing_is_opened(fw: CommandLine) -> None:
    assert "--password-stdin" in fw.refused("user", "add", "x", "--email", "x@example.test")
    assert not (fw.folder / "data").exists()
