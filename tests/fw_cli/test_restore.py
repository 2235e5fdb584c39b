"""`fw restore` (C-166, C-167).

The module has more than 500 lines because all its tests are about one command.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import text as sql

from fw_actors.documents.fields import iso
from fw_actors.documents.handle import Fw
from fw_actors.ops.site import Site
from fw_actors.store import Tx
from fw_actors.store.migrations import FIRST_VERSION, STEPS
from fw_cli.context import CommandContext
from fw_cli.exclusive import service_stopped
from fw_cli.restoration import contents_of
from supervisors.service.background import RunState, status
from supervisors.service.site_files import (
    ServeLock,
    SitePaths,
    is_held,
    own_pid_file,
    registered,
    write,
)
from tests.fw_cli.conftest import LONG_QUERY, CommandLine
from tests.postgres_cluster import PostgresCluster

SESSION = (
    '[fw.db.sql("INSERT INTO fw_session (id, sid_hash, \\"user\\", created, last_seen, expires)'
    " VALUES (:id, :hash, 'ann', 1, 1, 9000000000000)\","
    " {'id': f's{n}', 'hash': bytes([n])}) for n in range(2)]"
)

NEWEST = FIRST_VERSION + len(STEPS)


def fill(fw: CommandLine) -> str:
    """Accounts ann and bob, two sessions of ann, two keys; return the second key's name."""
    for name in ("ann", "bob"):
        fw.done("user", "add", name, "--email", f"{name}@x.test")
    fw.done("eval", SESSION, "--commit")
    for label in ("kept", "revoked"):
        fw.done("key", "create", "ann", "--label", label)
    return str(fw.json("key", "list", "--json")[0]["name"])


def names(fw: CommandLine) -> list[str]:
    return [row["name"] for row in fw.json("user", "list", "--json")]


def data(fw: CommandLine) -> list[str]:
    return sorted(file.name for file in (fw.folder / "data").glob("fw.db*"))


def test_restore_ends_sessions_links_and_revoked_keys(fw: CommandLine) -> None:
    key = fill(fw)
    fw.done("backup", "copy.db")
    fw.done("key", "revoke", key, "--yes")
    fw.done("user", "disable", "bob")
    fw.done("user", "add", "later", "--email", "later@x.test")
    assert "--replace" in fw.refused("restore", "copy.db", "--yes")
    assert "--yes" in fw.refused("restore", "copy.db", "--replace")
    tried = fw.json("restore", "copy.db", "--dry-run", "--json")
    assert names(fw) == ["ann", "bob", "later"]
    assert (tried["kept"], tried["dryRun"]) == (None, True)
    report = fw.json("restore", "copy.db", "--replace", "--yes", "--json")
    contents = tried.pop("contents")
    assert (contents["documents"]["User"], contents["documents"]["API Key"]) == (2, 2)
    assert {**tried, "kept": 0, "dryRun": 0} == {**report, "kept": 0, "dryRun": 0}
    assert (report["sessionsEnded"], report["linksEnded"]) == (2, 2)
    assert (report["keysEnded"], report["keys"], report["usersRevived"]) == (1, 1, ["bob"])
    assert names(fw) == ["ann", "bob"]
    assert fw.json("eval", "fw.db.sql('SELECT id FROM fw_session')") == []
    assert [row["label"] for row in fw.json("key", "list", "--json")] == ["kept"]
    kept = Path(report["kept"])
    moment = datetime.strptime(kept.name, "fw.db.before-%Y%m%dT%H%M%S%z")
    assert abs(datetime.now(UTC) - moment) < timedelta(minutes=5)
    with closing(sqlite3.connect(kept)) as old:
        assert old.execute("SELECT count(*) FROM doc_user").fetchone() == (3,)
    assert data(fw) == ["fw.db", kept.name]
    (event,) = fw.json("audit", "--action", "site.restore", "--json")
    assert event["target"] == "copy.db"
    assert event["detail"] == {"sessions_ended": 2, "keys_ended": 1}
    assert fw.json("audit", "--action", "api_key.delete", "--json") == []


