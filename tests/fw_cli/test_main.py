"""The commands and their edge: exit 0 done, 1 refused or failed, 2 usage (C-100)."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest

from fw_actors import __version__
from fw_actors.documents import permissions
from fw_actors.documents.core import BY_DOCUMENT, Webhook
from fw_actors.documents.fields import Int
from fw_actors.ops.queued_jobs import QUEUES, JobState
from fw_actors.rules.delivery import FINAL, DeliveryStatus
from fw_actors.webhooks.attempt_list import AttemptResult
from fw_cli.context import ADMINISTRATOR
from fw_cli.main import COMMANDS, cli
from tests.fw_cli.conftest import CommandLine
from tests.pages.command_line import examples_of

HEAVY = "trio structlog rich msgspec sqlalchemy quart hypercorn psycopg fw_actors.config"


@pytest.mark.parametrize("args", [["version"], ["--help"], ["user", "--help"], ["serve", "--help"]])
def test_version_and_help_import_and_open_nothing(args: list[str]) -> None:
    program = (
        "import sys\nfrom fw_cli.main import cli\n"
        f"cli.main({args!r}, standalone_mode=False)\n"
        f"sys.stderr.write(' '.join(set({HEAVY!r}.split()) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, cwd="/", check=True
    )
    assert done.stderr == ""


def test_user_of_commands_is_the_administrator_of_the_documents() -> None:
    """C-103; commands do not import the documents for it."""
    assert ADMINISTRATOR == permissions.ADMINISTRATOR


def option(command: str, name: str) -> Any:
    """Return the type of an option."""
    found: click.Command = cli
    for word in command.split():
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), word)  # type: ignore[assignment]
    (kind,) = [each.type for each in found.params if f"--{name}" in each.opts]
    return kind


@pytest.mark.parametrize(
    ("command", "name", "words"),
    [
        ("webhooks list", "status", DeliveryStatus),
        ("webhooks replay", "status", FINAL),
        ("webhooks attempts", "result", [each.value.capitalize() for each in AttemptResult]),
        ("webhooks add", "ordering", ["none", BY_DOCUMENT.lower()]),
        ("jobs list", "queue", QUEUES),
        ("jobs list", "state", JobState),
    ],
)
def test_words_of_option_are_those_of_the_service(
    command: str, name: str, words: Iterable[str]
) -> None:
    """Commands do not import the service for them."""
    assert set(option(command, name).choices) == set(map(str, words))


@pytest.mark.parametrize("name", ["timeout", "max-attempts", "rate-limit"])
def test_option_of_webhook_has_range_of_its_field(name: str) -> None:
    field = Webhook.meta.fields[name.replace("-", "_")]
    assert isinstance(field, Int)
    kind = option("webhooks add", name)
    assert (kind.min, kind.max) == (field.minimum, field.maximum)


def test_version_prints_one_line(fw: CommandLine) -> None:
    assert re.fullmatch(
        rf"fw {re.escape(__version__)}( \(commit \w{{12}}\))?\n", fw.done("version")
    )


def test_version_and_help_exist_as_options(fw: CommandLine) -> None:
    assert fw.done("--version") == fw.done("version")
    assert fw.done("-h") == fw.done("--help")
    assert fw.done("webhooks", "list", "-h") == fw.done("webhooks", "list", "--help")


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        (["help"], ["--help"]),
        (["help", "help"], ["--help"]),
        (["help", "webhooks", "add"], ["webhooks", "add", "--help"]),
        (["webhooks", "help", "add"], ["webhooks", "add", "--help"]),
    ],
)
def test_help_exists_as_command(fw: CommandLine, typed: list[str], command: list[str]) -> None:
    assert fw.done(*typed) == fw.done(*command)


def test_command_in_deleted_folder_is_refused(tmp_path: Path) -> None:
    (gone := tmp_path / "gone").mkdir()
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$1" && exec "$2" -P -m fw_cli status', "sh", gone, sys.executable],
        capture_output=True,
        text=True,
        cwd=gone,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "fw: the working directory cannot be used: No such file or directory\n"


def test_unreadable_key_file_is_named(fw: CommandLine) -> None:
    """The path is no secret, although its variable begins like one."""
    del fw.environ["FW_SECRET_KEY"]
    output = fw.refused("migrate", FW_SECRET_KEY_FILE="missing.key")
    assert output == f"fw: {fw.folder / 'missing.key'} cannot be read: No such file or directory\n"


def test_misspelt_command_is_answered_with_nearest(fw: CommandLine) -> None:
    completed = fw.run("webhoks", "list")
    assert completed.exit_code == 2
    assert "Did you mean 'webhooks'?" in completed.stderr
    assert fw.run("bogus").stderr.endswith("No such command 'bogus'.\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_command_exists_and_has_help(fw: CommandLine, name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.help
    assert name in fw.done("--help")
    fw.done(name, "--help")


def test_command_list_truncates_no_sentence(fw: CommandLine) -> None:
    for group in ((), ("user",), ("webhooks",), ("jobs",)):
        assert "..." not in fw.done(*group, "--help").partition("Commands:")[2]


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join((*path, name)), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


EXAMPLES = [("fw", cli), *commands(cli)]


@pytest.mark.parametrize(("path", "command"), EXAMPLES, ids=[path for path, _ in EXAMPLES])
def test_help_examples_can_be_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, command: click.Command
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "import_customers.py").touch()
    for line in examples_of(command):
        typed = line.partition(" | ")[0].partition(" && ")[0].partition(" < ")[0]
        _, *words = shlex.split(typed, comments=True)
        found: click.Command | None = cli
        while isinstance(found, click.Group):
            _, found, words = found.resolve_command(click.Context(found), words)
        assert found is not None
        found.make_context(path, words)  # raises for a wrong use


@pytest.mark.parametrize(
    "args",
    [
        ("no-such-command",), ("version", "extra"), ("serve", "--port", "1"), ("user",),
        ("user", "no-such"), ("user", "add"), ("user", "add", "x"), ("eval",), ("exec",),
        ("exec", "/no/such/file"), ("webhooks", "list", "--status", "Lost"),
        ("webhooks", "list", "--limit", "0"), ("webhooks", "list", "--limit", "x"),
        ("user", "add", "x", "--email", "x@example.test", "--password", "in argv"),
        ("webhooks", "cancel", "\udcff"), ("webhooks", "erase", "--reference", "Note", "\udcff"),
        ("webhooks", "cancel", "--reference", "Note", "\udcff"), ("webhooks", "replays", "\udcff"),
        ("webhooks", "attempts", "--error", "\udcff"),
        ("webhooks", "emit", "a", "--data", "\udcff"),
        ("webhooks", "add", "http://127.0.0.1:9/", "--event", "a", "--set", "description=\udcff"),
    ],
)  # fmt: skip
def test_wrong_usage_exits_2_and_opens_no_store(fw: CommandLine, args: tuple[str, ...]) -> None:
    result = fw.run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: fw" in result.stderr
    assert not (fw.folder / "data").exists()


WEBHOOK = ("webhooks", "add", "http://127.0.0.1:9/", "--event")


@pytest.mark.parametrize(
    "args",
    [
        ("webhooks", "add", "ftp://127.0.0.1/", "--event", "a"),
        (*WEBHOOK, "doc.on_insert"),
        (*WEBHOOK, "a", "--set", "timeout=61"),
        (*WEBHOOK, "a", "--set", "tiemout=5"),
        (*WEBHOOK, "a", "--name", "a/b"),
        (*WEBHOOK, "a", "--secret-env", "a-b"),
        ("webhooks", "add", "http://127.0.0.1:9/", "--doctype", "Webhook", "--on", "saved"),
        ("webhooks", "emit", "Not A Name"),
        ("webhooks", "emit", "a", "--data", "{"),
        ("webhooks", "emit", "a", "--key", ""),
        ("user", "add", "x", "--email", "nowhere"),
        ("user", "add", "a/b", "--email", "x@example.test"),
        ("user", "invite", "x@example.test", "--name", "a/b"),
        ("key", "create", "ci", "--label", "x", "--email", "nowhere"),
        ("key", "create", "a/b", "--label", "x", "--email", "x@example.test"),
        ("audit", "--action", "user.invited"),
        ("init", "new", "--app", "tests"),
    ],
)  # fmt: skip
def test_value_that_the_site_refuses_exits_1_with_one_line(
    fw: CommandLine, args: tuple[str, ...]
) -> None:
    """C-100."""
    refused = fw.refused(*args)
    assert refused.startswith("fw: ")
    assert len(refused.splitlines()) == 1


def test_value_of_a_change_that_the_site_refuses_exits_1(fw: CommandLine) -> None:
    fw.done(*WEBHOOK, "a", "--name", "erp")
    assert "timeout must be" in fw.refused("webhooks", "edit", "erp", "--set", "timeout=61")
    assert "There is no Webhook" in fw.refused("webhooks", "edit", "crm", "--timeout", "6")
    for command in (("add", "http://127.0.0.1:9/"), ("edit", "erp")):
        refused = fw.refused("webhooks", *command, "--doctype", "Uzer", "--on", "saved")
        assert refused == "fw: There is no DocType Uzer. Did you mean User?\n"
    assert "erp" in fw.refused(*WEBHOOK, "a", "--name", "erp")


@pytest.mark.parametrize(
    "args",
    [
        ("serve",), ("start",), ("stop",), ("restart",), ("status",), ("worker",), ("migrate",),
        ("user", "list"), ("eval", "1"), ("webhooks", "list"), ("jobs", "stats"),
        ("user", "add", "x", "--email", "x@example.test"),
    ],
)  # fmt: skip
def test_command_without_site_names_missing_config(fw: CommandLine, args: tuple[str, ...]) -> None:
    said = fw.refused(*args, FW_CONFIG="none.json")
    assert str(fw.folder / "none.json") in said


def test_configuration_problems_are_printed_one_per_line(fw: CommandLine) -> None:
    (fw.folder / "fw.json").write_text('{"auth": {"sessionDays": 0}, "\\u001bx": 1}')
    lines = fw.refused("migrate", FW_LOG="pigeon").splitlines()
    assert all(line.startswith("fw: ") for line in lines)
    assert [sum(word in line for line in lines) for word in ("sessionDays", "FW_LOG")] == [1, 1]
    assert not any("\x1b" in line for line in lines)


READING = ["user list", "key list", "webhooks list", "jobs list", "jobs stats", "audit", "export"]
READING += ["eval 1", "doctor"]


def test_command_that_reads_waits_for_no_write(fw: CommandLine) -> None:
    """C-175: the commands by which one finds the write that hangs."""
    fw.done("migrate")
    with closing(sqlite3.connect(fw.folder / "data" / "fw.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for command in READING:
            fw.done(*command.split())


def test_closed_stdout_causes_no_traceback(fw: CommandLine) -> None:
    fw.done("migrate")
    process = fw.process("user", "list", "--json")
    assert process.stdout is not None
    process.stdout.close()
    process.wait()
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    for stream in (process.stdin, process.stderr):
        assert stream is not None
        stream.close()


def test_service_commands_import_neither_runtime_nor_store() -> None:
    """Such commands cost a fraction of a second of processor time (C-173)."""
    program = (
        "import sys, fw_cli.main, fw_cli.service, fw_cli.console, fw_cli.console_client, "
        "fw_cli.output, supervisors.service.background; "
        "print(sorted({'trio', 'sqlalchemy', 'structlog', 'quart'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_site_on_sqlite_loads_no_code_of_postgresql(fw: CommandLine) -> None:
    """PostgreSQL's dialect takes 2 MB in each process, and its driver more."""
    fw.done("migrate")
    unwanted = "{'psycopg', 'sqlalchemy.dialects.postgresql', 'trio'}"
    loaded = f"sorted(__import__('sys').modules.keys() & {unwanted})"
    stdout, _ = fw.process("eval", loaded).communicate()
    assert json.loads(stdout) == ["trio"]
