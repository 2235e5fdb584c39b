"""`fw backup` and its restore, on both stores (C-121, O-150, O-151)."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import tempfile
from typing import Any

import pytest

from tests.fw_cli.conftest import CommandLine
from tests.fw_cli.webhook_kit import make_hook
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


def test_backup_contains_queued_deliveries(fw: CommandLine) -> None:
    """O-152: the service that opens the restored store claims their jobs."""
    make_hook(fw, "https://receiver.test/")
    fw.done("webhooks", "emit", "a.b")
    fw.done("backup", "copy.db")
    for file in (fw.folder / "data").glob("fw.db*"):
        file.unlink()
    (fw.folder / "copy.db").rename(fw.folder / "data" / "fw.db")
    assert [row["status"] for row in fw.json("webhooks", "list", "--json")] == ["Queued"]
    assert {row["queue"]: row["ready"] for row in fw.json("jobs", "stats", "--json")} == {
        "webhook": 1, "mail": 0, "app": 0,
    }  # fmt: skip


def test_backup_requires_database_and_new_file(fw: CommandLine) -> None:
    assert "There is no database" in fw.refused("backup", "copy.db")
    assert not (fw.folder / "data").exists()
    fw.done("migrate")
    fw.done("backup", "copy.db")
    assert "already exists" in fw.refused("backup", "copy.db")


def test_backup_names_folder_in_which_sqlite_cannot_work(
    fw: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite only reports that it cannot open a file. Only root could mount one for the test."""
    fw.done("migrate")
    data, connect, temporary = fw.folder / "data", sqlite3.connect, tempfile.TemporaryFile

    def connected(database: str, *args: Any, **options: Any) -> Any:
        if "/data/" in database:
            raise sqlite3.OperationalError("unable to open database file")
        return connect(database, *args, **options)

    def made(*args: Any, **options: Any) -> Any:
        if options.get("dir") == data:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return temporary(*args, **options)

    monkeypatch.setattr(sqlite3, "connect", connected)
    monkeypatch.setattr(tempfile, "TemporaryFile", made)
    assert fw.refused("backup", "copy.db") == (
        f"fw: {data / 'fw.db'} cannot be copied: "
        f"SQLite needs files of its own in {data}: Read-only file system.\n"
    )
    assert not (fw.folder / "copy.db").exists()


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


def test_backup_leaves_out_schemas_of_other_accounts(
    fw: CommandLine, cluster: PostgresCluster
) -> None:
    """pg_dump fails at a table in a schema that it may not use (O-151)."""
    with cluster.owned_database() as url:
        with cluster.administered(url) as owner:
            owner.execute('CREATE SCHEMA "of Monitoring"')
            owner.execute('CREATE TABLE "of Monitoring".figures (n int)')
        fw.environ.update(FW_DATABASE=url, PATH="/usr/bin:/bin")
        fw.done(*USER, stdin="correct horse battery staple")
        fw.done("backup", "copy.dump")
        tables = fw.json("restore", "copy.dump", "--dry-run", "--json")["contents"]["tables"]
        assert "doc_user" in tables
        assert "figures" not in tables


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


SECRETS = {"FW_SECRET_KEY": "a" * 40, "FW_SECRET_CRM": "b" * 40, "FW_SMTP_PASSWORD": "c" * 40}


def recording_tool(fw: CommandLine, name: str) -> str:
    """Put a program that records its arguments, environment and service file first on a PATH."""
    tools = fw.folder / "tools"
    tools.mkdir()
    program = tools / name
    seen = f"{fw.folder}/seen"
    program.write_text(
        f'#!/bin/sh\necho "$@" >{seen}\nenv >>{seen}\n'
        f'test -z "$PGSERVICEFILE" || cat "$PGSERVICEFILE" >{fw.folder}/service\n'
    )
    program.chmod(0o755)
    return f"{tools}:/usr/bin:/bin"


def test_pg_dump_inherits_no_secret_of_fw(fw: CommandLine) -> None:
    """Other programs get neither an app's credentials nor the key (C-84)."""
    path = recording_tool(fw, "pg_dump")
    database = "postgresql://x:pw@127.0.0.1:1/none"
    fw.run("backup", "no.dump", FW_DATABASE=database, PATH=path, **SECRETS)
    seen = (fw.folder / "seen").read_text()
    assert "PGPASSWORD=pw" in seen
    assert "FW_" not in seen


def test_pg_restore_that_lists_a_dump_inherits_no_secret_of_fw(fw: CommandLine) -> None:
    """Nor does the one that only reads a file (C-84)."""
    path = recording_tool(fw, "pg_restore")
    (fw.folder / "a.dump").write_bytes(b"PGDMP" + bytes(100))
    database = "postgresql://x:pw@127.0.0.1:1/none"
    fw.run("restore", "a.dump", "--dry-run", FW_DATABASE=database, PATH=path, **SECRETS)
    seen = (fw.folder / "seen").read_text()
    assert "--list" in seen
    assert "FW_" not in seen


def test_pg_dump_has_no_secret_of_the_database_in_its_arguments(fw: CommandLine) -> None:
    """Every user of the machine sees these with `ps`; the key's password has no variable."""
    path = recording_tool(fw, "pg_dump")
    database = "postgresql://x:pw@127.0.0.1:1/none?sslpassword=of%20the%20key"
    fw.run("backup", "no.dump", FW_DATABASE=database, PATH=path)
    arguments = (fw.folder / "seen").read_text().splitlines()[0]
    assert "service=fw" in arguments
    assert "pw" not in arguments
    assert "of the key" not in arguments
    assert (fw.folder / "service").read_text() == "[fw]\nsslpassword=of the key\n"


def test_backup_of_a_database_with_a_service_and_sslpassword_is_refused(fw: CommandLine) -> None:
    """It would have to be in the arguments of pg_dump."""
    path = recording_tool(fw, "pg_dump")
    database = "postgresql://x@127.0.0.1:1/none?service=mine&sslpassword=secret"
    assert "in its file" in fw.refused("backup", "no.dump", FW_DATABASE=database, PATH=path)
    assert not (fw.folder / "seen").exists()
