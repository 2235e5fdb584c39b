"""The pages agree with the code; a command or a number that no page mentions fails the run."""

from __future__ import annotations

import io
import json
import re
import tomllib
import urllib.request
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import click.testing
import msgspec
import pytest

from fw_actors import app, errors
from fw_actors.actors.mailer import MAIL_SECONDS
from fw_actors.documents.core import CORE, Webhook
from fw_actors.documents.doctype import HOOKS, DocTypeBase
from fw_actors.documents.fields import Field, Int
from fw_actors.documents.handle import DocType, Fw, Webhooks
from fw_actors.documents.query import OPERATORS
from fw_actors.mail.message import Template, TemplateValues, render
from fw_actors.ops.audit import Action
from fw_actors.ops.declared_state import DeclaredScope, DeclaredState, DeclaredUser
from fw_cli.main import cli
from tests.pages.__main__ import PAGES, main, outdated
from tests.pages.building import BuildFailed, build, navigation, unlisted
from tests.pages.command_line import command_line
from tests.pages.http import NO_GATEWAY, SITE, http_reference
from tests.supervisors.service.metrics_kit import EXPECTED
from web.app import api_routes
from web.exchange import RequestMetrics
from web.openapi import DESCRIBED
from web.routes.health import HealthRoutes

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
HISTOGRAM = re.compile(r"_seconds_(bucket|sum|count)$")
OF_THE_FRONT = {"fw_requests", "fw_server_errors", "fw_request_seconds", "fw_forwarded_ignored"}
OF_SEVERAL_PROCESSES = {"fw_process_up", "fw_process_restarts"}
LINK = re.compile(r"\]\(([a-z-]+\.md)\)")
SPOKEN = re.compile(r"(?:`|\bscripts/)fw ((?:[a-z]+[ -]?)+)")
FILE = re.compile(r"`((?:fw_actors|fw_cli|supervisors|web|tests|docs|scripts)/[\w./-]+)`")
METRIC = re.compile(r"\bfw_[a-z_]+\b")


def test_pages_build_without_a_broken_link(tmp_path: Path) -> None:
    build(ROOT, tmp_path)
    pages = {path.stem for path in DOCS.glob("*.md")}
    assert pages <= {path.stem for path in tmp_path.glob("*.html")}
    assert "fw webhooks explain" in (tmp_path / "command-line.html").read_text()
    assert "POST /api/auth/forgot-password" in (tmp_path / "http.html").read_text()
    first = (tmp_path / "getting-started.html").read_text()
    assert 'aria-label="Next: Writing an app"' in first
    assert '<span class="nb">cd</span>' in first  # highlighted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[there](nowhere.md)", "page does not exist"),
        ("[there](index.md#nowhere)", "anchor does not exist"),
        ("[there][nowhere]", "unresolved link reference"),
        ("![picture](nowhere.svg)", "nowhere.svg leads to no file"),
        ("```json\n{'no': 'json'}\n```", "not of its language"),
    ],
)
def test_build_reports_what_is_broken(text: str, expected: str, tmp_path: Path) -> None:
    configuration = (ROOT / "mkdocs.yml").read_text().partition("nav:")[0]
    (tmp_path / "mkdocs.yml").write_text(f"{configuration}nav: [Home: index.md]\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Page\n{text}\n")
    with pytest.raises(BuildFailed, match=expected):
        build(tmp_path, tmp_path / "built")
    assert not (tmp_path / "built").exists()


def test_navigation_names_each_page_once(tmp_path: Path) -> None:
    assert list(unlisted(ROOT)) == []
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "lost.md").touch()
    (tmp_path / "mkdocs.yml").write_text("nav: [Home: index.md]\n")
    assert list(unlisted(tmp_path)) == [
        "docs/lost.md must be named once in the navigation of mkdocs.yml"
    ]


def test_index_has_the_sections_and_pages_of_the_navigation() -> None:
    _, *sections = re.split(r"^## ", (DOCS / "index.md").read_text(), flags=re.MULTILINE)
    links = [(text.partition("\n")[0], LINK.findall(text)) for text in sections]
    assert links == navigation(ROOT)[1:]


