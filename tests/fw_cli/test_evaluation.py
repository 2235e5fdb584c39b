"""`eval EXPR [--commit] [--user U]` and `exec FILE` (C-120)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fw_cli.conftest import PASSWORD, CommandLine

MAKE = '[fw.new_doc("Role", name="Made").insert() and 1, fw.exists("Role", "Made")]'
LOOK = 'fw.exists("Role", "Made")'


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 1", 2),
        (' {"a": [1, None, True], "ü": "\u2028"} ', {"a": [1, None, True], "ü": "\u2028"}),
        ("fw.user", "Administrator"),
        ("None", None),
        ("(1, 2.5)", [1, 2.5]),
        ("2 ** 70", 2**70),
        ("__import__('datetime').date(2026, 1, 2)", "2026-01-02"),
        ("[len(x) for x in ('a', 'bc')]", [1, 2]),
        ("[fw.user for _ in (1,)]", ["Administrator"]),
        ("object", "<class 'object'>"),
    ],
)
def test_eval_prints_value_as_json(fw: CommandLine, expression: str, value: Any) -> None:
    out = fw.done("eval", expression)
    assert json.loads(out) == value
    assert out.count("\n") == 1


def test_eval_prints_document_with_fields(fw: CommandLine) -> None:
    shown = fw.json("eval", 'fw.get_doc("Role", "System Manager")')
    assert (shown["doctype"], shown["name"]) == ("Role", "System Manager")


def test_eval_persists_changes_only_with_commit(fw: CommandLine) -> None:
    assert fw.json("eval", MAKE)[1] == "Made"
    assert fw.json("eval", LOOK) is None
    fw.done("eval", MAKE, "--commit")
    assert fw.json("eval", LOOK) == "Made"


def test_eval_user_has_rights_of_that_user(fw: CommandLine) -> None:
    fw.done("user", "add", "u", "--email", "u@x.test", "--password-stdin", stdin=PASSWORD + "\n")
    assert fw.json("eval", "fw.user", "--user", "u") == "u"
    fw.refused("eval", MAKE, "--commit", "--user", "u")
    assert fw.json("eval", LOOK) is None
    assert "nobody-at-all" in fw.refused("eval", "1", "--user", "nobody-at-all")


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("1 / 0", "<expression>, line 1: ZeroDivisionError: division by zero"),
        ("unknown", "NameError"),
        ("1 +", "<expression>, line 1: invalid syntax"),
        ("x = 1", "invalid syntax"),
        ("", "invalid syntax"),
        ("'\0'", "null bytes"),
        ('fw.get_doc("User", "nobody")', "nobody"),
        ("exit()", "fw: the expression called exit()\n"),
        ("(_ for _ in ()).throw(ValueError('a\x1b'))", "ValueError: a\\u001b"),
    ],
)  # fmt: skip
def test_failed_expression_is_reported_in_one_line(
    fw: CommandLine, expression: str, said: str
) -> None:
    message = fw.refused("eval", expression)
    assert said in message
    assert message.count("\n") == 1


def test_exec_runs_file_in_one_transaction(fw: CommandLine) -> None:
    script = fw.folder / "script.py"
    script.write_text(
        "import sys\n"
        "def make():\n    return fw.new_doc('Role', name='Made').insert()\n"
        "make()\nprint(__name__, __file__, fw.user)\nsys.exit()\n"
    )
    assert fw.done("exec", str(script)) == f"__main__ {script} Administrator\n"
    assert fw.json("eval", LOOK) is None
    fw.done("exec", str(script), "--commit")
    assert fw.json("eval", LOOK) == "Made"


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("raise ValueError('stop here')", "line 2: ValueError: stop here"),
        ("int('x')", "line 2: ValueError: invalid literal"),
        ("import json\njson.loads('x')", "line 3: JSONDecodeError: Expecting value"),
        ("fw.get_doc('Role', 'Nobody')", "line 2: There is no Role Nobody."),
        ("import sys; sys.exit('no more')", "no more"),
        ("import sys; sys.exit(3)", "3"),
        ("def f(:", "line 2: invalid syntax"),
    ],
)
def test_exec_of_failing_file_commits_nothing(fw: CommandLine, last: str, said: str) -> None:
    """C-127."""
    script = fw.folder / "script.py"
    script.write_text(f"fw.new_doc('Role', name='Made').insert()\n{last}\n")
    result = fw.run("exec", str(script), "--commit")
    assert result.exit_code == 1
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert fw.json("eval", LOOK) is None


def test_exec_names_line_of_file_and_of_app(fw: CommandLine) -> None:
    """An error in a hook is mended in the app, not in the script."""
    app, script = fw.folder / "desk_hooks.py", fw.folder / "script.py"
    app.write_text("def hook():\n    return 1 / 0\n")
    script.write_text(
        f"import sys\nsys.path.append({str(fw.folder)!r})\nimport desk_hooks\ndesk_hooks.hook()\n"
    )
    message = fw.refused("exec", str(script))
    assert message == (
        f"fw: {script}, line 4: ZeroDivisionError in desk_hooks.py, line 2: division by zero\n"
    )


def test_eval_subprocess_inherits_no_secret(fw: CommandLine) -> None:
    """Credentials come by `fw.secret`, to the app alone (C-84, C-83)."""
    fw.environ["FW_SECRET_CRM"] = "a credential"
    listing = "__import__('subprocess').check_output('env', text=True)"
    process = fw.process("eval", f"[fw.secret('crm'), 'FW_SECRET_' in {listing}]")
    out, err = process.communicate(timeout=50)
    assert (json.loads(out), process.returncode) == (["a credential", False], 0), err


def test_eval_of_value_that_cannot_be_shown_commits_nothing(fw: CommandLine) -> None:
    """C-127."""
    unshowable = "type('Unshowable', (), {'__repr__': lambda self: 1 / 0})()"
    result = fw.run("eval", f"({MAKE}, {unshowable})", "--commit")
    assert result.exit_code == 1
    assert fw.json("eval", LOOK) is None


@pytest.mark.parametrize(("level", "shown"), [("info", False), ("debug", True)])
def test_short_command_logs_below_warning_only_at_debug(
    fw: CommandLine, level: str, shown: bool
) -> None:
    """The output of a command is its result (C-125)."""
    noted = "__import__('structlog').get_logger()"
    result = fw.run(
        "eval", f"[{noted}.info('noted'), {noted}.warning('doubtful')]", FW_LOG_LEVEL=level
    )
    assert result.exit_code == 0
    assert ("noted" in result.stderr) is shown
    assert "doubtful" in result.stderr