def test_restore_ends_revoked_keys_however_long_they_are_read(
    fw: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-167: the time limit of queries protects the service, which is stopped; a read that it
    ended would look like a damaged store, and the revoked key would be valid again."""
    key = fill(fw)
    fw.done("backup", "copy.db")
    fw.done("key", "revoke", key, "--yes")
    (fw.folder / "fw.json").write_text('{"ops": {"queryTimeoutSeconds": 0.1}}')
    connect: Any = sqlite3.connect

    def slow(database: object, **given: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(database, **given)
        if "/fw.db?mode=rw" in str(database):
            connection.execute(LONG_QUERY)
        return connection

    monkeypatch.setattr(sqlite3, "connect", slow)
    report = fw.json("restore", "copy.db", "--replace", "--yes", "--json")
    assert (report["keysEnded"], report["keys"]) == (1, 1)


def set_version(file: Path, version: int) -> None:
    """Make a store one that another version has used."""
    with closing(sqlite3.connect(file, isolation_level=None)) as store:
        store.execute("UPDATE fw_meta SET value = ? WHERE key = 'schema_version'", [str(version)])


def version_of(file: Path) -> str:
    with closing(sqlite3.connect(file)) as store:
        (found,) = store.execute("SELECT value FROM fw_meta WHERE key = 'schema_version'")
    return str(found[0])


@pytest.mark.parametrize("args", [("--dry-run",), ("--replace", "--yes")])
def test_restore_migrates_no_present_store(fw: CommandLine, args: tuple[str, ...]) -> None:
    """C-166: it may be the store of a service of an older version, which must open it again; so
    must the store that is kept."""
    fill(fw)
    fw.done("backup", "copy.db")
    present = fw.folder / "data" / "fw.db"
    set_version(present, NEWEST - 1)
    with closing(sqlite3.connect(present, isolation_level=None)) as store:
        store.execute("DROP INDEX fw_login_attempt_until")  # of the last step
    report = fw.json("restore", "copy.db", *args, "--json")
    kept = Path(report["kept"]) if report["kept"] else present
    assert version_of(kept) == str(NEWEST - 1)


def test_restore_ends_keys_that_a_newer_version_has_revoked(fw: CommandLine) -> None:
    """C-167: a restore is the way back from a newer version, whose store this one does not open."""
    key = fill(fw)
    fw.done("backup", "copy.db")
    fw.done("key", "revoke", key, "--yes")
    fw.done("user", "disable", "bob")
    set_version(fw.folder / "data" / "fw.db", NEWEST + 1)
    assert "a newer program has used it" in fw.refused("user", "list")
    report = fw.json("restore", "copy.db", "--replace", "--yes", "--json")
    assert (report["keysEnded"], report["keys"], report["usersRevived"]) == (1, 1, ["bob"])


def test_restore_prints_access_and_work_that_it_revives(fw: CommandLine) -> None:
    """An operator has to disable accounts again, and the backup's jobs run (C-167)."""
    fill(fw)
    fw.done("webhooks", "add", "https://x.example/", "--event", "a.b")
    fw.done("webhooks", "emit", "a.b")
    fw.done("backup", "copy.db")
    fw.done("user", "disable", "bob")
    tried = fw.done("restore", "copy.db", "--dry-run").splitlines()
    [kept] = [line for line in tried if "API key" in line and "can be used" in line]
    assert kept == "2 API keys of the backup can be used; fw key list shows them"
    said = fw.done("restore", "copy.db", "--replace", "--yes", "--end-keys").splitlines()
    assert said[1:-1] == [
        "ended 2 sessions, 2 links and 2 API keys",
        "enabled again, though disabled or deleted later: bob; disable them again",
        "the service will run these jobs, some of them again: webhook 1, mail 0, app 0",
        "passwords, roles and Webhooks are those of the backup",
    ]
    assert said[-1].startswith("the replaced store is kept: ")


def test_restore_prints_bulk_replay_that_it_revives(fw: CommandLine) -> None:
    """It sends old events again, although it may have ended since the backup (C-167)."""
    row = "'4b0c', 'ann', '', '[]', 'msg_9', '', 'running', 400, 120, '{}', '', 1, NULL"
    columns = (
        'id, "user", request_id, filters, last, cursor, state, total, replayed, reasons, error, '
        "begun, ended"
    )
    statement = f"INSERT INTO fw_bulk_replay ({columns}) VALUES ({row})"
    fw.done("eval", f"fw.db.sql({statement!r})", "--commit")
    fw.done("backup", "copy.db")
    assert fw.json("restore", "copy.db", "--dry-run", "--json")["replay"] == "4b0c"
    said = fw.done("restore", "copy.db", "--replace", "--yes").splitlines()
    assert said[2] == (
        "the service will continue the bulk replay 4b0c of ann after 120 of 400 deliveries; "
        "fw webhooks replays shows it"
    )


def test_restore_counts_only_sessions_and_links_that_were_usable(fw: CommandLine) -> None:
    """Used links and what has expired are deleted too, and no access ends with them."""
    fill(fw)
    fw.done("user", "add", "cy", "--email", "cy@x.test")
    change = "[fw.db.sql(each) for each in ({}, {}, {})]".format(
        "'UPDATE fw_session SET expires = 1 WHERE id = \"s0\"'",
        "'UPDATE fw_token SET spent = 1 WHERE user = \"ann\"'",
        "'UPDATE fw_token SET expires = 1 WHERE user = \"bob\"'",
    )
    fw.done("eval", change, "--commit")
    fw.done("backup", "copy.db")
    report = fw.json("restore", "copy.db", "--replace", "--yes", "--json")
    assert (report["sessionsEnded"], report["linksEnded"]) == (1, 1)


def test_restore_warns_of_secrets_of_another_key(fw: CommandLine) -> None:
    fw.done("webhooks", "add", "https://x.example/", "--event", "a.b")
    fw.done("backup", "copy.db")
    assert fw.run("restore", "copy.db", "--dry-run").stderr == ""
    tried = fw.run("restore", "copy.db", "--dry-run", FW_SECRET_KEY="another key of this site")
    assert tried.stderr.startswith("warning: 1 of the values in Webhook, field secret")


def test_restore_refuses_a_backup_of_another_kind_of_store(fw: CommandLine) -> None:
    (fw.folder / "copy.dump").write_bytes(b"PGDMP" + bytes(100))
    refused = fw.refused("restore", "copy.dump", "--yes")
    assert "is a backup of postgresql, but FW_DATABASE is sqlite" in refused


def test_interrupt_during_the_replacement_comes_too_late(
    fw: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-167: the command completes, and reports what was replaced and who can sign in again."""
    fill(fw)
    fw.done("backup", "copy.db")
    rename = os.rename

    def interrupted(source: Any, target: Any) -> None:
        rename(source, target)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(os, "rename", interrupted)
    assert "the replaced store is kept" in fw.done("restore", "copy.db", "--replace", "--yes")


def test_dry_run_lists_contents_of_backup(fw: CommandLine) -> None:
    fill(fw)
    fw.done("webhooks", "add", "https://x.example/", "--event", "a.b")
    fw.done("user", "add", "boss", "--email", "boss@x.test", "--role", "System Manager")
    fw.done("backup", "copy.db")
    fw.done("user", "add", "later", "--email", "later@x.test")
    lines = fw.done("restore", "copy.db", "--dry-run").splitlines()
    assert re.fullmatch(r"schema version \d+; newest change: 20\S+Z", lines[0])
    assert lines[1].startswith("User: 3, Webhook: 1, Webhook Delivery: 0, API Key: 2, ")
    assert "is intact; nothing was replaced" in lines[2]
    assert "Has Role" not in lines[1], "rows of a table belong to their document"
    contents = fw.json("restore", "copy.db", "--dry-run", "--json")["contents"]
    newest = "fw.db.sql('SELECT max(modified) AS n FROM doc_webhook')"
    assert iso(fw.json("eval", newest)[0]["n"]) <= contents["newest"]
    assert contents["schemaVersion"] >= 1


def test_restore_of_new_site_requires_no_replace(fw: CommandLine, tmp_path: Path) -> None:
    fill(fw)
    fw.done("backup", "copy.db")
    for file in (fw.folder / "data").glob("fw.db*"):
        file.unlink()
    output = fw.done("restore", "copy.db", "--yes", "--end-keys")
    assert "ended 2 sessions, 2 links and 2 API keys" in output
    assert "kept" not in output
    assert names(fw) == ["ann", "bob"]


def leave_log_alone(fw: CommandLine) -> None:
    """Delete the store of a killed service, whose log has the account `later`, without the log."""
    database, log = fw.folder / "data" / "fw.db", fw.folder / "data" / "fw.db-wal"
    with closing(sqlite3.connect(database)) as other:
        other.execute("SELECT count(*) FROM doc_user").fetchone()  # so that the log stays
        fw.done("user", "add", "later", "--email", "later@x.test")
        left = log.read_bytes()
    database.unlink()
    log.write_bytes(left)


@pytest.mark.parametrize("deleted", [False, True])
def test_restore_by_root_keeps_owner_of_store(fw: CommandLine, deleted: bool) -> None:
    """The service, which runs as another user, could not open the store (C-166)."""
    fill(fw)
    fw.done("backup", "copy.db")
    store = fw.folder / "data" / "fw.db"
    # Only root gives files to others; another user's restore keeps them its own.
    owner = (12_345, 12_346) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    for file in (store, store.parent):
        os.chown(file, *owner)
    if deleted:
        store.unlink()
    fw.done("restore", "copy.db", "--replace", "--yes")
    restored = store.stat()
    assert (restored.st_uid, restored.st_gid) == owner


def test_restore_ignores_log_of_deleted_store(fw: CommandLine) -> None:
    """C-166, C-167: SQLite would write it over the restored store, with all that has ended."""
    fill(fw)
    fw.done("backup", "copy.db")
    leave_log_alone(fw)
    fw.done("restore", "copy.db", "--yes", "--end-keys")
    assert names(fw) == ["ann", "bob"]
    assert fw.json("key", "list", "--json") == []


def test_command_creates_no_store_beside_log_of_another(fw: CommandLine) -> None:
    """O-25: SQLite would delete the log, and with it what a store that is moved back has last
    committed."""
    fill(fw)
    leave_log_alone(fw)
    output = fw.refused("user", "list")
    assert "fw.db is missing, but its log fw.db-wal is there" in output
    report = json.loads(fw.run("doctor", "--json").stdout)
    assert "is missing" in report["sections"]["database"]["problems"][0]
    assert data(fw) == ["fw.db-wal"]


def test_restore_refuses_running_service(fw: CommandLine) -> None:
    fw.done("migrate")
    fw.done("backup", "copy.db")
    with ServeLock(SitePaths(fw.folder).lock) as lock:
        assert lock.acquire()
        assert "fw stop" in fw.refused("restore", "copy.db", "--replace", "--yes")
        assert "is intact" in fw.done("restore", "copy.db", "--dry-run")


def test_command_that_holds_lock_is_no_running_service(fw: CommandLine) -> None:
    """A killed service has left its pid file, which `fw start` and `fw status` would believe."""
    paths = SitePaths(fw.folder)
    paths.prepare()
    write(paths.pid, own_pid_file("1.0", "http://127.0.0.1:1"))
    with service_stopped(CommandContext(fw.environ, fw.folder), "a test"):
        assert status(paths).state is RunState.STARTING


def test_command_outlasts_brief_check_of_lock(
    fw: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fw status` takes the lock for a moment: that is no running service."""
    paths = SitePaths(fw.folder)
    paths.prepare()
    with ServeLock(paths.lock) as check:
        assert check.acquire()
        monkeypatch.setattr("time.sleep", lambda _seconds: check.release())
        with service_stopped(CommandContext(fw.environ, fw.folder), "a test"):
            assert not check.held


def test_command_locks_site_without_data_folder(fw: CommandLine) -> None:
    """A backup may be the first content of a new site."""
    paths = SitePaths(fw.folder)
    assert not paths.data.exists()
    with service_stopped(CommandContext(fw.environ, fw.folder), "a test"):
        assert is_held(paths.lock)


def test_restore_and_rekey_refuse_registered_worker(fw: CommandLine) -> None:
    """O-326: a worker that has no connection at the moment opens one for its next claim."""
    fw.done("migrate")
    fw.done("backup", "copy.db")
    with registered(SitePaths(fw.folder), "1.0", None):
        for command in (
            ["restore", "copy.db", "--replace", "--yes"],
            ["vault", "rekey", "--no-backup"],
        ):
            output = fw.refused(*command)
            assert f"are running (process {os.getpid()}): stop every worker before" in output


def test_restore_detects_worker_by_its_connection(fw: CommandLine) -> None:
    fw.done("migrate")
    fw.done("backup", "copy.db")
    with closing(sqlite3.connect(fw.folder / "data" / "fw.db")) as worker:
        worker.execute("SELECT count(*) FROM doc_user").fetchone()
        output = fw.refused("restore", "copy.db", "--replace", "--yes")
        assert "stop every worker" in output
    assert "restoring" not in str(data(fw))


def broken(fw: CommandLine) -> None:
    whole = (fw.folder / "copy.db").read_bytes()
    (fw.folder / "bad.db").write_bytes(whole[:8192] + bytes(8192) + whole[16384:])


def foreign(fw: CommandLine) -> None:
    with closing(sqlite3.connect(fw.folder / "bad.db", isolation_level=None)) as other:
        other.execute("CREATE TABLE a (b)")


def newer(fw: CommandLine) -> None:
    (fw.folder / "bad.db").write_bytes((fw.folder / "copy.db").read_bytes())
    with closing(sqlite3.connect(fw.folder / "bad.db", isolation_level=None)) as backup:
        backup.execute("UPDATE fw_meta SET value = '999' WHERE key = 'schema_version'")


def text(fw: CommandLine) -> None:
    (fw.folder / "bad.db").write_text("no database")


def dump(fw: CommandLine) -> None:
    (fw.folder / "bad.db").write_bytes(b"PGDMP" + bytes(100))


@pytest.mark.parametrize("make", [broken, foreign, newer, text, dump])
def test_restore_of_unusable_backup_keeps_site(fw: CommandLine, make: object) -> None:
    fw.done("user", "add", "ann", "--email", "ann@x.test")
    fw.done("backup", "copy.db")
    assert callable(make)
    make(fw)
    assert fw.refused("restore", "bad.db", "--replace", "--yes")
    assert names(fw) == ["ann"]
    assert set(data(fw)) <= {"fw.db", "fw.db-shm", "fw.db-wal"}


def test_restore_replaces_damaged_store(fw: CommandLine) -> None:
    fw.done("user", "add", "ann", "--email", "ann@x.test")
    fw.done("backup", "copy.db")
    for file in (fw.folder / "data").glob("fw.db-*"):
        file.unlink()
    (fw.folder / "data" / "fw.db").write_bytes(b"SQLite format 3\0" + bytes(5000))
    ran = fw.run("restore", "copy.db", "--replace", "--yes", "--json")
    assert ran.exit_code == 0
    assert "--end-keys ends all" in ran.stderr  # which were revoked since is unknown (C-167)
    assert json.loads(ran.stdout)["usersRevived"] == []
    assert names(fw) == ["ann"]


def test_restore_that_ends_all_keys_needs_no_access_of_damaged_store(fw: CommandLine) -> None:
    """C-167: a warning to use the option that was given would be misleading."""
    fw.done("user", "add", "ann", "--email", "ann@x.test")
    fw.done("backup", "copy.db")
    for file in (fw.folder / "data").glob("fw.db-*"):
        file.unlink()
    (fw.folder / "data" / "fw.db").write_bytes(b"SQLite format 3\0" + bytes(5000))
    assert "kept" in fw.done("restore", "copy.db", "--replace", "--end-keys", "--yes")


@pytest.mark.parametrize("args", [("--dry-run",), ("--replace", "--yes")])
def test_restored_store_is_read_without_time_limit(
    fw: CommandLine, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    """C-166: the number of documents in a large backup, for example, takes long to count."""
    fill(fw)
    fw.done("backup", "copy.db")
    (fw.folder / "fw.json").write_text('{"ops": {"queryTimeoutSeconds": 0.1}}')

    def slow(site: Site, handle: Fw) -> dict[str, Any]:
        handle.tx.scalar(sql(LONG_QUERY))
        return contents_of(site, handle)

    def slow_values(tx: Tx, _registry: object, _doctype: str, field: str, *_: Any) -> list[Any]:
        if field == "secret":
            tx.scalar(sql(LONG_QUERY))
        return []

    monkeypatch.setattr("fw_cli.restoration.contents_of", slow)
    monkeypatch.setattr("fw_actors.ops.stored_secrets.stored_values", slow_values)
    assert fw.json("restore", "copy.db", *args, "--json")["keys"] == 2


def test_ctrl_c_while_old_store_is_read_ends_restore(
    fw: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no damaged store, whose API keys would all end."""
    key = fill(fw)
    fw.done("backup", "copy.db")

    def interrupt(config: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr("fw_cli.restoration.access_of_replaced_store", interrupt)
    assert "Aborted" in fw.refused("restore", "copy.db", "--replace", "--yes")
    assert fw.json("key", "list", "--json")[0]["name"] == key
    assert set(data(fw)) <= {"fw.db", "fw.db-shm", "fw.db-wal"}


def test_killed_restore_leaves_old_or_new_store(
    fw: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At no moment is there no store: the next command would create an empty one."""
    fw.done("user", "add", "ann", "--email", "ann@x.test")
    fw.done("backup", "copy.db")
    database = fw.folder / "data" / "fw.db"
    renamed, present = os.rename, []

    def rename(*names: Any) -> None:
        renamed(*names)
        present.append(database.is_file())

    monkeypatch.setattr(os, "rename", rename)
    report = fw.json("restore", "copy.db", "--replace", "--yes", "--json")
    assert all(present)
    assert Path(report["kept"]).is_file()
    assert names(fw) == ["ann"]


def test_restore_of_dump_keeps_old_schema(fw: CommandLine, cluster: PostgresCluster) -> None:
    with cluster.empty_database() as url:
        fw.environ.update(FW_DATABASE=url, PATH="/usr/bin:/bin")
        key = fill(fw)
        fw.done("backup", "copy.dump")
        fw.done("key", "revoke", key, "--yes")
        fw.done("user", "add", "later", "--email", "later@x.test")
        output = fw.done("restore", "copy.dump", "--dry-run")
        assert "can be restored" in output
        assert re.match(r"dumped at 20\d\d-\S+ .+ from PostgreSQL \d", output), output
        assert (
            "doc_user"
            in fw.json("restore", "copy.dump", "--dry-run", "--json")["contents"]["tables"]
        )
        (fw.folder / "bad.dump").write_bytes((fw.folder / "copy.dump").read_bytes()[:9000])
        assert fw.refused("restore", "bad.dump", "--replace", "--yes")
        assert names(fw) == ["ann", "bob", "later"]
        output = fw.json("restore", "copy.dump", "--replace", "--yes", "--json")
        assert (output["sessionsEnded"], output["keysEnded"], output["keys"]) == (2, 1, 1)
        assert names(fw) == ["ann", "bob"]
        schema = output["kept"].removeprefix("schema ")
        counted = f"fw.db.sql('SELECT count(*) AS n FROM {schema}.doc_user')"
        assert fw.json("eval", counted) == [{"n": 3}]
        earlier = "before_20200131t235959z"
        rename = f"fw.db.sql('ALTER SCHEMA {schema} RENAME TO {earlier}')"
        fw.done("eval", rename, "--commit")
        fw.done("backup", "again.dump")
        fw.done("user", "add", "last", "--email", "last@x.test")
        fw.done("restore", "again.dump", "--replace", "--yes")
        assert names(fw) == ["ann", "bob"]
        assert fw.json("eval", counted.replace(schema, earlier)) == [{"n": 3}]
        assert "is sqlite" in fw.refused("restore", "copy.dump", "--yes", FW_DATABASE="sqlite:///a")


MOMENTS = {"before the dump is restored": "", "after it": '/usr/bin/pg_restore "$@"'}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_restore_of_dump_is_undone_by_the_next(
    fw: CommandLine, cluster: PostgresCluster, moment: str
) -> None:
    """Half a restore is opened by no command; the next restore ends what the former store had
    ended (C-166, C-167)."""
    with cluster.empty_database() as url:
        fw.environ.update(FW_DATABASE=url, PATH="/usr/bin:/bin")
        key = fill(fw)
        fw.done("backup", "copy.dump")
        fw.done("key", "revoke", key, "--yes")
        fw.done("user", "add", "later", "--email", "later@x.test")
        kill_restore(fw, "copy.dump", "--replace", moment=moment)
        expected = "The restore of a backup was interrupted: run `fw restore FILE --replace`"
        for command in (["user", "list"], ["serve"], ["worker"], ["backup", "half.dump"]):
            assert expected in fw.refused(*command)
        assert "--replace" in fw.refused("restore", "copy.dump", "--yes")
        (fw.folder / "bad.dump").write_bytes((fw.folder / "copy.dump").read_bytes()[:9000])
        bad = fw.refused("restore", "bad.dump", "--replace", "--yes")
        assert "fw: an interrupted restore was undone: schema before_" in bad
        assert names(fw) == ["ann", "bob", "later"]
        kill_restore(fw, "copy.dump", "--replace", moment=moment)
        again = fw.run("restore", "copy.dump", "--replace", "--yes", "--json")
        assert again.exit_code == 0, again.output
        assert json.loads(again.stdout)["keysEnded"] == 1
        assert names(fw) == ["ann", "bob"]
        schemas = fw.json("eval", SCHEMAS)
        assert [row["name"] for row in schemas] == [
            json.loads(again.stdout)["kept"].removeprefix("schema ")
        ]
        fw.done("backup", "again.dump")


SCHEMAS = "fw.db.sql(\"SELECT nspname AS name FROM pg_namespace WHERE nspname LIKE 'before%'\")"


def kill_restore(fw: CommandLine, *args: str, moment: str) -> None:
    """Kill `fw restore` at a moment of its pg_restore."""
    put_pg_restore(fw, f"{MOMENTS[moment]}\nkill -9 $PPID")
    programs = fw.folder / "programs"
    begun = CommandLine(fw.folder, {**fw.environ, "PATH": f"{programs}:/usr/bin:/bin"})
    with begun.process("restore", *args, "--yes") as killed:
        output = killed.communicate()
    assert killed.returncode == -signal.SIGKILL, output


def put_pg_restore(fw: CommandLine, commands: str) -> None:
    """Put a pg_restore into the folder `programs` that runs `commands` instead of restoring."""
    programs = fw.folder / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "pg_restore").write_text(
        f"""#!/bin/sh
case $1 in --list) exec /usr/bin/pg_restore "$@";; esac
{commands}
"""
    )
    (programs / "pg_restore").chmod(0o700)


def test_killed_restore_into_empty_database_leaves_nothing(
    fw: CommandLine, cluster: PostgresCluster
) -> None:
    with cluster.empty_database() as url:
        fw.environ.update(FW_DATABASE=url, PATH="/usr/bin:/bin")
        fill(fw)
        fw.done("backup", "copy.dump")
    with cluster.empty_database() as url:
        fw.environ.update(FW_DATABASE=url)
        kill_restore(fw, "copy.dump", moment="after it")
        assert "was interrupted" in fw.refused("user", "list")
        report = fw.json("restore", "copy.dump", "--yes", "--json", "--end-keys")
        assert (report["sessionsEnded"], report["keysEnded"], report["kept"]) == (2, 2, None)
        assert names(fw) == ["ann", "bob"]
        assert fw.json("eval", SCHEMAS) == []


def test_killed_restore_of_another_schema_stops_no_site(
    fw: CommandLine, cluster: PostgresCluster
) -> None:
    """A site is in the first schema of its search path; the others may belong to other sites."""
    with cluster.empty_database() as url:
        with psycopg.connect(url) as owner:
            owner.execute("CREATE SCHEMA own")
        own = {"FW_DATABASE": url.replace("%3Dpublic", "%3Down")}
        fw.done("user", "add", "cy", "--email", "cy@x.test", **own)
        fw.environ.update(FW_DATABASE=url, PATH="/usr/bin:/bin")
        fill(fw)
        fw.done("backup", "copy.dump")
        with psycopg.connect(url) as owner:
            owner.execute("CREATE TABLE fw_restoring AS SELECT 'before_a' AS kept")
        assert "was interrupted" in fw.refused("user", "list")
        both = {"FW_DATABASE": url.replace("%3Dpublic", "%3Down,public")}
        assert [row["name"] for row in json.loads(fw.done("user", "list", "--json", **both))] == [
            "cy"
        ]
        fw.done("backup", "own.dump", **both)


def test_restore_of_dump_takes_schema_of_another_name(
    fw: CommandLine, cluster: PostgresCluster
) -> None:
    """Such as that of its role: the dump has a statement that makes it."""
    with cluster.empty_database() as url:
        with psycopg.connect(url) as owner:
            owner.execute('CREATE SCHEMA "my Site"')
        mine = url.replace("search_path%3Dpublic", "search_path%3D%22my%5C%20Site%22")
        fw.environ.update(FW_DATABASE=mine, PATH="/usr/bin:/bin")
        fill(fw)
        fw.done("backup", "copy.dump")
        fw.done("user", "add", "later", "--email", "later@x.test")
        fw.done("restore", "copy.dump", "--replace", "--yes")
        assert names(fw) == ["ann", "bob"]


def test_restore_keeps_tables_of_another_program(fw: CommandLine, cluster: PostgresCluster) -> None:
    """A failed restore into a schema without a site drops all that is in it."""
    with cluster.empty_database() as url:
        fw.environ.update(FW_DATABASE=url, PATH="/usr/bin:/bin")
        fill(fw)
        fw.done("backup", "copy.dump")
    (fw.folder / "bad.dump").write_bytes((fw.folder / "copy.dump").read_bytes()[:-9000])
    with cluster.empty_database() as url, psycopg.connect(url, autocommit=True) as other:
        other.execute("CREATE TABLE doc_user (id int)")
        fw.environ.update(FW_DATABASE=url)
        other.close()
        assert "tables, but no site" in fw.refused("restore", "copy.dump", "--yes")
        assert "tables, but no site" in fw.refused("restore", "bad.dump", "--yes")
        with psycopg.connect(url) as again:
            assert again.execute("SELECT count(*) FROM doc_user").fetchone() == (0,)


@pytest.fixture
def owned(fw: CommandLine, cluster: PostgresCluster) -> Iterator[str]:
    """The URL of a database that belongs to the service's account, which has no other rights."""
    with cluster.owned_database() as url:
        fw.environ.update(FW_DATABASE=url, PATH="/usr/bin:/bin")
        yield url


AS_IN_14 = "ALTER SCHEMA public OWNER TO postgres; GRANT ALL ON SCHEMA public TO PUBLIC"


def test_restore_of_dump_needs_no_ownership_of_schema(
    fw: CommandLine, cluster: PostgresCluster, owned: str
) -> None:
    """`public` belongs to the server's owner in databases of PostgreSQL 14, also after
    `pg_upgrade` (C-166)."""
    with cluster.administered(owned) as owner:
        owner.execute(AS_IN_14)
    fill(fw)
    fw.done("backup", "copy.dump")
    fw.done("user", "add", "later", "--email", "later@x.test")
    fw.done("restore", "copy.dump", "--replace", "--yes")
    assert names(fw) == ["ann", "bob"]


def test_failed_restore_into_schema_of_another_account_leaves_nothing(
    fw: CommandLine, cluster: PostgresCluster, owned: str
) -> None:
    """Every command would otherwise refuse the store, also the next restore (C-166)."""
    fill(fw)
    with cluster.administered(owned) as owner:
        owner.execute("CREATE EXTENSION pg_stat_statements")
    fw.done("backup", "copy.dump")
    with cluster.owned_database() as empty:
        with cluster.administered(empty) as owner:
            owner.execute(AS_IN_14)
        fw.environ.update(FW_DATABASE=empty)
        assert "permission denied" in fw.refused("restore", "copy.dump", "--yes")
        with psycopg.connect(empty) as connection:
            tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
            assert connection.execute(tables).fetchone() == (0,)


def test_restore_of_dump_leaves_extensions_of_the_server(
    fw: CommandLine, cluster: PostgresCluster, owned: str
) -> None:
    """Only a superuser may create or comment on an extension such as pg_stat_statements, which
    monitoring uses. It stays in its schema (C-166, O-151)."""
    with cluster.administered(owned) as owner:
        owner.execute("CREATE EXTENSION pg_stat_statements")
    fill(fw)
    fw.done("backup", "copy.dump")
    kept = fw.json("restore", "copy.dump", "--replace", "--yes", "--json")["kept"]
    fw.done("eval", f"fw.db.sql('DROP {kept} CASCADE')", "--commit")
    with cluster.administered(owned) as owner:
        place = (
            "SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname LIKE 'pg_%'"
        )
        assert owner.execute(place).fetchall() == [("public",)]
    assert names(fw) == ["ann", "bob"]


def test_restore_of_dump_leaves_other_schemas(
    fw: CommandLine, cluster: PostgresCluster, owned: str
) -> None:
    """A dump has all schemas of the database; those that exist are left as they are (C-166)."""
    with cluster.administered(owned) as owner:
        owner.execute("CREATE SCHEMA other; COMMENT ON SCHEMA other IS 'of an administrator'")
        owner.execute("CREATE TABLE other.one AS SELECT 1 AS n")
        owner.execute("GRANT USAGE ON SCHEMA other TO PUBLIC; GRANT SELECT ON other.one TO PUBLIC")
        fill(fw)
        fw.done("backup", "copy.dump")
        owner.execute("UPDATE other.one SET n = 2")
        owner.close()
    fw.done("restore", "copy.dump", "--replace", "--yes")
    assert names(fw) == ["ann", "bob"]
    assert fw.json("eval", "fw.db.sql('SELECT n FROM other.one')") == [{"n": 2}]


def test_restore_of_dump_leaves_publications(
    fw: CommandLine, cluster: PostgresCluster, owned: str
) -> None:
    """Only a superuser may create one of all tables (C-166)."""
    fill(fw)
    with cluster.administered(owned) as owner:
        owner.execute("SET client_min_messages = error; CREATE PUBLICATION changes FOR ALL TABLES")
    fw.done("backup", "copy.dump")
    fw.done("restore", "copy.dump", "--replace", "--yes")
    assert names(fw) == ["ann", "bob"]


def test_restore_of_dump_keeps_rights_of_other_accounts(
    fw: CommandLine, cluster: PostgresCluster, owned: str
) -> None:
    """An account that reads a table for reports still reads it after a restore (C-166)."""
    fill(fw)
    with cluster.administered(owned) as owner:
        owner.execute("ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO PUBLIC")
    fw.done("eval", "fw.db.sql('GRANT SELECT ON doc_user TO PUBLIC')", "--commit")
    fw.done("backup", "copy.dump")
    fw.done("restore", "copy.dump", "--replace", "--yes")
    with cluster.owned_database() as other:
        account = conninfo_to_dict(other)["user"]
        with psycopg.connect(owned, user=account) as reader:
            assert reader.execute("SELECT count(*) FROM doc_user").fetchone() == (2,)


OBJECTS_OF_AN_APP = """
CREATE EXTENSION pg_trgm;
CREATE INDEX names_of_users ON doc_user USING gin (name gin_trgm_ops);
CREATE TYPE mood AS ENUM ('good', 'bad');
CREATE TYPE pair AS (first int, second mood);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE "My Table" (
    id serial PRIMARY KEY, n int GENERATED ALWAYS AS IDENTITY, m mood, p positive
);
INSERT INTO "My Table" (m, p) VALUES ('good', 3);
CREATE FUNCTION second(x pair, y "My Table") RETURNS mood LANGUAGE sql AS 'SELECT x.second';
CREATE PROCEDURE nothing() LANGUAGE sql AS 'SELECT 1';
CREATE AGGREGATE total(int) (sfunc = int4pl, stype = int4, initcond = '0');
CREATE VIEW users AS SELECT name FROM doc_user;
CREATE MATERIALIZED VIEW counted AS SELECT count(*) FROM doc_user;
CREATE SEQUENCE numbers;
CREATE STATISTICS of_users ON name, email FROM doc_user;
CREATE COLLATION plain FROM "C";
CREATE TABLE parts (a int) PARTITION BY RANGE (a);
CREATE TABLE part PARTITION OF parts FOR VALUES FROM (1) TO (9);
"""
NUMBER_OF_OBJECTS = """
SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace),
    (SELECT count(*) FROM pg_type WHERE typnamespace = 'public'::regnamespace),
    (SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace)
"""


@pytest.mark.parametrize("fails", [False, True])
def test_restore_of_dump_replaces_all_objects_of_an_app(
    fw: CommandLine, owned: str, fails: bool
) -> None:
    """Types, functions and views as well as tables; a failed restore puts them back (C-166)."""
    fill(fw)
    with psycopg.connect(owned, autocommit=True) as connection:
        connection.execute(OBJECTS_OF_AN_APP.encode())
        before = connection.execute(NUMBER_OF_OBJECTS.encode()).fetchone()
    fw.done("backup", "copy.dump")
    if fails:
        put_pg_restore(fw, '/usr/bin/pg_restore "$@"; exit 1')
        path = f"{fw.folder}/programs:/usr/bin:/bin"
        refused = fw.refused("restore", "copy.dump", "--replace", "--yes", PATH=path)
        assert "pg_restore failed" in refused
    else:
        fw.done("restore", "copy.dump", "--replace", "--yes")
    with psycopg.connect(owned) as connection:
        assert connection.execute(NUMBER_OF_OBJECTS.encode()).fetchone() == before
        assert connection.execute("SELECT count(*) FROM users").fetchone() == (2,)
        assert connection.execute('SELECT m, p FROM "My Table"').fetchall() == [("good", 3)]


# As pg_restore of PostgreSQL 17 and 18 does with a server of 15.
NEWER_CLIENT = r"""
error='pg_restore: error: could not execute query: ERROR:  unrecognized configuration parameter'
printf '%s "transaction_timeout"\nCommand was: SET transaction_timeout = 0;\n' "$error" >&2
case "$*" in *--exit-on-error*) exit 1;; esac
/usr/bin/pg_restore "$@"
printf 'pg_restore: warning: errors ignored on restore: %s\n' "$ERRORS" >&2
exit 1"""


@pytest.mark.parametrize("errors", [1, 2])
def test_restore_by_newer_client_ignores_only_its_new_parameter(
    fw: CommandLine, owned: str, errors: int
) -> None:
    """C-166, O-151: the image has the programs of 17, and the compose file a server of 15."""
    fill(fw)
    fw.done("backup", "copy.dump")
    fw.done("user", "add", "later", "--email", "later@x.test")
    put_pg_restore(fw, NEWER_CLIENT.replace("$ERRORS", str(errors)))
    fw.environ["PATH"] = f"{fw.folder}/programs:/usr/bin:/bin"
    restore = ("restore", "copy.dump", "--replace", "--yes")
    if errors == 1:
        fw.done(*restore)
        assert names(fw) == ["ann", "bob"]
    else:
        assert "errors ignored on restore: 2" in fw.refused(*restore)
        assert names(fw) == ["ann", "bob", "later"]


def test_restore_has_no_time_limit_of_the_account(
    fw: CommandLine, cluster: PostgresCluster, owned: str
) -> None:
    fill(fw)
    fw.done("backup", "copy.dump")
    with cluster.administered(owned) as owner:
        owner.execute(f"ALTER DATABASE {owner.info.dbname} SET statement_timeout = 1".encode())
    fw.done("restore", "copy.dump", "--replace", "--yes")
    assert names(fw) == ["ann", "bob"]


# As pg_restore does if the server is so busy that its first query exceeds the account's limit.
SLOW_START = r"""
for started in 1 2 3; do
    case "$*" in *--list*) break;; esac
    [ -e "$FOLDER/$started" ] && continue
    : > "$FOLDER/$started"
    query="SELECT pg_catalog.set_config('search_path', '', false);"
    error='ERROR:  canceling statement due to statement timeout'
    printf 'pg_restore: error: query failed: %s\n' "$error" >&2
    printf 'pg_restore: detail: Query was: %s\n' "$query" >&2
    exit 1
done
exec /usr/bin/pg_restore "$@"
"""


def test_restore_repeats_pg_restore_if_its_first_query_exceeds_the_limit(
    fw: CommandLine, owned: str
) -> None:
    """pg_restore ends the limit of the account by its second statement."""
    fill(fw)
    fw.done("backup", "copy.dump")
    put_pg_restore(fw, SLOW_START.replace("$FOLDER", str(fw.folder)))
    path = f"{fw.folder}/programs:/usr/bin:/bin"
    fw.done("restore", "copy.dump", "--replace", "--yes", PATH=path)
    assert names(fw) == ["ann", "bob"]
    assert all((fw.folder / started).exists() for started in "123")


def test_restore_refuses_connection_of_another_account(
    fw: CommandLine, cluster: PostgresCluster, owned: str
) -> None:
    """The server hides most of what it knows about one (O-326)."""
    fill(fw)
    fw.done("backup", "copy.dump")
    with cluster.administered(owned) as owner:
        owner.execute("SET application_name = 'reports'")
        refused = fw.refused("restore", "copy.dump", "--replace", "--yes")
    assert "other connections (reports of the account postgres)" in refused


def test_restore_reports_unreachable_server_in_one_line(fw: CommandLine, owned: str) -> None:
    """libpq appends a hint in a line of its own."""
    fill(fw)
    fw.done("backup", "copy.dump")
    away = {"FW_DATABASE": "postgresql://fw@127.0.0.1:1/fw"}
    refused = fw.refused("restore", "copy.dump", "--replace", "--yes", **away)
    assert refused.startswith("fw: The database refused: connection failed: ")
    assert refused.endswith("Connection refused.\n")