def test_fields_page_has_the_types_options_and_hooks_of_the_code() -> None:
    page = (DOCS / "fields.md").read_text()
    types, options, doctypes, _, _, hooks, _ = page.split("\n## ")[1:]
    kinds = [kind for kind in map(app.__dict__.get, app.__all__) if isinstance(kind, type)]
    assert named_first(types) == {k.__name__ for k in kinds if issubclass(k, Field)}
    taken = {*signature(Field).parameters, *signature(Int).parameters} - {"unknown"}
    assert named_first(options) == taken
    declared = set(signature(DocTypeBase.__init_subclass__).parameters) - {"unknown"}
    attributes = {"title_field", "index_together", "unique_together"}
    assert named_first(doctypes) == declared | attributes
    assert named_first(hooks) == set(HOOKS)


def test_fields_page_names_each_call_of_handle_and_documents() -> None:
    """The calls of D-190 and D-191."""
    page = (DOCS / "fields.md").read_text().split("\n## The handle\n")[1]
    handle, document = page.split("\n| Method |")
    calls = {f"fw.{name}" for name in public(Fw) - {"db", "webhooks"}}
    calls |= {f"fw.webhooks.{name}" for name in public(Webhooks)} | {"fw.db.sql"}
    assert {each.partition("(")[0] for each in named_first(handle)} == calls
    methods = {each.partition("(")[0] for each in named_first(document)}
    assert methods == public(DocType) - {"doctype", "from_row", "meta"}


def public(cls: type) -> set[str]:
    return {name for name in vars(cls) if not name.startswith("_")}


def test_filters_page_has_the_operators_of_the_code() -> None:
    page = (DOCS / "filters.md").read_text().split("## Filters\n")[1].split("\n## ")[0]
    assert named_first(page) == set(OPERATORS)


def test_operating_page_names_each_key_of_a_declared_state() -> None:
    page = (DOCS / "operating.md").read_text().split("\n## Declare ")[1].split("\n## ")[0]
    assert tomllib.loads(page.split("```")[1].partition("\n")[2])
    top, webhook, user = page.split("\n| Key")[1:]
    fields = Webhook.meta.fields.values()
    assert named_first(top) == keys_of(DeclaredState)
    assert named_first(webhook) == {field.name for field in fields if not field.read_only}
    assert named_first(user) == keys_of(DeclaredUser)
    assert all(f"`{key}`" in user for key in keys_of(DeclaredScope))


def keys_of(struct: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct)}


def named_first(text: str) -> set[str]:
    """Return the names in the first columns of tables, without example values."""
    cells = re.findall(r"^\| (`[^|]+`) \|", text, re.MULTILINE)
    spans = {span for cell in cells for span in re.findall(r"`([^`]+)`", cell)}
    return {span.partition(" = ")[0] for span in spans}


def test_generated_pages_are_up_to_date() -> None:
    """scripts/docs writes them."""
    assert outdated(DOCS) == []


def test_core_field_has_description() -> None:
    fields = [field for cls in CORE for field in cls.meta.fields.values()]
    assert len(fields) > 50
    assert [field.name for field in fields if not field.description] == []


def test_made_pages_check_reports_outdated_pages_until_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "http.md").write_text("# HTTP\n")
    run = click.testing.CliRunner().invoke
    refused = run(main, ["--check", "--folder", str(tmp_path)])
    assert refused.exit_code == 1
    assert "docs/command-line.md and docs/doctypes.md and docs/http.md must" in refused.output
    assert run(main, ["--folder", str(tmp_path)]).exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == set(PAGES)
    assert run(main, ["--check", "--folder", str(tmp_path)]).exit_code == 0


def test_architecture_names_files_packages_and_settings_that_exist() -> None:
    page = (DOCS / "architecture.md").read_text()
    files = FILE.findall(page)
    assert len(files) > 15
    assert [file for file in files if not (ROOT / file).exists()] == []
    packages = re.findall(r"^\| `([a-z_.]+)` \|", page.split("## Flow")[0], re.MULTILINE)
    paths = [ROOT / name.replace(".", "/") for name in packages]
    assert [path for path in paths if not (path.is_dir() or path.with_suffix(".py").exists())] == []
    settings = set(re.findall(r"`((?:web|ops|auth)\.[a-zA-Z]+)`", page))
    configuration = (DOCS / "configuration.md").read_text()
    assert [name for name in settings if name.partition(".")[2] not in configuration] == []


def test_architecture_has_the_layers_that_are_checked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract, *others = project["tool"]["importlinter"]["contracts"]
    rules = (DOCS / "architecture.md").read_text().split("Five more import rules are enforced: ")
    assert len(rules[1].partition("\n")[0].split("; ")) == len(others) == 5
    layers = re.findall(r"[a-z_.]+", " ".join(contract["layers"]))
    drawing = (DOCS / "architecture.md").read_text().split("```")[1]
    below = drawing
    for layer in layers:  # each stands below the one before
        name = layer.removeprefix("fw_actors.").replace(".", r"\.")
        found = re.search(rf"\b{name}\b", below)
        assert found is not None, layer
        below = below[found.end() :]


