"""`user invite`, `role` and `sessions` (C-159 to C-161)."""

from __future__ import annotations

import re

import pytest

from tests.fw_cli.conftest import PASSWORD, CommandLine

LINK = re.compile(r"http\S+/accept-invite#token=[A-Za-z0-9_-]{32}\n")
SMTP = {"FW_MAIL_TRANSPORT": "smtp", "FW_SMTP_HOST": "mail.example", "FW_MAIL_FROM": "a@b.example"}


def test_invitation_is_queued_for_service(fw: CommandLine) -> None:
    named = ("--name", "ida", "--full-name", "Ida B")
    output = fw.done("user", "invite", "Ida@Example.test", *named, **SMTP)
    assert fw.json("user", "list", "--json")[0]["fullName"] == "Ida B"
    assert output == "queued the invitation of ida to Ida@Example.test\n"
    (row,) = (row for row in fw.json("jobs", "list", "--queue", "mail", "--json"))
    assert (row["function"], row["user"], row["state"]) == ("invitation", "ida", "ready")
    fw.done("user", "invite", "ida", **SMTP)
    assert [event["action"] for event in fw.json("audit", "--json")] == [
        "user.resend_invite", "user.invite",
    ]  # fmt: skip


def test_invitation_link_is_printed_for_log_transport(fw: CommandLine) -> None:
    assert LINK.fullmatch(fw.done("user", "invite", "ida@example.test"))
    (account,) = fw.json("user", "list", "--json")
    assert account["name"] == "ida@example.test"
    again = fw.json("user", "invite", "IDA@example.test", "--json")
    assert LINK.fullmatch(again["link"] + "\n")
    assert (again["user"], again["email"]) == ("ida@example.test", "ida@example.test")
    assert again["expires"].endswith("Z")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("idda",), "Did you mean ida"),
        (("ida",), "already has a password: fw user passwd ida sets another"),
        (("new@example.test", "--role", "Sistem Manager"), "Did you mean System Manager"),
        (("ida", "--role", "Clerk"), "ida already has an account"),
        (("IDA@example.test", "--name", "other"), "already has an account"),
        (("notanaddress",), "A new account needs an e-mail address."),
    ],
)
def test_user_invite_explains_refusals(
    fw: CommandLine, args: tuple[str, ...], expected: str
) -> None:
    fw.done("user", "add", "ida", "--email", "ida@example.test", "--password-stdin", stdin=PASSWORD)
    assert expected in fw.refused("user", "invite", *args)
    assert "email" in fw.refused("user", "invite", "nobody", "--name", "other")
    assert len(fw.json("user", "list", "--json")) == 1


def test_user_role_adds_and_removes_roles(fw: CommandLine) -> None:
    """C-160."""
    fw.done("user", "add", "ida", "--email", "ida@example.test", "--role", "Event Publisher")
    fw.done("user", "add", "bob", "--email", "zoe@desk.test")
    assert fw.done("user", "role", "bob") == "bob: no roles\n"
    assert fw.done("user", "role", "ida") == "ida: Event Publisher\n"
    change = ("--add", "System Manager", "--remove", "Event Publisher", "--json")
    assert fw.json("user", "role", "IDA", *change) == {"user": "ida", "roles": ["System Manager"]}
    assert "last enabled" in fw.refused("user", "role", "ida", "--remove", "System Manager")
    assert "does not have" in fw.refused("user", "role", "ida", "--remove", "Event Publisher")
    assert "Did you mean" in fw.refused("user", "role", "ida", "--add", "Event Publishers")
    assert "Did you mean ida@example.test?" in fw.refused("user", "role", "iba@example.test")
    both = fw.run("user", "role", "ida", "--add", "System Manager", "--remove", "System Manager")
    assert both.exit_code == 2
    (event, *_) = fw.json("audit", "--action", "user.*", "--json")
    assert event["detail"]["roles_added"] == ["System Manager"]


INSERT = """
for n in range(3):
    fw.db.sql(
        "INSERT INTO fw_session (id, sid_hash, user, ip, created, last_seen, expires)"
        " VALUES (:id, :hash, 'ida', '192.0.2.7', 1, :n, 9000000000000)",
        {"id": f"s{n}", "hash": bytes([n]), "n": n},
    )
"""


def test_user_sessions_lists_and_ends_sessions(fw: CommandLine) -> None:
    fw.done("user", "add", "ida", "--email", "ida@example.test")
    fw.done("key", "create", "ida", "--label", "x")
    script = fw.folder / "insert.py"
    script.write_text(INSERT)
    fw.done("exec", str(script), "--commit")
    rows = fw.json("user", "sessions", "ida@example.test", "--json")
    assert set(rows[0]) == {"id", "ip", "userAgent", "created", "lastSeen", "expires"}
    assert rows[0]["created"] == "1970-01-01T00:00:00.001Z"
    assert [(row["id"], row["ip"]) for row in rows] == [(f"s{n}", "192.0.2.7") for n in (2, 1, 0)]
    assert fw.done("user", "sessions", "ida", "--end", "s1") == "ended 1 session of ida\n"
    assert "There is no such session" in fw.refused("user", "sessions", "ida", "--end", "s1")
    assert fw.json("user", "sessions", "ida", "--end-all", "--keys", "--json") == {
        "user": "ida", "sessionsEnded": 2, "keysEnded": 1,
    }  # fmt: skip
    assert fw.json("user", "sessions", "ida", "--json") == []
    events = fw.json("audit", "--action", "user.revoke_sessions", "--target", "ida", "--json")
    assert [(each["actor"], each["detail"]) for each in events] == [
        ("Administrator", {"sessions_ended": 2, "keys_ended": 1}),
        ("Administrator", {"sessions_ended": 1}),
    ]
    for options, message in (
        (("--keys",), "--keys requires --end-all."),
        (("--end", "s1", "--end-all"), "--end and --end-all exclude each other."),
    ):
        result = fw.run("user", "sessions", "ida", *options)
        assert (result.exit_code, message in result.stderr) == (2, True)


@pytest.mark.parametrize(
    "args",
    [("add", "bob", "--email", "bob@example.test", "--role"), ("role", "ann", "--add")],
)
def test_misspelt_role_is_answered_with_suggestion(fw: CommandLine, args: tuple[str, ...]) -> None:
    """C-157."""
    fw.done("user", "add", "ann", "--email", "ann@example.test")
    said = fw.refused("user", *args, "System Manger")
    assert said == "fw: There is no Role System Manger. Did you mean System Manager?\n"
