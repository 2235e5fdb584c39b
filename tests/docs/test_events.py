"""The events of the log that the pages name are those that the code writes, and all of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from fw_actors.ops.audit import Action

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
LEVELS = {"debug", "info", "warning", "error", "exception"}
EVENT = re.compile(r"[a-z]+(_[a-z]+)*(\.[a-z]+(_[a-z]+)*)?")
TOKEN = re.compile(r"`([a-z_]+(?:\.[a-z_]+)?)`")


def logged(*folders: str) -> set[str]:
    """The events that a folder's modules write: what a call of a log begins with, and the texts
    that reach one by a name (a constant, or an argument of `_warn`)."""
    found: set[str] = set()
    for folder in folders:
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                found.update(_events(node))
    return found


def _events(node: ast.AST) -> Iterator[str]:
    """The event that a call of a log, or the assignment of a constant EVENT, names."""
    if isinstance(node, ast.Call) and node.args and _is_log(node.func):
        yield from _texts(node.args[0])
    if isinstance(node, ast.AnnAssign) and node.value and ast.unparse(node.target) == "EVENT":
        yield from _texts(node.value)


def _is_log(function: ast.expr) -> bool:
    name = ast.unparse(function)
    last = name.rpartition(".")[2]
    return last in {"log", "_log", "_warn"} or name == "tell" or (last in LEVELS and "log" in name)


def _texts(value: ast.expr) -> Iterator[str]:
    text = value.value if isinstance(value, ast.Constant) else None
    if isinstance(text, str) and EVENT.fullmatch(text):
        yield text


@cache
def of_the_service() -> set[str]:
    folders = ("fw_actors", "supervisors", "web", "fw_cli")
    return {event for event in logged(*folders) if "." in event} - {"fw.test"}  # sent, not logged


def test_logged_finds_the_events_of_the_code() -> None:
    """Guards the tests below, which would compare nothing if no event were found."""
    assert {"web.request", "delivery.attempted", "job.failed", "mail.sent", "sign_in.ended"} <= (
        of_the_service()
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_names_only_events_of_the_code(page: Path) -> None:
    """Of the changelog, what is not released yet: an older event may have another name now."""
    text, _, _ = page.read_text().partition("\n## [0.")
    named = {name for name in TOKEN.findall(text) if "." in name}
    service = of_the_service()
    areas = {event.partition(".")[0] for event in service}
    events = {name for name in named if name.partition(".")[0] in areas}
    assert events - service - {action.value for action in Action} == set()


def test_operating_page_names_exactly_the_events_in_its_section_on_the_log() -> None:
    text = (ROOT / "docs" / "operating.md").read_text()
    section = text.split("## The log")[1].split("\n## ")[0]
    named = {name for name in TOKEN.findall(section) if "." in name}
    assert named == of_the_service()


def test_runtime_page_names_exactly_its_events() -> None:
    """The table after "The events:" is the whole list."""
    text = (ROOT / "docs" / "runtime.md").read_text()
    match = re.search(r"The events:\n\n(.*?)\n\n", text, re.DOTALL)
    assert match is not None
    code = {e for e in logged("fw_actors/runtime", "supervisors") if "." not in e}
    assert set(TOKEN.findall(match[1])) == code
