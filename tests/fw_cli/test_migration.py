"""`fw migrate` and the data migrations of apps (C-110, D-173 to D-177)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import psycopg
import pytest

from tests.fw_cli.conftest import CommandLine
from tests.postgres_cluster import PostgresCluster

MODULE = "ledger_of_tests"
APP = """\
from fw_actors.app import Data, DocType, migration

class Ledger(DocType, naming="random"):
    title = Data(required=True)

@migration(1)
def begin(fw):
    fw.new_doc("Ledger", title="first").insert()

@migration(2)
def go_on(fw):
    fw.new_doc("Ledger", title="second").insert()
    fw.new_doc("Ledger").insert()
"""


@pytest.fixture(autouse=True)
def app(fw: CommandLine) -> Iterator[None]:
    """An app whose second migration fails."""
    (fw.folder / f"{MODULE}.py").write_text(APP)
    policy = json.loads((fw.folder / "fw.json").read_text())
    (fw.folder / "fw.json").write_text(json.dumps({**policy, "apps": [MODULE]}))
    before = list(sys.path)
    yield
    sys.path[:] = before
    sys.modules.pop(MODULE, None)


def test_migrate_prints_finished_and_failed_steps(fw: CommandLine) -> None:
    plan = [
        {"app": MODULE, "number": 1, "name": "begin", "begun": False},
        {"app": MODULE, "number": 2, "name": "go_on", "begun": False},
    ]
    assert fw.json("migrate", "--plan", "--json") == plan
    assert fw.json("eval", 'fw.count("Ledger")') == 0
    result = fw.run("migrate")
    assert (result.exit_code, result.stdout) == (1, f"migrated {MODULE} 1 (begin)\n")
    assert result.stderr == (
        f"fw: {MODULE} 2 (go_on) failed, and what its transaction did is undone: "
        f"{fw.folder / MODULE}.py, line 13: ValidationError: title is missing.\n"
    )
    assert fw.json("migrate", "--plan", "--json") == plan[1:]
    assert fw.json("eval", 'fw.get_all("Ledger", fields=["title"])') == [{"title": "first"}]
    assert "go_on" in fw.done("migrate", "--plan")
    assert f"the data migration {MODULE} 2 (go_on) has not run" in fw.run("doctor").stdout


def test_migrate_reports_that_nothing_is_pending(fw: CommandLine) -> None:
    (fw.folder / "fw.json").write_text("{}")
    assert fw.done("migrate") == "the store is up to date\n"
    assert fw.done("migrate", "--plan") == "no data migration is pending\n"
    assert fw.json("migrate", "--plan", "--json") == []


def test_migrate_json_requires_plan(fw: CommandLine) -> None:
    result = fw.run("migrate", "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--json requires --plan." in result.stderr


def test_site_in_schema_of_its_own_uses_no_table_of_another(
    fw: CommandLine, cluster: PostgresCluster
) -> None:
    """As with PostgreSQL's own search path: the schema of the role, then `public`."""
    with cluster.empty_database() as url:
        fw.done("user", "add", "ann", "--email", "ann@x.test", FW_DATABASE=url)
        with psycopg.connect(url) as owner:
            owner.execute("CREATE SCHEMA own")
        own = url.replace("%3Dpublic", "%3Down,public")
        fw.done("user", "add", "bob", "--email", "bob@x.test", FW_DATABASE=own)
        for each, name in ((url, "ann"), (own, "bob")):
            listed = json.loads(fw.done("user", "list", "--json", FW_DATABASE=each))
            assert [row["name"] for row in listed] == [name]


def test_site_without_its_documents_is_refused(fw: CommandLine, cluster: PostgresCluster) -> None:
    """O-27: a store of 0.2.0, whose documents are in a later schema of the search path, must not
    open as a site without documents."""
    with cluster.empty_database() as url:
        fw.done("user", "add", "ann", "--email", "ann@x.test", FW_DATABASE=url)
        own = {"FW_DATABASE": url.replace("%3Dpublic", "%3Down,public")}
        with psycopg.connect(url) as owner:
            owner.execute("CREATE SCHEMA own")
        fw.done("user", "list", **own)
        with psycopg.connect(url) as owner:
            rows = owner.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'own'")
            documents = [name for (name,) in rows if name.startswith("doc_")]
            for name in documents:
                owner.execute(f"DROP TABLE own.{name}".encode())
        refused = fw.refused("user", "list", **own)
        assert "schema own without documents" in refused
        assert "ALTER TABLE public.doc_user SET SCHEMA own" in refused
        with psycopg.connect(url) as owner:
            for name in documents:
                owner.execute(f"ALTER TABLE public.{name} SET SCHEMA own".encode())
        listed = json.loads(fw.done("user", "list", "--json", **own))
        assert [row["name"] for row in listed] == ["ann"]
