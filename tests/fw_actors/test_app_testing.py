"""The plugin for tests of apps: what the service does too, and wrong use (D-172)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parents[2]), "FW_SECRET_SHOP": "of the tests"}

APP = """
from fw_actors.app import Data, DocType

RUN = []

class Kit(DocType):
    title = Data()

    def after_commit(self, fw):
        if self.title == "late":
            raise ValueError("too late")

def fail(fw, error):
    fw.new_doc("Kit", title="half").insert()
    raise {"zero": ZeroDivisionError, "exit": SystemExit}[error]

async def later(fw):
    RUN.append("later")

def yielding(fw):
    RUN.append("yielding")
    yield
"""
TESTS = """
import kit_app
import pytest
import trio
from fw_actors.errors import ValidationError

def test_plain(app_site): ...

async def test_after_it(app_site):
    await app_site.write(lambda fw: fw.new_doc("Kit", title="x").insert())

async def test_secret(app_site):
    assert await app_site.read(lambda fw: fw.secret("shop")) == "of the tests"

@pytest.mark.parametrize("error", ["zero", "exit"])
async def test_failed_job(app_site, error):
    await app_site.write(lambda fw: fw.enqueue(kit_app.fail, error=error))
    raised = (ZeroDivisionError, SystemExit)
    with pytest.raises(raised):
        await app_site.run_jobs()
    assert await app_site.run_jobs() == 0
    await trio.sleep(30)
    with pytest.raises(raised):
        await app_site.run_jobs()
    await trio.sleep(30)
    assert await app_site.run_jobs() == 0
    for attempt in range(2, 10):
        await trio.sleep(3600)
        with pytest.raises(raised):
            await app_site.run_jobs()
    await trio.sleep(36000)
    assert await app_site.run_jobs() == 0
    logs = await app_site.read(lambda fw: fw.get_all("Error Log", fields=["method"]))
    assert logs == [{"method": "kit_app.fail"}] * 10
    assert await app_site.read(lambda fw: fw.count("Kit")) == 0

async def test_failed_after_commit(app_site):
    await app_site.write(lambda fw: fw.new_doc("Kit", title="late").insert())
    logs = await app_site.read(lambda fw: fw.get_all("Error Log", fields=["method"]))
    assert logs == [{"method": "Kit.after_commit"}]

async def test_watched_name(app_site):
    with pytest.raises(ValidationError, match="no DocType Kid"):
        await app_site.watch("Kid")

@pytest.mark.parametrize("call", ["write", "read"])
@pytest.mark.parametrize("function", [kit_app.later, kit_app.yielding])
async def test_function_that_runs_later(app_site, call, function):
    with pytest.raises(RuntimeError, match="did nothing: it must be a plain function"):
        await getattr(app_site, call)(function)
    assert kit_app.RUN == []
"""


def test_app_site_acts_as_the_service_and_refuses_wrong_use(tmp_path: Path) -> None:
    """A failed job is retried after the same waits, with an Error Log each time, and `fw.secret`
    reads the environment.

    A plain test function fails by itself, and says why; a coroutine function in place of a plain
    one would run nothing, and its test would pass.
    """
    (tmp_path / "kit_app.py").write_text(APP)
    (tmp_path / "test_kit.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["fw_actors.app_testing"]\n')
    (tmp_path / "fw.json").write_text('{"apps": ["kit_app"]}')
    output = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=tmp_path, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True,
        check=False, timeout=120,
    ).stdout  # fmt: skip
    assert "a test with app_site must be an async function" in output
    assert "1 error" in output or "1 failed" in output, output
    assert "10 passed" in output, output
