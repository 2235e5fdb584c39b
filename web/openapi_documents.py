"""Documents in the OpenAPI document: the paths of each DocType, with the fields that it declares.

The generic `/api/resource/{doctype}` stays; a path with the DocType in it says more, and OpenAPI
has readers look for such a one first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from fw_actors.documents.rest import Described

_GENERIC: Final = "/api/resource/{doctype}"
_ONE: Final = "/{name}"
# (what follows the DocType, verb): what the caller must be allowed
_ACTIONS: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("", "get"): "list",
        ("", "post"): "create",
        (_ONE, "get"): "read",
        (_ONE, "put"): "write",
        (_ONE, "delete"): "delete",
        (f"{_ONE}/submit", "post"): "submit",
        (f"{_ONE}/cancel", "post"): "cancel",
        (f"{_ONE}/rename", "post"): "write",
        (f"{_ONE}/export", "get"): "export",
    }
)
_BODIES: Final = MappingProxyType({("", "post"): "inserted", (_ONE, "put"): "saved"})


def with_documents(document: Mapping[str, Any], found: Sequence[Described]) -> dict[str, Any]:
    """Return the document of all operations with those of each DocType beside them."""
    paths: dict[str, Any] = dict(document["paths"])
    schemas: dict[str, Any] = dict(document["components"]["schemas"])
    for each in found:
        schemas |= {_named(each.doctype, kind): schema for kind, schema in _schemas(each)}
        for (suffix, verb), action in _ACTIONS.items():
            if action in each.actions:
                generic = document["paths"][_GENERIC + suffix][verb]
                path = f"/api/resource/{quote(each.doctype)}{suffix}"
                operation = _operation(generic, each.doctype, suffix, verb)
                paths.setdefault(path, {})[verb] = {
                    **operation,
                    "operationId": f"{verb}_{path.strip('/')}",
                }
    return {
        **document,
        "paths": paths,
        "components": {**document["components"], "schemas": schemas},
    }


def _schemas(each: Described) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "shown", {"title": each.doctype, **each.shown}
    yield "listed", {"title": f"{each.doctype} in a list", **each.listed}
    if "create" in each.actions:
        yield "inserted", {"title": f"New {each.doctype}", **each.inserted}
    if "write" in each.actions:
        yield "saved", {"title": f"Changes of {each.doctype}", **each.saved}


def _named(doctype: str, kind: str) -> str:
    """Return the name of a component; no struct of the operations has a dot in its own."""
    return f"{doctype.replace(' ', '_')}.{kind}"


def _operation(generic: Mapping[str, Any], doctype: str, suffix: str, verb: str) -> dict[str, Any]:
    operation = {
        **generic,
        "tags": [doctype],
        "parameters": [each for each in generic["parameters"] if each["name"] != "doctype"],
    }
    if (suffix, verb) in _BODIES:
        schema = _reference(doctype, _BODIES[suffix, verb])
        operation["requestBody"] = {**generic["requestBody"], **_json(schema)}
    answers = dict(generic["responses"])
    for status in answers.keys() & {"200", "201"}:
        if "content" in answers[status] and verb != "delete":
            schema = _listing(doctype) if (suffix, verb) == ("", "get") else _document(doctype)
            answers[status] = {**answers[status], **_json(schema)}
    return {**operation, "responses": answers}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _reference(doctype: str, kind: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{_named(doctype, kind)}"}


def _document(doctype: str) -> dict[str, Any]:
    properties = {"data": _reference(doctype, "shown")}
    return {"type": "object", "properties": properties, "required": ["data"]}


def _listing(doctype: str) -> dict[str, Any]:
    rows = {"type": "array", "items": _reference(doctype, "listed")}
    properties = {"data": rows, "total": {"type": "integer"}}
    return {"type": "object", "properties": properties, "required": ["data", "total"]}
