"""What the pages say is what the code has; a command or a number without a word fails the run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from fw_actors import errors
from fw_actors.ops.audit import Action
from fw_cli.http_reference import NOBODY, SITE, http_reference
from fw_cli.main import cli
from fw_cli.reference import command_line
from tests.supervisors.service.test_readings import EXPECTED
from web.app import api_routes
from web.exchange import Traffic
from web.openapi import DESCRIBED

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
HISTOGRAM = re.compile(r"_seconds_(bucket|sum|count)$")
OF_THE_FRONT = {"fw_requests", "fw_request_seconds", "fw_forwarded_ignored"}
LINK = re.compile(r"\]\(([a-z-]+\.md)\)")
SPOKEN = re.compile(r"(?:`|\bscripts/)fw ((?:[a-z]+[ -]?)+)")
METRIC = re.compile(r"\bfw_[a-z_]+\b")


def test_the_pages_are_built_and_no_link_is_broken(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict", "-d", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = {path.stem for path in DOCS.glob("*.md")}
    assert pages <= {path.stem for path in tmp_path.glob("*.html")}
    assert "fw webhooks explain" in (tmp_path / "command-line.html").read_text()
    assert "POST /api/auth/forgot-password" in (tmp_path / "http.html").read_text()


def test_the_first_page_leads_to_every_other() -> None:
    pages = {path.name for path in DOCS.glob("*.md")}
    assert set(LINK.findall((DOCS / "index.md").read_text())) == pages - {"index.md"}


def test_every_operation_and_every_refusal_is_on_the_page_of_http() -> None:
    page = http_reference()
    paths = api_routes(NOBODY, SITE, Traffic())
    assert [
        heading
        for path in paths
        for verb in path.operations
        if (heading := f"## {verb} {path.rule.replace('<', '{').replace('>', '}')}\n") not in page
        and path.rule.startswith(DESCRIBED)
    ] == []
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    refusals = [k for k in kinds if issubclass(k, errors.FwError) and k is not errors.FwError]
    assert refusals
    assert [k for k in refusals if f"| `{k.__name__}` | {k.status} | " not in page] == []


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


@pytest.mark.parametrize(("path", "command"), list(commands(cli, "fw")))
def test_every_command_and_option_says_what_it_does(path: str, command: click.Command) -> None:
    assert command.help
    if not isinstance(command, click.Group):
        assert f"## {path}\n" in command_line()
    options = [each for each in command.params if isinstance(each, click.Option)]
    assert [each.name for each in options if not each.help] == []


def unknown_command(words: list[str]) -> bool:
    """Whether `fw WORDS…` asks for a command that there is not; what follows one is an argument."""
    group: click.Command | None = cli
    for word in words:
        if not isinstance(group, click.Group):
            return False
        group = group.get_command(click.Context(group), word)
    return group is None


def test_every_command_that_is_spoken_of_is_there() -> None:
    files = [ROOT / "README.md", *DOCS.glob("*.md")]
    for folder in ("fw_actors", "fw_cli", "supervisors", "web"):
        files += (ROOT / folder).rglob("*.py")
    spoken = {(file.name, m) for file in files for m in SPOKEN.findall(file.read_text())}
    assert len(spoken) > len(cli.commands)
    assert [each for each in spoken if unknown_command(each[1].split())] == []


def named(text: str) -> set[str]:
    """The metrics that a text names, as the readings call them."""
    found = set()
    for name in METRIC.findall(text):
        found.add(HISTOGRAM.sub("_seconds", name).removesuffix("_total"))
    return found


def test_every_number_is_on_the_page_of_operating_and_no_other() -> None:
    table = (DOCS / "operating.md").read_text().split("## Numbers")[1]
    assert named(table) == set(EXPECTED.split()) | OF_THE_FRONT


def test_every_action_of_an_audit_event_is_on_the_page_of_operating_and_no_other() -> None:
    table = (DOCS / "operating.md").read_text().split("## Audit Events")[1].split("## Numbers")[0]
    told = re.findall(r"^\| `([A-Za-z_.]+)` \|", table, re.MULTILINE)
    assert sorted(told) == sorted(action.value for action in Action)


@pytest.mark.parametrize("file", ["prometheus/alerts.yml", "grafana/fw.json"])
def test_alerts_and_dashboard_ask_for_numbers_that_there_are(file: str) -> None:
    assert named((ROOT / "deploy" / file).read_text()) <= set(EXPECTED.split()) | OF_THE_FRONT


def test_the_dashboard_has_a_panel_for_each_of_its_places() -> None:
    panels: list[dict[str, Any]] = json.loads((ROOT / "deploy/grafana/fw.json").read_text())[
        "panels"
    ]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len({panel["id"] for panel in panels}) == len(panels)
    assert all(target["expr"] for panel in panels for target in panel["targets"])
