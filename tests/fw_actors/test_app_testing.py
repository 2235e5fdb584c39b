"""Wrong use of the plugin for tests of apps (D-172)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

APP = """
from fw_actors.app import Data, DocType

RUN = []

class Kit(DocType):
    title = Data()

async def later(fw):
    RUN.append("later")

def yielding(fw):
    RUN.append("yielding")
    yield
"""
TESTS = """
import kit_app
import pytest

def test_plain(app_site): ...

async def test_after_it(app_site):
    await app_site.write(lambda fw: fw.new_doc("Kit", title="x").insert())

@pytest.mark.parametrize("call", ["write", "read"])
@pytest.mark.parametrize("function", [kit_app.later, kit_app.yielding])
async def test_function_that_runs_later(app_site, call, function):
    with pytest.raises(RuntimeError, match="did nothing: it must be a plain function"):
        await getattr(app_site, call)(function)
    assert kit_app.RUN == []
"""


def test_app_site_refuses_plain_tests_and_functions_that_run_later(tmp_path: Path) -> None:
    """A plain test function fails by itself, and says why; a coroutine function in place of a plain
    one would run nothing, and its test would pass."""
    (tmp_path / "kit_app.py").write_text(APP)
    (tmp_path / "test_kit.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["fw_actors.app_testing"]\n')
    (tmp_path / "fw.json").write_text('{"apps": ["kit_app"]}')
    output = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        check=False, timeout=120,
    ).stdout  # fmt: skip
    assert "a test with app_site must be an async function" in output
    assert "1 error" in output or "1 failed" in output, output
    assert "5 passed" in output, output
