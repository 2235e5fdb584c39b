"""`user import` (C-162, C-163)."""

from __future__ import annotations

import hashlib
import json

import pytest

from fw_actors.access import users
from fw_actors.access.users import AccountToImport
from fw_actors.documents.handle import Fw
from fw_actors.errors import OverloadedError
from tests.fw_cli.conftest import CommandLine

HASH = f"pbkdf2:sha256:10$salt${hashlib.pbkdf2_hmac('sha256', b'password', b'salt', 10).hex()}"
ANN = {"name": "ann", "email": "ann@x.test", "fullName": "Ann A", "roles": ["Event Publisher"]}


def imported(fw: CommandLine, lines: list[object], *more: str, name: str = "in.jsonl") -> object:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (fw.folder / name).write_text(text + "\n")
    result = fw.run("user", "import", str(fw.folder / name), "--json", *more)
    assert "Traceback" not in result.stderr
    assert result.exit_code == (1 if json.loads(result.stdout)["refused"] else 0)
    return json.loads(result.stdout)


def names(fw: CommandLine) -> list[str]:
    return [row["name"] for row in fw.json("user", "list", "--json")]


def test_import_takes_hash_roles_and_state(fw: CommandLine) -> None:
    bob = {"name": "bob", "email": "bob@x.test", "enabled": False}
    output = imported(fw, [{**ANN, "hash": HASH}, "", bob])
    assert output == {
        "imported": 2, "known": 0, "without_password": 1, "refused": [], "dryRun": False,
    }  # fmt: skip
    ann, other = fw.json("user", "list", "--json")
    assert (ann["fullName"], ann["roles"], ann["enabled"]) == ("Ann A", ["Event Publisher"], True)
    assert other["enabled"] is False
    rows = fw.json("eval", "fw.db.sql('SELECT \"user\", hash FROM fw_password')")
    assert rows == [{"user": "ann", "hash": HASH}]
    events = fw.json("audit", "--action", "user.create", "--json")
    assert {event["actor"] for event in events} == {"Administrator"}
    assert fw.json("doctor", "--json")["sections"]["signIn"]["outdatedPasswordHashes"] == 1


def test_import_file_may_begin_with_a_byte_order_mark(fw: CommandLine) -> None:
    assert imported(fw, ["\ufeff" + json.dumps(ANN)]) == {
        "imported": 1, "known": 0, "without_password": 1, "refused": [], "dryRun": False,
    }  # fmt: skip


def test_repeated_import_skips_existing_accounts(fw: CommandLine) -> None:
    imported(fw, [ANN])
    again = imported(fw, [ANN, {"name": "bob", "email": "bob@x.test"}])
    assert isinstance(again, dict)
    assert (again["imported"], again["known"]) == (1, 1)


def test_refused_import_lines_keep_other_accounts(fw: CommandLine) -> None:
    lines: list[object] = [
        {**ANN, "hash": "md5$secret-hash"},
        {"name": "bob", "email": "bob@x.test"},
        "{",
        {"name": "cy"},
        {"name": "di", "email": "BOB@x.test"},
        {"name": "ed", "email": "ed@x.test", "roles": ["No Role"]},
        {"name": "flo", "email": "flo@x.test", "colour": 1},
    ]
    output = imported(fw, lines)
    assert isinstance(output, dict)
    assert [refusal["line"] for refusal in output["refused"]] == [1, 3, 4, 5, 6, 7]
    assert "secret-hash" not in json.dumps(output)
    assert names(fw) == ["bob"]


def test_import_ends_at_a_line_of_more_than_64_kib(fw: CommandLine) -> None:
    """It may be a file without lines, which must not be read whole."""
    known = json.dumps(ANN)
    (fw.folder / "in.jsonl").write_text(known + " " * (64 * 1024 - len(known) - 1) + "\n")
    assert fw.done("user", "import", "in.jsonl").startswith("imported 1 account\n")
    (fw.folder / "in.jsonl").write_text(f"{known}\n" + " " * (64 * 1024 + 1))
    refused = fw.refused("user", "import", "in.jsonl")
    assert refused == "fw: Line 2 has more than 64 KiB.\n"


def test_import_counts_the_accounts_that_it_skips(fw: CommandLine) -> None:
    imported(fw, [ANN])
    said = fw.done("user", "import", "in.jsonl")
    assert said.splitlines() == ["imported 0 accounts", "skipped 1 existing account"]


def test_dry_run_imports_no_account(fw: CommandLine) -> None:
    output = imported(fw, [ANN, {**ANN, "name": "x", "hash": "?"}], "--dry-run")
    assert isinstance(output, dict)
    assert (output["imported"], len(output["refused"]), output["dryRun"]) == (1, 1, True)
    assert names(fw) == []


