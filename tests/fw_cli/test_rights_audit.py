"""Changes of rights on the command line leave an Audit Event each: docs/operating.md."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fw_cli.conftest import PASSWORD, CommandLine

OTHER = "another decent passphrase"
MANAGER = ("--role", "System Manager")


def events(fw: CommandLine) -> list[tuple[str, str, Any]]:
    """Return action, target and detail of the Audit Events, oldest first; all by Administrator."""
    fields = ["action", "target", "detail", "actor"]
    rows = fw.json("eval", f'fw.get_all("Audit Event", (), {fields}, "creation asc")')
    assert {row["actor"] for row in rows} <= {"Administrator"}
    return [(row["action"], row["target"], row["detail"]) for row in rows]


@pytest.fixture
def ann(fw: CommandLine) -> CommandLine:
    """A site with a System Manager and the account ann."""
    fw.done("user", "add", "boss", "--email", "b@example.test", *MANAGER)
    add = ("user", "add", "ann", "--email", "ann@example.test", "--password-stdin")
    fw.done(*add, stdin=PASSWORD + "\n")
    return fw


def test_new_account_leaves_one_audit_event(ann: CommandLine) -> None:
    assert events(ann) == [
        ("user.create", "boss", {"roles": ["System Manager"]}),
        ("user.create", "ann", {"roles": []}),
    ]


@pytest.mark.parametrize(
    ("command", "event"),
    [
        (("passwd", "ANN@example.test"), ("user.set_password", "ann", None)),
        (("unlock", "ANN@example.test"), ("user.unlock", "ann", None)),
        (("disable", "ann"), ("user.change", "ann", {"changed": ["enabled"], "enabled": False})),
    ],
)
def test_account_command_leaves_one_audit_event(
    ann: CommandLine, command: tuple[str, ...], event: tuple[str, str, Any]
) -> None:
    before = len(events(ann))
    stdin = OTHER + "\n" if command[0] == "passwd" else None
    more = ("--password-stdin",) if command[0] == "passwd" else ()
    ann.done("user", *command, *more, stdin=stdin)
    assert events(ann)[before:] == [event]


def test_repeated_enable_leaves_one_audit_event(ann: CommandLine) -> None:
    ann.done("user", "disable", "ann")
    before = len(events(ann))
    for _ in range(2):
        ann.done("user", "enable", "ann")
    assert events(ann)[before:] == [
        ("user.change", "ann", {"changed": ["enabled"], "enabled": True})
    ]


def test_eval_and_exec_leave_audit_events_on_commit(ann: CommandLine) -> None:
    before = len(events(ann))
    insert = 'fw.new_doc("Role", name="Clerk").insert()'
    ann.done("eval", insert)
    assert len(events(ann)) == before
    ann.done("eval", insert, "--commit")
    script = ann.folder / "promote.py"
    script.write_text(
        'ann = fw.get_doc("User", "ann")\n'
        'ann.roles = [{"role": "Clerk"}]\n'
        f'ann.new_password = "{OTHER}"\n'
        "ann.save()\n"
    )
    ann.done("exec", str(script), "--commit")
    assert events(ann)[before:] == [
        ("role.create", "Clerk", None),
        (
            "user.change",
            "ann",
            {"changed": ["new_password", "roles"], "roles_added": ["Clerk"]},
        ),
    ]


def test_refused_account_command_leaves_no_audit_event(ann: CommandLine) -> None:
    before = len(events(ann))
    ann.refused("user", "passwd", "ann", "--password-stdin", stdin="short\n")
    ann.refused("user", "unlock", "nobody")
    ann.refused("user", "disable", "boss")
    assert len(events(ann)) == before
