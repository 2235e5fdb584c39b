"""The options, scripts, files and settings that pages mention exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest

from fw_actors.config.parsing import VARIABLES
from fw_actors.config.policy import SECTIONS, keys_of
from fw_cli.main import cli

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FILE = re.compile(
    r"`((?:fw_actors|fw_cli|fw_client|supervisors|web|tests|docs|scripts|deploy|examples|\.github)"
    r"/[\w./@-]+)`"
)
GENERATED = {  # files of the wheel, and of a run of the tests
    "fw_actors/constraints.txt", "fw_actors/constraints-otel.txt", "tests/browser/screenshots",
}  # fmt: skip
SETTING = re.compile(r"`((?:web|ops|auth|login|site)\.[a-z]+[A-Z][a-zA-Z]*)`")
VARIABLE = re.compile(r"`(FW_[A-Z0-9_]+)\b")
ALERT = re.compile(r"\balerts? (Fw[A-Za-z]+)")
TYPED = re.compile(
    r"(?:`|\bscripts/|/bin/|^|[(|] ?|&& |\bfw )fw ((?:(?!\$\()[^`\n|;&)\"])+)", re.MULTILINE
)
SCRIPT = re.compile(r"\bscripts/([a-z]+)((?: [^`\n#;|]+)?)")
CURRENT = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted(DOCS.glob("*.md")) if page.stem not in {"decisions", "benchmarks"}),
]
"""The pages about the present; decisions and benchmarks may name files of the past."""


def options_of(words: list[str]) -> set[str] | None:
    """The options of the command with which `words` begin; None if there is no such command."""
    group: click.Command = cli
    for word in words:
        if word.startswith("-") or not isinstance(group, click.Group):
            break
        command = group.get_command(click.Context(group), word)
        if command is None:
            return None
        group = command
    options = [each for each in group.params if isinstance(each, click.Option)]
    return {"--help", *(name for each in options for name in (*each.opts, *each.secondary_opts))}


@pytest.mark.parametrize(
    "page", [*CURRENT, *sorted((ROOT / "deploy").glob("*.*"))], ids=lambda page: page.name
)
def test_mentioned_options_of_commands_exist(page: Path) -> None:
    text = page.read_text().replace("\\\n", " ")
    for words in (typed.split() for typed in TYPED.findall(text)):
        known = options_of(words)
        used = {word.partition("=")[0] for word in words if re.match("--[a-z]", word)}
        assert known is None or used <= known, words


def test_mentioned_options_of_commands_are_found() -> None:
    """Guards the test above, which would compare nothing if no option were found."""
    text = "run `fw webhooks list --status Failed`, or ` | fw user add x --emial y`"
    found = [typed.split() for typed in TYPED.findall(text)]
    assert [words[:2] for words in found] == [["webhooks", "list"], ["user", "add"]]
    assert "--status" in (options_of(found[0]) or set())
    assert "--emial" not in (options_of(found[1]) or set())


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.name)
def test_mentioned_scripts_and_their_options_exist(page: Path) -> None:
    for name, arguments in SCRIPT.findall(page.read_text().replace("\\\n", " ")):
        script = ROOT / "scripts" / name
        assert script.is_file(), name
        if name != "fw":
            source = source_of(script)
            used = re.findall(r"(?<!\S)--[a-z-]+", arguments)
            assert [option for option in used if f'"{option}"' not in source] == [], name


def source_of(script: Path) -> str:
    """The text of a script, and of the package that it runs."""
    text = script.read_text()
    for module in re.findall(r"-m ((?:tests|benchmarks)[\w.]*)", text):
        path = ROOT / module.replace(".", "/")
        for file in path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]:
            text += file.read_text()
    return text


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.name)
def test_page_names_files_settings_variables_and_alerts_that_exist(page: Path) -> None:
    text = page.read_text()
    files = set(FILE.findall(text)) - GENERATED
    assert [file for file in files if not (ROOT / file).exists()] == []
    keys = {f"{section}.{path}" for section in SECTIONS for path, _ in keys_of(section)}
    assert set(SETTING.findall(text)) <= keys
    others = ("FW_SECRET_", "FW_CLIENT_", "FW_LOGIN_")
    of_fw = {name for name in VARIABLE.findall(text) if not name.startswith(others)}
    assert of_fw <= {*VARIABLES, "FW_SECRET_KEY"}
    alerts = (ROOT / "deploy/prometheus/alerts.yml").read_text()
    assert [name for name in ALERT.findall(text) if f"alert: {name}\n" not in alerts] == []


def test_testing_page_names_each_folder_of_tests_that_mirrors_no_code() -> None:
    listed = (DOCS / "testing.md").read_text().split("with these additions:")[1].split("\n\n")[0]
    folders = {path.name for path in (ROOT / "tests").iterdir() if (path / "__init__.py").exists()}
    own = {name for name in folders if not (ROOT / name).is_dir() or name == "docs"}
    assert len(own) > 10
    assert set(re.findall(r"`tests/([a-z]+)`", listed)) == own | {"examples"}


@pytest.mark.parametrize(("page", "folder"), [("web.md", "web"), ("testing.md", "tests")])
def test_page_names_modules_of_its_folder_that_exist(page: str, folder: str) -> None:
    """Each page names modules without their folder."""
    text = (DOCS / page).read_text()
    known = {path.name for path in (ROOT / folder).rglob("*.*")}
    files = set(re.findall(r"`([a-z][a-z0-9_]*\.(?:py|js|html|css))`", text))
    if page == "testing.md":
        rows = re.findall(r"^\| [a-z ]+\((`[a-z_`, ]+)\) \|", text, re.MULTILINE)
        files |= {f"{name}.py" for row in rows for name in re.findall("[a-z_]+", row)}
        assert "receivers.py" in files
    assert len(files) > 5
    assert files <= known


def test_readme_figures_are_those_of_the_benchmarks() -> None:
    """README shows results of docs/benchmarks.md, which is updated more often."""
    results = (DOCS / "benchmarks.md").read_text()
    section = (ROOT / "README.md").read_text().split("\n## Performance")[1].split("\n## ")[0]
    rows = [row for row in section.splitlines() if row.startswith("| ")]
    figures = [figure for row in rows for figure in re.findall(r"[\d,.]*\d(?=/s| ms)", row)]
    assert len(figures) > 30
    assert [figure for figure in figures if figure not in results] == []


def test_runtime_page_costs_are_those_of_the_benchmarks() -> None:
    rates = {
        name: [int(rate.replace(",", "")) for rate in re.findall(r"\| ([\d,]+)/s", row)]
        for name, row in re.findall(
            r"^\| `runtime/(\w+)` (.*)$", (DOCS / "benchmarks.md").read_text(), re.MULTILINE
        )
    }
    section = (DOCS / "runtime.md").read_text().split("\n## Costs")[1].split("\n## ")[0]
    shown = re.findall(r"^\| [^|]+\| ([\d.]+) µs \| ([\d.]+) µs \|", section, re.MULTILINE)
    names = ("tell", "tell_nowait", "ask", "ask_100", "spawn")
    assert [list(row) for row in shown] == [
        [f"{1e6 / rate:.1f}" for rate in rates[name]] for name in names
    ]


MESSAGE = re.compile(r"`((?:[Tt]he (?:database|process)|lost the|a group|connect:|fw: ) ?[^`]+)`")


def texts_of_the_code() -> str:
    """All texts of the packages, with values in place of which there is a zero byte."""
    found = []
    for folder in ("fw_actors", "fw_cli", "supervisors", "web"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = [
                        part.value if isinstance(part, ast.Constant) else "\0"
                        for part in node.values
                    ]
                    found.append("".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return "\n".join(found)


def test_operating_page_quotes_messages_of_the_code() -> None:
    """`…` and numbers stand for values."""
    quoted = {
        message
        for page in ("operating.md", "scaling.md")
        for message in MESSAGE.findall((DOCS / page).read_text())
    }
    assert len(quoted) > 8
    texts = texts_of_the_code() + "server is in hot standby mode"  # libpq's
    for message in quoted:
        for part in re.split(r" ?… ?|\b\d+\b", message):
            assert part.strip(" :.") in texts, message