def test_http_page_says_what_each_field_means_and_shows_each_request() -> None:
    page = http_reference()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.split(" | ")[-1].strip(" |") == ""] == []
    bodies = [part for part in page.split("\n## ") if "| Body | Type | Meaning |" in part]
    assert bodies
    assert [part.splitlines()[0] for part in bodies if '```json title="Example"' not in part] == []


def test_http_page_states_the_defaults_of_optional_fields() -> None:
    row = "| `overlap` | integer, optional, default 0 |"
    assert row in http_reference().partition("webhooks.rotate")[2]


def test_http_page_has_every_operation_and_error() -> None:
    page = http_reference()
    paths = api_routes(NO_GATEWAY, SITE, HealthRoutes(NO_GATEWAY, RequestMetrics()))
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
def test_command_and_options_have_help_and_a_section(path: str, command: click.Command) -> None:
    """C-129."""
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


def test_mentioned_commands_exist() -> None:
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


def test_operating_page_lists_exactly_the_metrics() -> None:
    table = (DOCS / "operating.md").read_text().split("\n## Metrics\n")[1].split("\n## ")[0]
    assert named(table) == set(EXPECTED.split()) | OF_THE_FRONT | OF_SEVERAL_PROCESSES


def test_operating_page_lists_exactly_the_alerts() -> None:
    """Each alert has a row with the steps to take."""
    table = (DOCS / "operating.md").read_text().split("\n## Alerts\n")[1]
    rows = re.findall(r"^\| (Fw\w+) \|", table, re.MULTILINE)
    rules = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text()
    assert rows == re.findall(r"- alert: (\w+)", rules)


def test_commands_of_alerts_exist() -> None:
    rules = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text()
    spoken = re.findall(
        r"(?:todo: |then |run |[,;.] |and )fw ((?:[a-z]+ ?)+)", rules, re.IGNORECASE
    )
    assert len(spoken) > 9
    assert [each for each in spoken if unknown_command(each.split())] == []


def test_operating_page_lists_exactly_the_audit_actions() -> None:
    table = (DOCS / "operating.md").read_text().split("## Audit Events")[1].split("## Metrics")[0]
    names = re.findall(r"^\| `([A-Za-z_.]+)` \|", table, re.MULTILINE)
    assert sorted(names) == sorted(action.value for action in Action)


@pytest.mark.parametrize("file", ["prometheus/alerts.yml", "grafana/fw.json"])
def test_alerts_and_dashboard_use_existing_metrics(file: str) -> None:
    known = set(EXPECTED.split()) | OF_THE_FRONT | OF_SEVERAL_PROCESSES
    assert named((ROOT / "deploy" / file).read_text()) <= known


def test_dashboard_panels_do_not_overlap() -> None:
    panels: list[dict[str, Any]] = json.loads((ROOT / "deploy/grafana/fw.json").read_text())[
        "panels"
    ]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len({panel["id"] for panel in panels}) == len(panels)
    assert all(target["expr"] for panel in panels for target in panel["targets"])


def test_operating_page_mail_function_takes_the_message_of_the_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """O-57: it has no other keys than those that the page names, and the example sends some."""
    section = (DOCS / "operating.md").read_text().split("\n## Mail\n")[1].split("\n## ")[0]
    code = section.split('```python title="post.py"\n')[1].split("```")[0]
    sent: list[urllib.request.Request] = []

    def urlopen(request: urllib.request.Request, timeout: float) -> io.BytesIO:
        assert 0 < timeout < MAIL_SECONDS
        sent.append(request)
        return io.BytesIO()

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    values = TemplateValues("Desk", "ann", "", "ann@example.org", link="https://fw.example.org/")
    message = render(Template.RECOVERY, values).as_dict()
    module: dict[str, Any] = {}
    exec(code, module)
    module["send"](SimpleNamespace(secret="secret of {}".format), message)
    (request,) = sent
    assert isinstance(request.data, bytes)
    body = json.loads(request.data)
    assert body.items() <= message.items()
    assert request.get_header("Authorization") == "Bearer secret of mail_api"
    assert set(message) == {*body, "template", "link"}
    assert all(f"`{name}`" in section for name in ("template", "link"))
    assert f"each attempt at most {MAIL_SECONDS:g} s" in section
