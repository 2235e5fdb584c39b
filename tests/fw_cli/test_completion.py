"""Shell completion: the scripts, and the values that fw offers them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from fw_cli.context import CommandContext
from fw_cli.main import cli
from tests.fw_cli.conftest import CommandLine


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_asks_fw(fw: CommandLine, shell: str) -> None:
    script = fw.done("completion", shell)
    assert f"_FW_COMPLETE={shell}_complete" in script


def test_bash_completion_script_has_valid_syntax(fw: CommandLine) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    subprocess.run([bash, "-n"], input=fw.done("completion", "bash"), text=True, check=True)


@pytest.mark.parametrize(
    ("typed", "inserted"),
    [("Sys", r"System\ Manager"), (r"System\ M", r"System\ Manager"), ('"Sys', "System Manager")],
)
def test_bash_completion_escapes_value_with_space(
    fw: CommandLine, tmp_path: Path, typed: str, inserted: str
) -> None:
    """Within a quote that is open, the value stands as it is."""
    program = tmp_path / "fw"
    program.write_text("#!/bin/sh\necho 'plain,System Manager'\n")
    program.chmod(0o700)
    script = f"""{fw.done("completion", "bash")}
COMP_WORDS=(fw user role ann --add "$1") COMP_CWORD=5
_fw_completion {program}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "-c", script, "bash", typed], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [inserted]


@pytest.mark.parametrize(
    ("args", "begun", "offered"),
    [
        ([], "do", ["doctor"]),
        (["webhooks"], "ex", ["explain"]),
        (["webhooks", "list", "--status"], "S", ["Sent"]),
        (["webhooks", "list", "--status"], "f", ["Failed"]),
        (
            ["audit", "--action"],
            "user.r",
            [
                "user.rename",
                "user.resend_invite",
                "user.reset_password",
                "user.revoke_keys",
                "user.revoke_sessions",
            ],
        ),
        (["doctor"], "--j", ["--json"]),
    ],
)
def test_completion_offers_commands_options_and_values(
    args: list[str], begun: str, offered: list[str]
) -> None:
    complete = ShellComplete(cli, {}, "fw", "_FW_COMPLETE")
    assert [item.value for item in complete.get_completions(args, begun)] == offered


def completed(fw: CommandLine, *typed: str, **environ: str) -> list[str]:
    """Return the shell's completions of the last word."""
    context = CommandContext({**fw.environ, **environ}, fw.folder)
    complete = ShellComplete(cli, {"obj": context}, "fw", "_FW_COMPLETE")
    return [item.value for item in complete.get_completions(list(typed[:-1]), typed[-1])]


def test_completion_offers_names_of_store(fw: CommandLine) -> None:
    """Names are completed from the store, which is not opened for it (C-157)."""
    assert completed(fw, "webhooks", "show", "") == []
    assert not (fw.folder / "data").exists()
    for name in ("erp", "crm"):
        fw.done("webhooks", "add", "https://x.example/", "--name", name, "--event", "a.b")
    (delivery,) = fw.json("eval", 'fw.webhooks.emit("a.b", {})["deliveries"][:1]', "--commit")
    assert completed(fw, "webhooks", "show", "") == ["erp", "crm"]
    assert completed(fw, "webhooks", "list", "--webhook", "e") == ["erp"]
    assert delivery in completed(fw, "webhooks", "explain", "msg_")
    assert completed(fw, "user", "add", "--role", "Sys") == ["System Manager"]
    assert completed(fw, "webhooks", "show", "", FW_BIND="nonsense") == []


def test_completion_offers_events_of_webhooks(fw: CommandLine) -> None:
    """Each event once, however many Webhooks subscribe to it (C-157)."""
    assert completed(fw, "webhooks", "emit", "") == []
    for name, event in (("erp", "order.paid"), ("crm", "order.paid"), ("bi", "user.added")):
        fw.done("webhooks", "add", "https://x.example/", "--name", name, "--event", event)
    assert completed(fw, "webhooks", "emit", "") == ["order.paid", "user.added"]
    assert completed(fw, "webhooks", "emit", "or") == ["order.paid"]
    for command in (["add", "https://x.example/"], ["edit", "erp"]):
        assert completed(fw, "webhooks", *command, "--event", "u") == ["user.added"]


def test_completion_offers_names_from_postgresql(fw: CommandLine, postgres_url: str) -> None:
    fw.environ["FW_DATABASE"] = postgres_url
    assert completed(fw, "user", "passwd", "") == []
    fw.done("migrate")
    assert completed(fw, "user", "add", "--role", "E") == ["Event Publisher"]
    for name in ("erp", "crm"):
        fw.done("webhooks", "add", "https://x.example/", "--name", name, "--event", "a.b")
    assert completed(fw, "webhooks", "emit", "a") == ["a.b"]


def test_completion_passes_over_database_host_that_is_down(
    fw: CommandLine, postgres_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is printed into the line that the user types (C-157)."""
    fw.environ["FW_DATABASE"] = postgres_url
    fw.done("migrate")
    fw.environ["FW_DATABASE"] = postgres_url.replace("?host=", "?host=/nowhere,")
    capfd.readouterr()
    assert completed(fw, "user", "add", "--role", "E") == ["Event Publisher"]
    assert capfd.readouterr() == ("", "")
