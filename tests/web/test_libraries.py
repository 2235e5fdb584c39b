"""The parts of Quart and quart-trio that the front end uses, and the versions that are allowed."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path

import pytest
from quart.wrappers import Request
from quart_trio.wrappers import TrioRequest
from quart_trio.wrappers.request import TrioBody

from web.request import FrontRequest, LimitedBody

ROOT = Path(__file__).parents[2]
OURS = ("fw_actors", "fw_cli", "supervisors", "web")
LIBRARIES = ("hypercorn", "quart", "quart_schema", "quart_trio")
DOCUMENTED = {
    ("quart", "Quart"), ("quart.wrappers", "Request"),
    ("quart_schema", "APIKeySecurityScheme"), ("quart_schema", "HttpSecurityScheme"),
    ("quart_schema", "Info"), ("quart_schema", "QuartSchema"),
    ("quart_schema", "document_querystring"), ("quart_schema", "document_request"),
    ("quart_schema", "document_response"), ("quart_schema", "operation_id"),
    ("quart_schema", "security_scheme"),
}  # fmt: skip
CEILINGS = ("h11", "hypercorn", "quart", "quart-schema", "quart-trio", "werkzeug")
REQUEST_PARAMETERS = [
    "self", "method", "scheme", "path", "query_string", "headers", "root_path", "http_version",
    "scope", "max_content_length", "body_timeout", "send_push_promise",
]  # fmt: skip


def imported(file: Path) -> set[tuple[str, str]]:
    """Return the names that a module imports from the libraries."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            found |= {(node.module or "", each.name) for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {(each.name, "") for each in node.names}
    return {each for each in found if each[0].partition(".")[0] in LIBRARIES}


def test_undocumented_names_are_imported_by_one_module() -> None:
    files = [file for folder in OURS for file in (ROOT / folder).rglob("*.py")]
    users = {str(file.relative_to(ROOT)) for file in files if imported(file) - DOCUMENTED}
    assert users == {"web/request.py"}


def test_undocumented_names_are_those_of_the_installed_version() -> None:
    """`web/request.py` replaces the class of the body, and calls the request's constructor."""
    assert TrioRequest.body_class is TrioBody
    assert issubclass(TrioRequest, Request)
    assert list(inspect.signature(TrioRequest.__init__).parameters) == REQUEST_PARAMETERS
    assert list(inspect.signature(LimitedBody.__init__).parameters) == list(
        inspect.signature(TrioBody.__init__).parameters
    )
    assert FrontRequest.body_class is LimitedBody


@pytest.mark.parametrize("name", CEILINGS)
def test_installed_version_is_below_the_ceiling_of_pyproject(name: str) -> None:
    """Each excludes the minor version after the installed one, which may change what is used."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    requirements = [*project["dependencies"], *extras["service"], *extras["dev"]]
    (line,) = [each for each in requirements if re.match(rf"{name}(?:\[\w+\])?>=", each)]
    ceiling = line.rpartition("<")[2]
    assert re.fullmatch(r"[\d.]+", ceiling), line
    major, minor, *_ = numbers(version(name))
    assert numbers(ceiling) == [major, minor + 1]


def numbers(text: str) -> list[int]:
    """Return the leading numbers of a version."""
    return [int(part) for part in takewhile(str.isdigit, text.split("."))]
