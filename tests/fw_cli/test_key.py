"""The group `key` (C-158)."""

from __future__ import annotations

import pytest

from fw_actors.rules.identifiers import parse_api_key
from tests.accounts_kit import PASSWORD
from tests.fw_cli.conftest import CommandLine


@pytest.fixture
def ida(fw: CommandLine) -> CommandLine:
    fw.done("user", "add", "ida", "--email", "ida@example.test", "--password-stdin", stdin=PASSWORD)
    return fw


def mails(fw: CommandLine) -> list[str]:
    return [
        row["template"] for row in fw.json("eval", 'fw.get_all("Email Delivery", [], ["template"])')
    ]


def test_key_create_prints_key_once_and_mails_owner(ida: CommandLine) -> None:
    text = ida.done("key", "create", "IDA@example.test", "--label", "CI", "--days", "2").strip()
    parsed = parse_api_key(text)
    assert parsed is not None
    (listed,) = ida.json("key", "list", "--json")
    assert (listed["name"], listed["user"], listed["label"]) == (parsed.id, "ida", "CI")
    assert listed["expires"] is not None
    assert mails(ida) == ["api_key_made"]
    assert parsed.secret not in ida.done("key", "list", "--json")
    (event,) = ida.json("audit", "--action", "api_key.create", "--json")
    assert (event["actor"], event["detail"]) == ("Administrator", {"user": "ida"})


def test_key_list_has_newest_first_and_those_of_one_user(ida: CommandLine) -> None:
    ida.done("user", "add", "bob", "--email", "bob@example.test")
    created = [
        ida.json("key", "create", user, "--label", "x", "--json") for user in ("ida", "bob", "ida")
    ]
    names = [made["name"] for made in created]
    listed = [row["name"] for row in ida.json("key", "list", "--json")]
    assert listed == names[::-1]
    of_ida = ida.json("key", "list", "--user", "IDA@example.test", "--json")
    assert [row["name"] for row in of_ida] == [names[2], names[0]]


def test_key_create_without_days_prints_no_expiry(ida: CommandLine) -> None:
    assert ida.json("key", "create", "ida", "--label", "x", "--json")["expires"] is None


def test_key_create_creates_machine_account(fw: CommandLine) -> None:
    """This works also where users may not create keys themselves (C-158)."""
    (fw.folder / "fw.json").write_text('{"auth": {"selfServiceApiKeys": false, "apiKeyDays": 3}}')
    made = fw.json("key", "create", "ci", "--label", "deploy", "--email", "ci@example.test",
                   "--role", "Event Publisher", "--json")  # fmt: skip
    assert parse_api_key(made["key"]) is not None
    assert made["expires"] is not None
    (listed,) = fw.json("key", "list", "--json")
    assert (made["name"], made["label"]) == (listed["name"], "deploy")
    (account,) = fw.json("user", "list", "--json")
    assert (account["name"], account["roles"]) == ("ci", ["Event Publisher"])
    assert fw.json("eval", "fw.db.sql('SELECT * FROM fw_password')") == []
    fw.done("key", "create", "ci", "--label", "the next key")
    assert mails(fw) == []


@pytest.mark.parametrize(
    ("args", "code", "expected"),
    [
        (("idda", "--label", "x"), 1, "Did you mean ida"),
        (("ida", "--label", " "), 1, "label"),
        (("ida", "--label", "x", "--days", "0"), 2, "'--days'"),
        (("ida", "--label", "x", "--role", "Event Publisher"), 2, "--email"),
        (("ida", "--label", "x", "--email", "other@example.test"), 1, "omit --email\n"),
        (("x", "--label", "x", "--email", "x@a.test", "--role", "Event Publishr"), 1, "Did you"),
    ],
)
def test_refused_key_create_stores_no_key(
    ida: CommandLine, args: tuple[str, ...], code: int, expected: str
) -> None:
    result = ida.run("key", "create", *args)
    assert result.exit_code == code
    assert expected in result.stderr
    assert ida.json("key", "list", "--json") == []
    assert len(ida.json("user", "list", "--json")) == 1


def test_key_create_refuses_disabled_account(ida: CommandLine) -> None:
    ida.done("user", "disable", "ida")
    assert "disabled" in ida.refused("key", "create", "ida", "--label", "x")


def test_key_revoke_deletes_key(ida: CommandLine) -> None:
    for label in ("one", "two"):
        ida.done("key", "create", "ida", "--label", label)
    two, one = (row["name"] for row in ida.json("key", "list", "--user", "ida", "--json"))
    assert "--yes" in ida.refused("key", "revoke", two)
    assert "two of ida" in ida.done("key", "revoke", two, "--yes")
    assert [row["name"] for row in ida.json("key", "list", "--json")] == [one]
    assert len(ida.json("eval", "fw.db.sql('SELECT id FROM fw_api_key')")) == 1
    assert "no API Key" in ida.refused("key", "revoke", two, "--yes")
