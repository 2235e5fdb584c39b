"""`fw vault rekey`: docs/operating.md, Rotate FW_SECRET_KEY."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fw_cli.backup import copy_store
from supervisors.service.site_files import ServeLock
from tests.fw_cli.conftest import CommandLine
from tests.postgres_cluster import PostgresCluster

OLD, NEW = "the old key, forty characters or more ...", "the new key, forty characters or more ..."
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
WEBHOOK = (
    "fw.new_doc('Webhook', event_type='Custom', custom_event='a.b',"
    f" url='https://x.test/', secret='{SECRET}').insert().name"
)
READ = "[fw.get_doc('Webhook', w['name']).vault('secret') for w in fw.get_all('Webhook')]"


def put(file: Path, key: str) -> Path:
    file.write_text(key + "\n")
    file.chmod(0o600)
    return file


@pytest.fixture
def site(fw: CommandLine) -> CommandLine:
    """A site with a secret under the key of its own secret.key."""
    del fw.environ["FW_SECRET_KEY"]
    put(fw.folder / "secret.key", OLD)
    fw.done("eval", WEBHOOK, "--commit")
    return fw


def keys(site: CommandLine) -> dict[str, str]:
    return {file.name: file.read_text().strip() for file in site.folder.glob("secret.key*")}


def test_rekey_replaces_key_of_site(site: CommandLine) -> None:
    """C-87."""
    output = site.done("vault", "rekey", "--no-backup")
    assert output.splitlines()[0] == "re-encrypted 1 value with the new key"
    found = keys(site)
    assert set(found) == {"secret.key", "secret.key.old"}
    assert found["secret.key.old"] == OLD
    assert len(found["secret.key"]) >= 40
    assert found["secret.key"] not in output
    assert stat.S_IMODE((site.folder / "secret.key").stat().st_mode) == 0o600
    assert site.json("eval", READ) == [SECRET]
    with_old = site.refused("eval", READ, FW_SECRET_KEY=OLD)
    assert "moved to another FW_SECRET_KEY" in with_old


def test_rekey_keeps_mode_and_group_of_key_file(site: CommandLine) -> None:
    """`fw vault rekey` is run by root, and the service reads the key by its group."""
    file = site.folder / "secret.key"
    file.chmod(0o640)
    group = next((each for each in os.getgroups() if each != os.getegid()), os.getegid())
    if os.geteuid() == 0:
        group = 12345
    os.chown(file, -1, group)
    site.done("vault", "rekey", "--no-backup")
    now = file.stat()
    assert (stat.S_IMODE(now.st_mode), now.st_gid) == (0o640, group)


def test_rekey_refuses_secret_key_other_than_old_key(site: CommandLine) -> None:
    """`secret.key.old` has to open the backups from before."""
    old = put(site.folder / "before.key", OLD)
    put(site.folder / "secret.key", NEW)
    output = site.refused("vault", "rekey", "--no-backup", "--old-key-file", str(old))
    assert "holds another key than the old one" in output
    assert keys(site) == {"secret.key": NEW}
    given = ("--old-key-file", str(old), "--new-key-file", "secret.key")
    site.done("vault", "rekey", "--no-backup", *given)
    assert site.json("eval", READ) == [SECRET]


def test_rekey_takes_environment_key_by_files(fw: CommandLine) -> None:
    fw.environ["FW_SECRET_KEY"] = OLD
    fw.done("eval", WEBHOOK, "--commit")
    assert "give the new one with --new-key-file" in fw.refused("vault", "rekey", "--no-backup")
    new = put(fw.folder / "new.key", NEW)
    output = fw.done("vault", "rekey", "--new-key-file", "new.key", "--no-backup")
    assert output.splitlines()[1].startswith("set the new key as FW_SECRET_KEY now")
    fw.environ["FW_SECRET_KEY"] = NEW
    assert fw.json("eval", READ) == [SECRET]
    put(fw.folder / "old.key", OLD)
    back = ("--old-key-file", str(new), "--new-key-file", str(fw.folder / "old.key"))
    fw.done("vault", "rekey", *back, "--no-backup")
    fw.environ["FW_SECRET_KEY"] = OLD
    assert fw.json("eval", READ) == [SECRET]


def test_rekey_backup_contains_old_values(site: CommandLine) -> None:
    site.done("vault", "rekey", "--backup", "before.db")
    other = site.folder / "restored"
    (other / "data").mkdir(parents=True)
    (other / "data" / "fw.db").write_bytes((site.folder / "before.db").read_bytes())
    (other / "fw.json").write_text("{}")
    restored = CommandLine(other, {**site.environ, "FW_SECRET_KEY": OLD})
    assert restored.json("eval", READ) == [SECRET]
    again = site.refused("vault", "rekey", "--backup", "before.db")
    assert "secret.key.old already exists" in again


def test_rekey_prints_json(site: CommandLine) -> None:
    report = site.json("vault", "rekey", "--backup", "before.db", "--json")
    assert (report["reencrypted"], report["alreadyNew"], report["unreadable"]) == (1, 0, 0)
    assert report["backup"] == str(site.folder / "before.db")
    assert "the new key is in" in report["next"]


def test_rekey_requires_choice_of_backup(site: CommandLine) -> None:
    assert site.run("vault", "rekey").exit_code == 2
    assert site.run("vault", "rekey", "--no-backup", "--backup", "x.db").exit_code == 2


def test_rekey_dry_run_counts_without_changes(site: CommandLine) -> None:
    before = keys(site)
    counts = site.json("vault", "rekey", "--dry-run", "--json")
    assert {"doctype": "Webhook", "field": "secret", "old": 1, "new": 0, "unreadable": 0} in counts
    assert "Webhook" in site.done("vault", "rekey", "--dry-run")
    assert keys(site) == before
    assert site.json("eval", READ) == [SECRET]


def test_rekey_refuses_running_service(site: CommandLine) -> None:
    with ServeLock(site.folder / "data" / "serve.lock") as lock:
        assert lock.acquire()
        output = site.refused("vault", "rekey", "--no-backup")
        assert "stop it with `fw stop`" in output
        assert site.json("vault", "rekey", "--dry-run", "--json")
    assert keys(site) == {"secret.key": OLD}


@pytest.mark.parametrize(("given", "name"), [("", "fw"), ("&application_name=billing", "billing")])
def test_rekey_refuses_connected_nodes(
    site: CommandLine, cluster: PostgresCluster, given: str, name: str
) -> None:
    """A node elsewhere would write secrets with the old key (O-326); a program that is not of fw
    writes none."""
    with cluster.empty_database() as url:
        site.environ["FW_DATABASE"] = url + given
        site.done("eval", WEBHOOK, "--commit")
        with psycopg.connect(url, application_name=name):
            output = site.refused("vault", "rekey", "--no-backup")
            assert f"({name} from this machine): stop every service and worker" in output
            assert site.json("vault", "rekey", "--dry-run", "--json")
        assert keys(site) == {"secret.key": OLD}
        with psycopg.connect(url, application_name="psql"):
            site.done("vault", "rekey", "--no-backup")
        assert site.json("eval", READ) == [SECRET]


def test_rekey_refuses_program_that_uses_the_site(site: CommandLine) -> None:
    with closing(sqlite3.connect(site.folder / "data" / "fw.db")) as program:
        program.execute("SELECT count(*) FROM doc_user").fetchone()
        output = site.refused("vault", "rekey", "--no-backup")
        assert "Another process has" in output
    assert keys(site) == {"secret.key": OLD}


def test_rekey_refuses_program_that_opens_the_site_during_the_backup(
    site: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup of a large store takes minutes (O-326)."""
    with ExitStack() as opened:

        def copied(*given: Any, **options: Any) -> None:
            copy_store(*given, **options)
            program = sqlite3.connect(site.folder / "data" / "fw.db")
            opened.enter_context(closing(program))
            program.execute("PRAGMA journal_mode=WAL")  # as the service and `open_site` do
            program.execute("SELECT count(*) FROM doc_user").fetchone()

        monkeypatch.setattr("fw_cli.vault.copy_store", copied)
        output = site.refused("vault", "rekey", "--backup", "before.db", "--json")
        assert "Another process has" in output
    assert keys(site) == {"secret.key": OLD}