def test_dry_run_finds_what_the_import_refuses(fw: CommandLine) -> None:
    """Also what differs from an account that is imported in an earlier transaction of 100."""
    lines: list[object] = [{"name": f"u{n}", "email": f"u{n}@x.test"} for n in range(100)]
    lines += [
        {"name": "u0", "email": "u0@x.test"},
        {"name": "U1", "email": "other@x.test"},
        {"name": "x", "email": "U2@x.test"},
        {"name": "u3@x.test", "email": "y@x.test"},
        {"name": "new", "email": "new@x.test"},
    ]
    tried = imported(fw, lines, "--dry-run")
    assert names(fw) == []
    done = imported(fw, lines)
    assert isinstance(tried, dict)
    assert isinstance(done, dict)
    assert tried == {**done, "dryRun": True}
    assert (done["imported"], done["known"]) == (101, 1)
    assert done["refused"] == [
        {"line": 102, "error": "Another account has this name."},
        {"line": 103, "error": "Another account has this email."},
        {"line": 104, "error": "Another account has this name."},
    ]


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_import_ends_when_the_store_fails(
    fw: CommandLine, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    """A lost connection is no fault of a line."""

    def fail(fw: Fw, account: AccountToImport) -> bool:
        raise OverloadedError("The connection to the database was lost.")

    monkeypatch.setattr(users, "import_account", fail)
    (fw.folder / "in.jsonl").write_text(json.dumps(ANN) + "\n")
    result = fw.run("user", "import", str(fw.folder / "in.jsonl"), *more)
    assert result.exit_code == 1
    assert "The connection to the database was lost." in result.stderr
    assert "Line 1" not in result.stdout + result.stderr


def test_csv_import_reads_columns_from_first_line(fw: CommandLine) -> None:
    lines: list[object] = [
        "name,email,fullName,roles,enabled,hash",
        f'ann,ann@x.test,"A, Ann",System Manager; Event Publisher,true,{HASH}',
        "bob,bob@x.test,,,no,",
        "cy,cy@x.test",
    ]
    output = imported(fw, lines, name="in.csv")
    assert isinstance(output, dict)
    assert [refusal["line"] for refusal in output["refused"]] == [4]
    ann, bob = fw.json("user", "list", "--json")
    assert (ann["fullName"], ann["roles"]) == ("A, Ann", ["System Manager", "Event Publisher"])
    assert (bob["enabled"], bob["roles"]) == (False, [])


def test_csv_import_refuses_unclear_states(fw: CommandLine) -> None:
    """A disabled account is never enabled because of another word for no."""
    states = ["FALSE", "no", "f", "off", "n", "0", "", "Yes", "t", "on", "y", "1", "true"]
    lines: list[object] = ["name,email,enabled"]
    lines += [f"u{n:02},u{n}@x.test,{state}" for n, state in enumerate(states)]
    lines += [f"x{n},x{n}@x.test,{state}" for n, state in enumerate(["disabled", "2", "-"])]
    output = imported(fw, lines, name="in.csv")
    assert isinstance(output, dict)
    assert [row["enabled"] for row in fw.json("user", "list", "--json")] == [False] * 6 + [True] * 7
    assert [refusal["line"] for refusal in output["refused"]] == [15, 16, 17]
    assert output["refused"][0]["error"] == "enabled must be true or false."


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"name,colour\n", "columns"),
        (b"name,fullName\n", "columns"),
        (b"email,hash\n", "columns"),
        (b"name,email,name\n", "occurs twice"),
        (b"\xff\xfe", "UTF-8"),
        (b'name,email\n"a\n', "not valid CSV"),
    ],
)
def test_unusable_csv_file_is_refused(fw: CommandLine, content: bytes, expected: str) -> None:
    file = fw.folder / "in.csv"
    file.write_bytes(content)
    assert expected in fw.refused("user", "import", str(file))
    assert "cannot be read" in fw.refused("user", "import", "none.csv")


def test_csv_lines_with_other_numbers_of_fields_are_refused(fw: CommandLine) -> None:
    """Whether a comma too many or too few, nothing is taken from another column (C-162)."""
    lines: list[object] = [
        "name,email,hash",
        "ann,ann@x.test",
        f"bob,bob@x.test,{HASH},x",
        "cy,cy@x.test,",
    ]
    output = imported(fw, lines, name="in.csv")
    assert isinstance(output, dict)
    assert [(each["line"], each["error"]) for each in output["refused"]] == [
        (line, "A line must have as many fields as the first one.") for line in (2, 3)
    ]
    assert names(fw) == ["cy"]


def test_import_table_names_refused_lines(fw: CommandLine) -> None:
    (fw.folder / "in.jsonl").write_text(json.dumps(ANN) + "\n{\n")
    result = fw.run("user", "import", str(fw.folder / "in.jsonl"))
    assert result.exit_code == 1
    assert "imported 1 account\nwithout a password: 1; fw user invite" in result.stdout
    assert "Line 2: " in result.stdout
    assert "1 line refused; the other accounts were imported" in result.stderr
