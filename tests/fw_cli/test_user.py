"""`user add` and `user list` (interface §5)."""

from __future__ import annotations

import re

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


def test_without_a_password_the_invitation_is_printed_and_nothing_else(fw: CommandLine) -> None:
    """Interface §8: `fw user add` without password prints the link only."""
    public = {"FW_PUBLIC_URL": "https://desk.example"}
    link = fw.done("user", "add", "ida", "--email", "ida@example.test", **public)
    assert re.fullmatch(r"https://desk\.example/accept-invite#token=[A-Za-z0-9_-]{32}\n", link)
    assert fw.json("user", "list", "--json")[0]["name"] == "ida"
    assert not any(row["ready"] for row in fw.json("jobs", "stats", "--json"))
    token = link.strip().partition("=")[2].encode()
    assert not any(token in f.read_bytes() for f in (fw.folder / "data").iterdir())


def test_without_a_public_url_the_link_begins_with_the_configured_address(fw: CommandLine) -> None:
    link = fw.done("user", "add", "ida", "--email", "i@example.test", FW_BIND="127.0.0.1:8123")
    assert link.startswith("http://127.0.0.1:8123/accept-invite#token=")


def test_a_stdin_without_a_password_makes_no_account(fw: CommandLine) -> None:
    assert "--password-stdin" in fw.refused(*add("x"), stdin="")
    assert not (fw.folder / "data").exists()
