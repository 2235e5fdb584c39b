"""The group `user` (C-113, C-114)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text as sql

from fw_actors.access.users import list_users
from fw_actors.documents.handle import Fw
from fw_actors.ops.site import Site
from tests.fw_cli.conftest import LONG_QUERY, PASSWORD, CommandLine


def add(name: str, *more: str) -> tuple[str, ...]:
    return ("user", "add", name, "--email", f"{name}@example.test", *more, "--password-stdin")


def test_user_list_has_no_time_limit(fw: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """C-114, H-133: it has no filters to narrow, and uses no reader of the service."""
    fw.done(*add("anna"), stdin=PASSWORD + "\n")
    (fw.folder / "fw.json").write_text('{"ops": {"queryTimeoutSeconds": 0.1}}')

    def slow(handle: Fw) -> Iterator[dict[str, Any]]:
        handle.tx.scalar(sql(LONG_QUERY))
        return list_users(handle)

    monkeypatch.setattr("fw_actors.access.users.list_users", slow)
    assert [row["name"] for row in fw.json("user", "list", "--json")] == ["anna"]


def test_added_account_is_listed(fw: CommandLine) -> None:
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
def test_refused_user_add_stores_no_account(
    fw: CommandLine, more: tuple[str, ...], password: str
) -> None:
    fw.refused(*add("frieda", *more), stdin=password + "\n")
    assert fw.json("user", "list", "--json") == []
    fw.done(*add("frieda"), stdin=PASSWORD + "\n")


def test_taken_name_is_refused_in_any_case(fw: CommandLine) -> None:
    fw.done(*add("anna"), stdin=PASSWORD + "\n")
    assert "name" in fw.refused(*add("ANNA"), stdin=PASSWORD + "\n")
    assert len(fw.json("user", "list", "--json")) == 1


def test_user_add_without_password_prints_only_link(fw: CommandLine) -> None:
    """`fw user add` without a password prints the link only (C-113)."""
    public = {"FW_PUBLIC_URL": "https://desk.example"}
    link = fw.done("user", "add", "ida", "--email", "ida@example.test", **public)
    assert re.fullmatch(r"https://desk\.example/accept-invite#token=[A-Za-z0-9_-]{32}\n", link)
    assert fw.json("user", "list", "--json")[0]["name"] == "ida"
    assert not any(row["ready"] for row in fw.json("jobs", "stats", "--json"))
    token = link.strip().partition("=")[2].encode()
    assert not any(token in f.read_bytes() for f in (fw.folder / "data").iterdir())


def test_invitation_link_without_public_url_uses_bind_address(fw: CommandLine) -> None:
    link = fw.done("user", "add", "ida", "--email", "i@example.test", FW_BIND="127.0.0.1:8123")
    assert link.startswith("http://127.0.0.1:8123/accept-invite#token=")


def test_empty_stdin_creates_no_account(fw: CommandLine) -> None:
    assert "--password-stdin" in fw.refused(*add("x"), stdin="")
    assert not (fw.folder / "data").exists()


OTHER = "another decent passphrase"
SPELLINGS = ("ida", "IDA", "Ida@Example.Test")


def hashes(fw: CommandLine) -> list[str]:
    rows = fw.json("eval", "[r['hash'] for r in fw.db.sql('SELECT hash FROM fw_password')]")
    return list(rows)


@pytest.mark.parametrize("account", SPELLINGS)
def test_passwd_sets_a_password_and_ends_sessions_and_links(fw: CommandLine, account: str) -> None:
    """A set password ends sessions and links (A-162, A-194), and opens an invited
    account (A-230)."""
    fw.done("user", "add", "ida", "--email", "ida@example.test")
    assert hashes(fw) == []
    output = fw.done("user", "passwd", account, "--password-stdin", stdin=OTHER + "\n")
    assert output == "set the password of ida\n"
    (first,) = hashes(fw)
    assert fw.json("eval", "fw.db.sql('SELECT * FROM fw_token')") == []
    insert = (
        'fw.db.sql("INSERT INTO fw_session (id, sid_hash, user, created, last_seen, expires)'
        " VALUES ('h', x'00', 'ida', 1, 1, 9e15)\")"
    )
    fw.done("eval", insert, "--commit")
    key = (
        "[fw.db.sql(\"INSERT INTO fw_api_key (id, secret_hash) VALUES ('k', x'00')\"),"
        " fw.new_doc('API Key', name='k', user='ida', label='CI').insert().name]"
    )
    fw.done("eval", key, "--commit")
    output = fw.done("user", "passwd", account, "--password-stdin", stdin=PASSWORD + "\n")
    assert output == "set the password of ida; ended 1 session and 1 API key\n"
    assert fw.json("eval", "fw.db.sql('SELECT * FROM fw_api_key')") == []
    assert hashes(fw) != [first]
    assert fw.json("eval", "fw.db.sql('SELECT * FROM fw_session')") == []
    mails = fw.json(
        "eval", "[d['template'] for d in fw.get_all('Email Delivery', fields=['template'])]"
    )
    assert mails == ["password_changed"]


@pytest.mark.parametrize("password", ["short", "   ", "x" * 257, "ida", "IDA@example.test"])
def test_passwd_applies_password_policy(fw: CommandLine, password: str) -> None:
    fw.done(*add("ida"), stdin=PASSWORD + "\n")
    before = hashes(fw)
    fw.refused("user", "passwd", "ida", "--password-stdin", stdin=password + "\n")
    assert hashes(fw) == before


def test_passwd_of_concurrently_deleted_account_stores_no_password(
    fw: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later account of that name would have the password."""
    fw.done(*add("ida"), stdin=PASSWORD + "\n")
    hash_password = Site.hash_password

    async def late(site: Site, *args: str) -> str:
        await site.write("Administrator", lambda fw: fw.get_doc("User", "ida").delete())
        return await hash_password(site, *args)

    monkeypatch.setattr(Site, "hash_password", late)
    assert "ida" in fw.refused("user", "passwd", "ida", "--password-stdin", stdin=OTHER + "\n")
    assert hashes(fw) == []


