"""Shell completion: the scripts, and what they are told."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from click.shell_completion import ShellComplete

from fw_cli.main import cli
from tests.fw_cli.conftest import CommandLine


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_asks_fw(fw: CommandLine, shell: str) -> None:
    script = fw.done("completion", shell)
    assert f"_FW_COMPLETE={shell}_complete" in script


def test_the_script_of_bash_is_bash(fw: CommandLine) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    subprocess.run([bash, "-n"], input=fw.done("completion", "bash"), text=True, check=True)


@pytest.mark.parametrize(
    ("args", "begun", "offered"),
    [
        ([], "do", ["doctor"]),
        (["webhooks"], "ex", ["explain"]),
        (["webhooks", "list", "--status"], "S", ["Sent"]),
        (["doctor"], "--j", ["--json"]),
    ],
)
def test_commands_options_and_values_are_offered(
    args: list[str], begun: str, offered: list[str]
) -> None:
    complete = ShellComplete(cli, {}, "fw", "_FW_COMPLETE")
    assert [item.value for item in complete.get_completions(args, begun)] == offered
