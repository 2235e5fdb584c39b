"""A site in a folder of its own, and its command line: in this process, or as a real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.commands import run_command

PASSWORD = "correct horse battery staple"
LONG_QUERY = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000000)"
    " SELECT count(*) FROM n"
)
"""Takes longer than the shortest `ops.queryTimeoutSeconds`, 0.1 s."""


@dataclass
class CommandLine:
    """`fw` on the site in `folder`; `environ` holds nothing of the caller's FW_ variables."""

    folder: Path
    environ: dict[str, str]

    def run(self, *args: str, stdin: str | bytes | None = None, **environ: str) -> Result:
        """Run a command in this process."""
        return run_command(self.folder, {**self.environ, **environ}, *args, stdin=stdin)

    def done(self, *args: str, stdin: str | bytes | None = None, **environ: str) -> str:
        """Run a command that has to succeed; its stdout."""
        result = self.run(*args, stdin=stdin, **environ)
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        return result.stdout

    def refused(self, *args: str, stdin: str | bytes | None = None, **environ: str) -> str:
        """Run a command that has to be refused as expected, not by a defect; its stderr."""
        result = self.run(*args, stdin=stdin, **environ)
        assert (result.exit_code, result.stdout) == (1, ""), result.output
        assert "Traceback" not in result.stderr
        assert "internal error" not in result.stderr
        return result.stderr

    def json(self, *args: str) -> Any:
        return json.loads(self.done(*args))

    def process(self, *args: str, **popen: Any) -> subprocess.Popen[str]:
        """Run a command as a process, with pipes for all that `popen` does not say."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        environ = {k: v for k, v in os.environ.items() if not k.startswith("FW_")} | self.environ
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "fw_cli", *args],
            cwd=self.folder,
            env=environ,
            text=True,
            **{**pipes, **popen},
        )


@pytest.fixture
def fw(tmp_path: Path) -> CommandLine:
    (tmp_path / "fw.json").write_text('{"site": {"name": "test"}}')
    quick = {"FW_BIND": "127.0.0.1:0", "FW_ARGON2": "8,1,1", "FW_SECRET_KEY": "k" * 40}
    return CommandLine(tmp_path, quick)