@pytest.mark.parametrize("step", ["made", "moved", "kept"])
def test_killed_rekey_is_finished_by_next_run(
    site: CommandLine, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """`made`: the new key is there; `moved`: the values have it; `kept`: the old one is linked."""
    with monkeypatch.context() as patch:
        if step == "made":
            patch.setattr("fw_actors.ops.stored_secrets.Rekeying.run", killed)
        elif step == "moved":
            patch.setattr("fw_cli.vault.RotationKeys.put_in_place", killed)
        else:
            patch.setattr(os, "replace", killed)
        with pytest.raises(Killed):
            site.run("vault", "rekey", "--no-backup")
    pending = keys(site)
    assert pending["secret.key"] == OLD
    site.done("vault", "rekey", "--no-backup")
    assert keys(site) == {"secret.key": pending["secret.key.new"], "secret.key.old": OLD}
    assert site.json("eval", READ) == [SECRET]


class Killed(BaseException):
    """Ends a command as a kill does: no code of fw catches it."""


def killed(*_: object) -> None:
    raise Killed


def test_rekey_refuses_wrong_old_key_before_writing(site: CommandLine) -> None:
    put(site.folder / "wrong", "not the key that the values are under")
    put(site.folder / "new.key", NEW)
    wrong = ("--old-key-file", "wrong", "--new-key-file", "new.key", "--no-backup")
    assert "none of the 1 stored values can be decrypted" in site.refused("vault", "rekey", *wrong)
    assert site.json("eval", READ) == [SECRET]
    result = site.run("vault", "rekey", *wrong, "--leave-unreadable")
    assert result.exit_code == 0
    (name,) = json.loads(
        site.run("eval", "[w['name'] for w in fw.get_all('Webhook')]", FW_SECRET_KEY=NEW).stdout
    )
    assert f"Webhook, field secret, {name}: neither key decrypts it" in result.stderr


def test_rekey_with_a_given_key_leaves_kept_key_of_earlier_rotation(site: CommandLine) -> None:
    put(site.folder / "secret.key.old", "of an earlier rotation, forty characters")
    put(site.folder / "new.key", NEW)
    before = keys(site)
    site.done("vault", "rekey", "--no-backup", "--new-key-file", "new.key")
    assert keys(site) == before


def test_rekey_refuses_new_key_that_is_the_old_one(site: CommandLine) -> None:
    put(site.folder / "new.key", OLD)
    rekey = ("vault", "rekey", "--no-backup", "--new-key-file", "new.key")
    assert site.refused(*rekey) == "fw: the new key must differ from the old one\n"


@pytest.mark.parametrize("options", [("--dry-run",), ("--no-backup", "--leave-unreadable")])
def test_rekey_names_unreadable_values_beside_json(
    site: CommandLine, options: tuple[str, ...]
) -> None:
    put(site.folder / "wrong", "not the key that the values are under")
    put(site.folder / "new.key", NEW)
    wrong = ("--old-key-file", "wrong", "--new-key-file", "new.key", "--json", *options)
    result = site.run("vault", "rekey", *wrong)
    assert result.exit_code == 0
    assert '"unreadable": 1' in result.stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith("fw: Webhook, field secret, ")
    assert line.endswith(": neither key decrypts it; left unchanged")


def test_rekey_refuses_key_file_open_to_others(site: CommandLine) -> None:
    put(site.folder / "new.key", NEW).chmod(0o644)
    output = site.refused("vault", "rekey", "--new-key-file", "new.key", "--no-backup")
    assert "chmod 600" in output
