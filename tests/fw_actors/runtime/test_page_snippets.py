"""docs/runtime.md, "Calls by example": its snippets run, one after the other, in virtual time."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from fw_actors.runtime import (
    ActorRef,
    Context,
    KeyedPool,
    KeyedRef,
    Listener,
    MailboxPolicy,
    RestartIntensity,
    Runtime,
    Topic,
    WorkerPool,
    handles,
    open_runtime,
)
from fw_actors.runtime.testing import Probe, probing, restarted
from supervisors import (
    DynamicSupervisor,
    Supervisor,
    actor_child,
    dynamic_child,
    open_supervisor,
    pool_child,
    supervisor_child,
    task_child,
    worker_pool_child,
)

PAGE = (Path(__file__).parents[3] / "docs" / "runtime.md").read_text()
SECTION = PAGE.split("## Calls by example\n")[1].split("\n## ")[0]
PARTS = [
    (part.split("\n")[0], text)
    for part in SECTION.split("\n### ")[1:]
    for text in re.findall(r"```python\n(.*?)```", part, re.DOTALL)
]
TEXT = "".join(text for _, text in PARTS)


def compiled(name: str, text: str) -> CodeType:
    code: CodeType = compile(text, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return code


async def test_page_snippets_run_as_printed(runtime: Runtime) -> None:
    names: dict[str, Any] = {"runtime": runtime, "__name__": "snippets"}
    for name, text in PARTS:
        running = eval(compiled(name, text), names)
        if inspect.iscoroutine(running):
            await running


KINDS: dict[type, set[str]] = {
    ActorRef: {"cell"},
    KeyedRef: set(),
    Context: {"log", "begin_phases", "while_wanted"},
    KeyedPool: {
        "activated", "became_idle", "became_quiet", "cell", "cells", "deactivated",
        "end_instances", "existing_cell", "give_mailbox", "inject_faults", "is_closed", "is_held",
        "leaves", "parked", "policy_of", "terminate", "too_often", "unparked",
    },
    Listener: {"join", "schedule"},
    Runtime: {
        "add_node", "cell", "check_open", "check_thread", "count_late_reply", "mailbox_of",
        "report_overdue", "report_slow", "remove_node",
    },
    Supervisor: {"cells", "start", "terminate"},
    DynamicSupervisor: {"attach"},
    Probe: {"receive"},
}  # fmt: skip
"""The classes whose methods a program calls, and what is for the runtime alone."""
OF_ALL = {"presence", "add_watch", "remove_watch", "target", "one_line", "statistics"}


@pytest.mark.parametrize("kind", KINDS)
def test_page_snippets_show_each_call(kind: type) -> None:
    calls = {name for name in dir(kind) if not name.startswith("_")} - KINDS[kind] - OF_ALL
    assert {name for name in calls if not re.search(rf"\b{name}\b", TEXT)} == set()


CALLS: list[Callable[..., Any]] = [
    open_runtime, Runtime.running, KeyedPool, WorkerPool, MailboxPolicy, Topic.subscribe,
    Topic.listening, Context.work, Context.ask, Context.after, Context.every, Context.watch,
    open_supervisor, actor_child, task_child, supervisor_child, pool_child, dynamic_child,
    worker_pool_child, DynamicSupervisor, RestartIntensity, handles, restarted, probing,
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_page_snippets_show_each_argument(call: Callable[..., Any]) -> None:
    """Of those that are given by name."""
    given = {
        name
        for name, parameter in inspect.signature(call).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert {name for name in given if not re.search(rf"\b{name}=", TEXT)} == set()
