"""The HTTP reference of the documentation, generated from the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fw_actors import errors
from fw_cli.reference import plain
from web.app import api_paths
from web.exchange import Traffic
from web.openapi import SESSION, described
from web.settings import Settings

SITE: Final = Settings("fw", "http://127.0.0.1:8000")
NOBODY: Final[Any] = None  # operations are only described, never called
_JSON: Final = "application/json"
_HEAD: Final = (
    "# HTTP reference\n"
    "Requests and responses are JSON. A request is authenticated by the cookie `sid` of "
    "`POST /api/login`, or by `Authorization: Bearer` with an API key. With the cookie, every "
    "request that may change data must carry the header `X-FW-CSRF` with any value. An unknown "
    "field or query parameter is rejected. Every response has an `X-Request-Id`, which is in the "
    "log too.\n\n"
    "`GET /api/openapi.json` of a running site is the machine-readable form (OpenAPI 3.1); for "
    "signed-in users it also describes the fields of each DocType. This page is generated from "
    "it.\n\n"
    "## Refusals\n"
    "```json\n"
    '{"error": {"type": "BadRequestError", "message": "One sentence that states the rule.", '
    '"extra": {}}}\n'
    "```\n\n"
    "| `error.type` | Status | |\n"
    "|---|---|---|\n"
)


def http_reference() -> str:
    """Return the whole page: all errors and all operations, in the order of their routes."""
    document = described(api_paths(NOBODY, NOBODY, SITE, Traffic()), SITE.name)
    return _HEAD + "\n".join([*_refusals(), "", *_operations(document)])


def _refusals() -> Iterator[str]:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    for kind in kinds:
        if issubclass(kind, errors.FwError) and kind is not errors.FwError:
            yield f"| `{kind.__name__}` | {kind.status} | {_meaning(kind)} |"


def _meaning(kind: type) -> str:
    """Return when an error is raised, from its docstring: `Raised when…`, `Stands for…`."""
    first = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    return plain(re.sub(r"^(Raised|Stands) ", "", first).rstrip("."))


def _operations(document: Mapping[str, Any]) -> Iterator[str]:
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            yield f"## {verb.upper()} {path}"
            yield f"{plain(operation['summary'])}{_who(operation)}\n"
            yield from _table("Parameter", _parameters(operation))
            yield from _table("Body", _fields(_body(operation), document))
            yield from _table("Answer", _fields(_answer(operation), document))


def _who(operation: Mapping[str, Any]) -> str:
    security = operation.get("security")
    if security is None:
        return " For anybody."
    return " For guests too." if {} in security else f" Signed in, by {SESSION} or key."


def _parameters(operation: Mapping[str, Any]) -> Iterator[str]:
    for each in operation["parameters"]:
        required = "required" if each.get("required") else ""
        yield f"| `{each['name']}` | {each['in']} | {required} |"


def _body(operation: Mapping[str, Any]) -> Any:
    return operation.get("requestBody", {}).get("content", {}).get(_JSON, {}).get("schema")


def _answer(operation: Mapping[str, Any]) -> Any:
    done = next(code for code in operation["responses"] if code != "default")
    return operation["responses"][done].get("content", {}).get(_JSON, {}).get("schema")


def _fields(schema: Any, document: Mapping[str, Any]) -> Iterator[str]:
    shape = _resolved(schema or {}, document)
    for name, kind in shape.get("properties", {}).items():
        required = "required" if name in shape.get("required", ()) else ""
        yield f"| `{name}` | {plain(_kind(kind, document))} | {required} |"


def _resolved(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    shape: Mapping[str, Any] = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return shape


def _kind(schema: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    """Return a type in words: `text or null`, `array of object(name, expires)`."""
    if "anyOf" in schema:
        return " or ".join(_kind(each, document) for each in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(map(repr, schema["enum"]))
    shape = _resolved(schema, document)
    if "items" in shape:
        return f"array of {_kind(shape['items'], document)}"
    if shape.get("properties"):
        return f"object ({', '.join(shape['properties'])})"
    kind = shape.get("type", "anything")
    return kind if isinstance(kind, str) else " or ".join(kind)


def _table(title: str, rows: Iterator[str]) -> Iterator[str]:
    """Yield a table, or nothing if it would be empty."""
    lines = list(rows)
    if lines:
        yield "\n".join([f"| {title} | | |", "|---|---|---|", *lines, ""])
