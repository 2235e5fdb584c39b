"""docs/runtime.md, "Calls by example": its snippets run, one after the other, in virtual time."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from fw_actors.runtime import ActorRef, Context, KeyedRef, Runtime
from supervisors import Supervisor

PAGE = (Path(__file__).parents[3] / "docs" / "runtime.md").read_text()
SECTION = PAGE.split("## Calls by example\n")[1].split("\n## ")[0]
PARTS = [
    (part.split("\n")[0], text)
    for part in SECTION.split("\n### ")[1:]
    for text in re.findall(r"```python\n(.*?)```", part, re.DOTALL)
]


def compiled(name: str, text: str) -> CodeType:
    code: CodeType = compile(text, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return code


async def test_page_snippets_run_as_printed(runtime: Runtime) -> None:
    names: dict[str, Any] = {"runtime": runtime, "__name__": "snippets"}
    for name, text in PARTS:
        running = eval(compiled(name, text), names)
        if inspect.iscoroutine(running):
            await running


KINDS = [ActorRef, KeyedRef, Context, Supervisor]
FOR_THE_RUNTIME = {
    "cell", "cells", "name", "key", "clock", "entropy", "log", "one_line", "ref", "snapshot",
    "start", "terminate", "works", "room_for_work", "presence", "add_watch", "remove_watch",
    "begin_phases", "while_wanted",
    "target",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_page_snippets_show_each_call(kind: type) -> None:
    calls = {name for name in dir(kind) if not name.startswith("_")} - FOR_THE_RUNTIME
    text = "".join(text for _, text in PARTS)
    assert {name for name in calls if not re.search(rf"\.{name}\b", text)} == set()
