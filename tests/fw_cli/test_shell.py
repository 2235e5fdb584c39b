"""`fw shell` (C-172)."""

from __future__ import annotations

import os
import pty
import select
import signal
import stat
import time
from contextlib import ExitStack

import pytest

from fw_actors.errors import OverloadedError
from fw_actors.ops.site import Site
from fw_actors.store.sqlite_connection import SqliteConnection
from tests.fw_cli.conftest import CommandLine


def typed(fw: CommandLine, *lines: str, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
    result = fw.run("shell", *options, stdin="\n".join(lines) + "\n")
    assert "trio" not in result.stderr
    return result.exit_code, result.stdout, result.stderr


def roles(fw: CommandLine) -> set[str]:
    rows = fw.json("eval", 'fw.get_all("Role", fields=["name"])')
    return {row["name"] for row in rows} - {"System Manager", "Event Publisher"}


def role(name: str) -> str:
    return f'_ = fw.new_doc("Role", name="{name}").insert()'


def test_shell_input_is_rolled_back_without_commit_option(fw: CommandLine) -> None:
    count = 'fw.count("Role")'
    assert typed(fw, role("a"), count, "x = 3", "x + 1") == (0, "2\n4\n", "")
    assert roles(fw) == set()
    assert typed(fw, role("a"), count, options=("--commit",)) == (0, "3\n", "")
    assert roles(fw) == {"a"}


def test_shell_transaction_lasts_until_commit_or_rollback(fw: CommandLine) -> None:
    count = 'fw.count("Role")'
    lines = ("begin()", role("a"), role("b"), count, "commit()", "begin()", role("c"), "rollback()")
    assert typed(fw, *lines, count) == (0, "4\ncommitted\nrolled back\n4\n", "")
    assert roles(fw) == {"a", "b"}


def test_shell_commits_wait_for_the_disk(fw: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit without a sync may cost the database at a power failure (O-11)."""
    synchronous: list[int] = []
    close = SqliteConnection.close

    def noted(connection: SqliteConnection) -> None:
        if connection.writable:
            synchronous.extend(connection.raw.execute("PRAGMA synchronous").fetchone())
        close(connection)

    monkeypatch.setattr(SqliteConnection, "close", noted)
    assert typed(fw, role("a"), options=("--commit",))[0] == 0
    assert synchronous == [2], "not FULL"


def test_shell_transactions_work_on_postgresql(fw: CommandLine, postgres_url: str) -> None:
    fw.environ["FW_DATABASE"] = postgres_url
    expression = "fw.db.sql(\"SELECT current_setting('synchronous_commit') AS it\")[0]['it']"
    assert typed(fw, expression) == (0, "'on'\n", "")
    lines = ("begin()", role("a"), 'fw.get_doc("Role", "none")', "commit()", role("b"))
    code, out, _ = typed(fw, *lines)
    assert (code, out) == (1, "committed\n")
    assert roles(fw) == {"a"}


def test_end_of_stdin_rolls_open_transaction_back(fw: CommandLine) -> None:
    assert typed(fw, "begin()", role("a")) == (0, "rolled back\n", "")
    assert typed(fw, "begin()", role("a"), "exit()", "1/0")[0] == 0
    assert roles(fw) == set()


def test_failed_shell_input_is_undone_and_shell_continues(fw: CommandLine) -> None:
    bad = f'{role("bad")}; fw.get_doc("Role", "none")'
    code, out, err = typed(fw, "begin()", role("good"), bad, "commit()", "1/0", "1 +")
    assert (code, out) == (1, "committed\n")
    assert "NotFoundError: There is no Role none." in err
    assert "ZeroDivisionError" in err
    assert err.count("Traceback") == 1, "a refusal has none"
    assert "3 inputs failed" in err
    assert "shell.py" not in err
    assert roles(fw) == {"good"}


def test_shell_reports_transaction_that_fails_and_continues(
    fw: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a full disk at the commit; the input itself did not fail."""

    async def write(*_: object) -> None:
        raise OverloadedError("The database's disk is full.")

    monkeypatch.setattr(Site, "write", write)
    code, out, err = typed(fw, "1", "begin()", options=("--commit",))
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        *["OverloadedError: The database's disk is full."] * 2, "fw: 2 inputs failed",
    ]  # fmt: skip


def test_shell_ignores_transaction_command_of_failed_input(fw: CommandLine) -> None:
    """The next input committed, or was part of a transaction (C-172)."""
    lines = ("begin()", role("a"), "commit(); 1/0", "5", "rollback()")
    assert typed(fw, *lines)[:2] == (1, "5\nrolled back\n")
    assert typed(fw, "begin(); 1/0", "6")[:2] == (1, "6\n")
    assert roles(fw) == set()


def test_exit_after_a_failed_input_reports_the_failure(fw: CommandLine) -> None:
    """exit() closes stdin, which the shell must not ask any more."""
    assert typed(fw, "1/0", "exit()")[0] == 1
    assert "fw: 1 input failed" in typed(fw, "1/0", "exit()")[2]


def test_shell_input_may_begin_with_a_byte_order_mark(fw: CommandLine) -> None:
    assert typed(fw, "\ufeff1 + 1") == (0, "2\n", "")


def test_shell_on_a_terminal_needs_no_data_folder(fw: CommandLine, postgres_url: str) -> None:
    """A site on PostgreSQL has none; the shell makes it for its history."""
    fw.environ["FW_DATABASE"] = postgres_url
    assert typed_on_terminal(fw) == 0
    assert stat.S_IMODE((fw.folder / "data").stat().st_mode) == 0o700
    assert "exit()" in (fw.folder / "data" / "shell.history").read_text()


def test_shell_on_a_terminal_works_without_its_history(fw: CommandLine) -> None:
    fw.done("migrate")
    (fw.folder / "data" / "shell.history").mkdir()
    assert typed_on_terminal(fw) == 0


def typed_on_terminal(fw: CommandLine) -> int:
    """Type exit() in a terminal; the exit code."""
    master, slave = pty.openpty()
    with fw.process("shell", stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        os.write(master, b"exit()\n")
        code = process.wait(20)
    os.close(master)
    return code


def test_exit_on_a_terminal_is_no_failure(fw: CommandLine) -> None:
    master, slave = pty.openpty()
    with fw.process("shell", stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        os.write(master, b"1/0\nexit()\n")
        assert process.wait(20) == 0
    os.close(master)


def test_shell_input_may_have_several_lines(fw: CommandLine) -> None:
    lines = ("for n in range(2):", "    print(n)", "", "def f():", "    return 7", "", "f()")
    assert typed(fw, *lines) == (0, "0\n1\n7\n", "")


def test_shell_user_has_rights_of_that_user(fw: CommandLine) -> None:
    fw.done("user", "add", "ida", "--email", "ida@x.test")
    code, _, err = typed(fw, 'fw.get_list("User")', options=("--user", "ida"))
    assert code == 1
    assert "PermissionDeniedError" in err
    assert "no enabled user" in fw.refused("shell", "--user", "none", stdin="")


def test_shell_error_prints_no_secret(fw: CommandLine) -> None:
    fw.environ["FW_SECRET_CRM"] = "a-secret-of-the-crm"
    code, _, err = typed(fw, 'raise ValueError(fw.secret("crm"))')
    assert code == 1
    assert "a-secret-of-the-crm" not in err


def take_interrupts() -> None:
    """Undo what a test run in the background passes on: SIGINT is ignored there."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_shell_on_terminal_has_prompt_and_private_history(fw: CommandLine) -> None:
    """Ctrl-C drops an input, Ctrl-D ends the shell."""
    master, slave = pty.openpty()
    with ExitStack() as stack:
        process = stack.enter_context(
            fw.process("shell", stdin=slave, stdout=slave, stderr=slave, preexec_fn=take_interrupts)
        )
        stack.callback(process.kill)
        os.close(slave)
        seen = ""

        def until(text: str) -> None:
            nonlocal seen
            deadline = time.monotonic() + 20
            while text not in seen:
                assert time.monotonic() < deadline, seen
                if select.select([master], [], [], 1)[0]:
                    seen += os.read(master, 4096).decode(errors="replace")
            seen = seen.partition(text)[2]

        until("Each input is rolled back")
        until("fw> ")
        os.write(master, b"40 + 2\n")
        until("42")
        os.write(master, b"import time\n")
        # The echo of the line has no such word, what the loop prints does.
        os.write(master, b"while not print('at' + 'work'): time.sleep(0.01)\n\n")
        until("atwork")
        process.send_signal(signal.SIGINT)
        until("interrupted")
        until("fw> ")
        os.write(master, b"\x04")
        assert process.wait(20) == 0
    os.close(master)
    history = fw.folder / "data" / "shell.history"
    assert "40 + 2" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
