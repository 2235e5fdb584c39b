"""Type errors that mypy and pyright, both strict, find in programs that use the runtime."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = (ROOT / "docs" / "runtime.md").read_text()
ERROR: Final = re.compile(r"(\w+\.py):(\d+):.*\berror\b")

HEAD: Final = """
from collections.abc import AsyncIterator
from enum import Enum
from fw_actors.runtime import (Actor, ActorRef, KeyedActor, Message, PendingReply, Request, Runtime,
                               handles)
from supervisors import Supervisor, actor_child

class Ask(Request[int], frozen=True):
    number: int

class Note(Message, frozen=True):
    text: str

class Other(Actor):
    pass

class Stage(Enum):
    EARLY = 1
    LATE = 2
"""

GOOD: Final = """
class Good(Actor):
    @handles(Ask)
    def plain(self, message: Ask) -> int:
        return message.number

class GoodAsync(Actor):
    @handles(Ask)
    async def later(self, message: Ask) -> int:
        return message.number

    @handles(Note)
    async def note(self, message: Note) -> None:
        self.text = message.text

class GoodKeeps(Actor):
    @handles(Ask)
    def kept(self, message: Ask) -> PendingReply[int]:
        return self.context.keep_reply()

class GoodEither(Actor):
    @handles(Ask)
    async def either(self, message: Ask) -> int | PendingReply[int]:
        return 1 if message.number else self.context.keep_reply()

class GoodPhases(Actor):
    first_phase = Stage.EARLY

    @handles(Ask, phase=Stage.LATE)
    async def late(self, message: Ask) -> int:
        self.context.enter(Stage.EARLY)
        return message.number

    @handles(Note)
    def note(self, message: Note) -> None:
        self.context.stash(message)

class GoodStash(Actor):
    @handles(Ask)
    def aside(self, message: Ask) -> int | PendingReply[int]:
        return message.number or self.context.stash(message)

class GoodBool(KeyedActor):
    @handles(Ask)
    def narrower(self, message: Ask) -> bool:
        return self.context.key.isdigit()

async def use(runtime: Runtime, supervisor: Supervisor) -> int:
    ref = runtime.ref("good", of=Good)
    started: ActorRef[Good] = await supervisor.start_child(actor_child("good", Good))
    wide: ActorRef = started
    async with runtime.running("good", Good) as running:
        same: ActorRef[Good] = running
        same.tell(Note("a"))
    return await ref.ask(Ask(1), deadline=1.0) + await wide.ask(Ask(1))
"""

BAD: Final = """
class Bad1(Actor):
    @handles(Ask)  # bad
    def text(self, message: Ask) -> str: return "1"

class Bad2(Actor):
    @handles(Ask)  # bad
    def nothing(self, message: Ask) -> None: return None

class Bad3(Actor):
    @handles(Ask)  # bad
    async def text(self, message: Ask) -> str: return "1"

class Bad4(Actor):
    @handles(Ask)  # bad
    def other(self, message: Note) -> int: return 1

class Bad5(Actor):
    @handles(Ask)  # bad
    async def stream(self, message: Ask) -> AsyncIterator[int]: yield 1

class Bad6(Actor):
    @handles(Note)  # bad
    def answers(self, message: Note) -> int: return 1

class Bad7(Actor):
    @handles(Ask)  # bad
    def kept(self, message: Ask) -> PendingReply[str]: return self.context.keep_reply()

class Bad8(Actor):
    @handles(Ask, phase=Stage.LATE)  # bad
    def late(self, message: Ask) -> str: return "1"

class Bad9(Actor):
    @handles(Ask, phase="late")  # bad
    def late(self, message: Ask) -> int: return 1

async def misuse(runtime: Runtime) -> None:
    wrong: ActorRef[Bad1] = runtime.ref("other", of=Other)  # bad
    text: str = await wrong.ask(Ask(1), deadline=1.0)  # bad
    print(text)
"""


PROGRAMS: Final = {
    "good.py": HEAD + GOOD,
    "bad.py": HEAD + BAD,
    "example.py": re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0],
}
CHECKERS: Final = {
    "mypy": ("--strict", "--no-error-summary", "--cache-dir", "cache"),
    "pyright": ("--pythonpath", sys.executable),
}
PYRIGHT: Final = '{"typeCheckingMode": "strict", "reportUnusedImport": false}'
Errors = dict[str, set[int]]


@pytest.fixture(scope="module", params=CHECKERS)
def errors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Errors:
    """Run a checker on all programs at once; return the lines of each with an error.

    It runs in their folder, so that it sees the packages as installed ones.
    """
    folder = tmp_path_factory.mktemp("programs")
    (folder / "pyrightconfig.json").write_text(PYRIGHT)
    for name, program in PROGRAMS.items():
        (folder / name).write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", request.param, *CHECKERS[request.param], *PROGRAMS],
        cwd=folder,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout + done.stderr  # at least the bad one has errors
    found: Errors = {name: set() for name in PROGRAMS}
    for name, number in ERROR.findall(done.stdout):
        found[name].add(int(number))
    return found


def test_checker_passes_good_programs(errors: Errors) -> None:
    """R-23."""
    assert errors["good.py"] == set()


def test_checker_finds_each_bad_handler_and_use(errors: Errors) -> None:
    """R-23: at the decorator, or in the function below it."""
    lines = PROGRAMS["bad.py"].splitlines()
    bad = {number for number, line in enumerate(lines, 1) if line.endswith("# bad")}
    found = errors["bad.py"]
    assert {number for number in bad if not found & {number, number + 1}} == set()
    assert {number for number in found if not bad & {number, number - 1}} == set()


def test_checker_passes_the_first_example_of_the_page(errors: Errors) -> None:
    """R-23."""
    assert errors["example.py"] == set()
