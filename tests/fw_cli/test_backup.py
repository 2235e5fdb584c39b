"""`fw backup` and its restore, on both stores (C-121, O-150, O-151)."""

from __future__ import annotations

import subprocess

import pytest

from tests.fw_cli.conftest import CommandLine
from tests.postgres_cluster import PostgresCluster

USER = ("user", "add", "ada", "--email", "ada@x.test", "--password-stdin")


def users(fw: CommandLine) -> list[str]:
    return [row["name"] for row in fw.json("user", "list", "--json")]


def test_backup_put_in_place_restores_its_moment(fw: CommandLine) -> None:
    fw.done(*USER, stdin="correct horse battery staple")
    assert "copy.db" in fw.done("backup", "copy.db")
    fw.done("user", "add", "later", "--email", "later@x.test")
    assert users(fw) == ["ada", "later"]
    for file in (fw.folder / "data").glob("fw.db*"):
        file.unlink()
    (fw.folder / "copy.db").rename(fw.folder / "data" / "fw.db")
    assert users(fw) == ["ada"]


def test_backup_requires_database_and_new_file(fw: CommandLine) -> None:
    assert "There is no database" in fw.refused("backup", "copy.db")
    assert not (fw.folder / "data").exists()
    fw.done("migrate")
    fw.done("backup", "copy.db")
    assert "already exists" in fw.refused("backup", "copy.db")


def test_backup_and_restore_use_postgresql_programs(
    fw: CommandLine, cluster: PostgresCluster
) -> None:
    with cluster.empty_database() as old, cluster.empty_database() as new:
        fw.environ.update(FW_DATABASE=old, PATH="/usr/bin:/bin")
        fw.done(*USER, stdin="correct horse battery staple")
        fw.done("backup", "copy.dump")
        fw.environ["FW_DATABASE"] = new
        restore = ["pg_restore", "--no-owner", "--exit-on-error", f"--dbname={new}", "copy.dump"]
        subprocess.run(restore, cwd=fw.folder, check=True, capture_output=True)
        assert users(fw) == ["ada"]
        fw.done("user", "add", "later", "--email", "later@x.test")
        nowhere = {"FW_DATABASE": "postgresql://x@127.0.0.1:1/none"}
        (line,) = fw.refused("backup", "no.dump", **nowhere).splitlines()
        assert line.startswith("fw: pg_dump: error: ")
        assert line.endswith("Connection refused")
        assert "which was not found" in fw.refused("backup", "no.dump", PATH="/nowhere")
    assert not (fw.folder / "no.dump").exists()


@pytest.mark.parametrize(
    ("program", "args", "said"),
    [
        (
            "pg_dump",
            ("backup", "no.dump"),
            "pg_dump: error: aborting because of server version mismatch\n"
            "pg_dump: detail: server version: 17.5; pg_dump version: 15.18",
        ),
        (
            "pg_restore",
            ("restore", "newer.dump", "--dry-run"),
            "pg_restore: error: unsupported version (1.16) in file header",
        ),
    ],
)
def test_outdated_postgresql_program_is_named_with_remedy(
    fw: CommandLine, program: str, args: tuple[str, ...], said: str
) -> None:
    """The program prints both versions; fw adds the package to install (O-151)."""
    tools = fw.folder / "tools"
    tools.mkdir()
    (tools / program).write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\nexit 1\n")
    (tools / program).chmod(0o755)
    (fw.folder / "newer.dump").write_bytes(b"PGDMP" + bytes(100))
    database = "postgresql://x:pw@127.0.0.1:1/none"
    lines = fw.refused(*args, FW_DATABASE=database, PATH=f"{tools}:/usr/bin:/bin").splitlines()
    assert [line.removeprefix("fw: ") for line in lines[:-1]] == said.splitlines()
    assert f"{tools / program} is too old: install the client programs" in lines[-1]


def test_pg_dump_inherits_no_secret_of_fw(fw: CommandLine) -> None:
    """Other programs get neither an app's credentials nor the key (C-84)."""
    tools = fw.folder / "tools"
    tools.mkdir()
    program = tools / "pg_dump"
    program.write_text(f"#!/bin/sh\nenv > {fw.folder}/seen\n")
    program.chmod(0o755)
    secrets = {"FW_SECRET_KEY": "a" * 40, "FW_SECRET_CRM": "b" * 40, "FW_SMTP_PASSWORD": "c" * 40}
    database = "postgresql://x:pw@127.0.0.1:1/none"
    fw.run("backup", "no.dump", FW_DATABASE=database, PATH=f"{tools}:/usr/bin:/bin", **secrets)
    seen = (fw.folder / "seen").read_text()
    assert "PGPASSWORD=pw" in seen
    assert "FW_" not in seen