@pytest.mark.parametrize("account", SPELLINGS)
def test_user_delete_ends_access_of_account(fw: CommandLine, account: str) -> None:
    """C-114, C-153: after a confirmation, and with an Audit Event."""
    fw.done(*add("ida"), stdin=PASSWORD + "\n")
    fw.done("key", "create", "ida", "--label", "CI")
    assert "--yes" in fw.refused("user", "delete", account)
    assert fw.done("user", "delete", account, "--yes") == "deleted ida\n"
    assert (fw.json("user", "list", "--json"), fw.json("key", "list", "--json")) == ([], [])
    assert hashes(fw) == []
    (event,) = fw.json("audit", "--action", "user.delete", "--json")
    assert (event["actor"], event["target"]) == ("Administrator", "ida")


def test_user_delete_refuses_last_system_manager(fw: CommandLine) -> None:
    """A-22."""
    fw.done(*add("ida", "--role", "System Manager"), stdin=PASSWORD + "\n")
    assert "The last enabled System Manager" in fw.refused("user", "delete", "ida", "--yes")
    assert [row["name"] for row in fw.json("user", "list", "--json")] == ["ida"]


@pytest.mark.parametrize("command", ["passwd", "unlock", "disable", "enable", "delete"])
@pytest.mark.parametrize("account", ["nobody-at-all", "Administrator"])
def test_unknown_user_is_named_in_refusal(fw: CommandLine, command: str, account: str) -> None:
    more = ("--password-stdin",) if command == "passwd" else ()
    assert account in fw.refused("user", command, account, *more, stdin=PASSWORD + "\n")


@pytest.mark.parametrize("command", ["passwd", "unlock", "disable", "enable", "delete"])
def test_unknown_user_is_answered_with_suggestion(fw: CommandLine, command: str) -> None:
    """Also before a password is asked for (C-157)."""
    fw.done(*add("ida"), stdin=PASSWORD + "\n")
    assert "Did you mean ida?" in fw.refused("user", command, "idaa")


def test_passwd_without_terminal_names_stdin_option(fw: CommandLine) -> None:
    fw.done(*add("ida"), stdin=PASSWORD + "\n")
    assert "--password-stdin" in fw.refused("user", "passwd", "ida")


@pytest.mark.parametrize("account", SPELLINGS)
def test_unlock_clears_attempts_of_name_and_email(fw: CommandLine, account: str) -> None:
    """An unlock clears both spellings (A-76, C-114)."""
    for name in ("ida", "bob"):
        fw.done(*add(name), stdin=PASSWORD + "\n")
    script = fw.folder / "lock.py"
    script.write_text(
        "from fw_actors.access.attempts import IDENTIFIER, counter_key\n"
        "from fw_actors.store import installation_key\n"
        "for n, account in enumerate(['ida', 'ida@example.test', 'bob']):\n"
        "    fw.db.sql('INSERT INTO fw_login_attempt (id, key, at, state) VALUES (:i, :k, 1, 1)',\n"
        "        {'i': str(n), 'k': counter_key(installation_key(fw.tx), IDENTIFIER, account)})\n"
    )
    fw.done("exec", str(script), "--commit")
    assert fw.done("user", "unlock", account) == "unlocked ida\n"
    assert fw.json("eval", "[r['id'] for r in fw.db.sql('SELECT id FROM fw_login_attempt')]") == [
        "2"
    ]
    fw.done("user", "unlock", account)


def test_account_is_disabled_and_enabled(fw: CommandLine) -> None:
    fw.done(*add("ida", "--role", "System Manager"), stdin=PASSWORD + "\n")
    assert "System Manager" in fw.refused("user", "disable", "ida")
    fw.done(*add("bob", "--role", "System Manager"), stdin=PASSWORD + "\n")
    for command, enabled in (("disable", False), ("disable", False), ("enable", True)):
        assert fw.done("user", command, "IDA") == f"{command}d ida\n"
        ida = next(u for u in fw.json("user", "list", "--json") if u["name"] == "ida")
        assert ida["enabled"] is enabled
