"""The OpenAPI document: operations and DocTypes.

quart-schema reads view functions, and the front end has none: each operation is described by a
placeholder on a Quart application that serves nothing.

In addition to the generic `/api/resource/{doctype}`, each DocType gets its own paths with its
fields; by OpenAPI's rules such concrete paths are matched first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import cleandoc
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
from quart import Quart
from quart_schema import (
    APIKeySecurityScheme,
    HttpSecurityScheme,
    Info,
    QuartSchema,
    document_querystring,
    document_request,
    document_response,
    security_scheme,
)

from fw_actors import __version__
from web.guard import CSRF_FREE_PREFIX, SAFE
from web.openapi_examples import BODIES, DOCUMENTS, PARAMETERS
from web.openapi_fields import VERSION, meaning
from web.operations import Authentication, Operation, Route
from web.response import CSRF_HEADER
from web.response_schemas import ErrorResponse

if TYPE_CHECKING:
    from fw_actors.documents.rest import DocTypeDescription


DESCRIBED: Final = ("/api/", "/metrics")
SESSION, KEY = "session", "key"
NO_SECURITY: Final[dict[str, list[str]]] = {}
OPEN_OBJECT: Final = {"type": "object", "additionalProperties": True}
_JSON: Final = "application/json"
_RULE: Final = re.compile(r" \([A-Z]+-\d+\)")
"""A rule of the contract, which docstrings cite for readers of the code."""


def describe(routes: Iterable[Route], site: str, url: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the operations of a site at `url`."""
    app = Quart("fw", static_folder=None)
    schema = QuartSchema(
        app,
        openapi_path=None,
        info=Info(title=site, version=__version__),
        security_schemes={
            SESSION: APIKeySecurityScheme(name="sid", in_="cookie"),
            KEY: HttpSecurityScheme(scheme="bearer", bearer_format="fwk_<id>_<secret>"),
        },
        conversion_preference="msgspec",
    )
    described = [route for route in routes if route.rule.startswith(DESCRIBED)]
    for route in described:
        for verb, operation in route.operations.items():
            app.add_url_rule(
                route.rule,
                endpoint=f"{verb} {route.rule}",
                view_func=_placeholder(route, operation),
                methods=[verb],
                provide_automatic_options=False,
            )
    document: dict[str, Any] = schema.openapi_provider.schema()
    document["servers"] = [{"url": url}]
    document["components"]["schemas"] = _components(described)
    for route in described:
        for verb, operation in route.operations.items():
            rule = route.rule.replace("<", "{").replace(">", "}")
            _complete(document["paths"][rule][verb.lower()], route, verb, operation)
    _mark_open_schemas(document)
    _describe_fields(document)
    return document


def _placeholder(route: Route, operation: Operation) -> Callable[[], str]:
    """Return a view function that carries an operation's description for quart-schema."""

    def view() -> str:
        raise LookupError("This application only describes operations; it cannot serve them.")

    view.__doc__ = operation.handle.__doc__
    if operation.body is not None and operation.body.kind is not None:
        document_request(operation.body.kind)(view)
    if operation.query:
        parameters = [
            (name, str | msgspec.UnsetType, msgspec.UNSET) for name in sorted(operation.query)
        ]
        document_querystring(msgspec.defstruct("Query", parameters))(view)
    if operation.response is not None:
        document_response(operation.response, operation.status)(view)
    document_response(ErrorResponse, "default")(view)  # type: ignore[arg-type]
    if operation.authentication is not Authentication.IGNORED:
        guests = [NO_SECURITY] if operation.authentication is Authentication.OPTIONAL else []
        keys: list[dict[str, list[str]]] = [] if operation.session_only else [{KEY: []}]
        security_scheme([{SESSION: []}, *keys, *guests])(view)
    return view


def _components(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the schemas of all structs; quart-schema leaves out nested ones."""
    operations = [each for route in routes for each in route.operations.values()]
    structs: dict[type[msgspec.Struct], None] = {ErrorResponse: None}
    for each in operations:
        structs |= {kind: None for kind in (each.response, each.body and each.body.kind) if kind}
    _, components = msgspec.json.schema_components(
        structs, ref_template="#/components/schemas/{name}"
    )
    return components


def _objects_in(document: object) -> Iterator[dict[str, Any]]:
    """Yield all JSON objects of a document, outer ones first; keys may be added to each."""
    if isinstance(document, dict):
        yield document
        for value in document.values():
            yield from _objects_in(value)
    elif isinstance(document, list):
        for value in document:
            yield from _objects_in(value)


def _mark_open_schemas(document: object) -> None:
    """Mark lists and objects with arbitrary contents as such: otherwise generators treat them as
    empty."""
    for schema in _objects_in(document):
        if schema.get("type") == "array":
            schema.setdefault("items", {})
        if schema.get("type") == "object" and "properties" not in schema:
            schema.setdefault("additionalProperties", True)


def _describe_fields(document: object) -> None:
    """Describe the fields of structs, and use their docstrings as descriptions.

    A reference has no description of its own: generators ignore keys beside it.
    """
    for schema in _objects_in(document):
        for key in ("description", "summary"):
            if isinstance(schema.get(key), str):
                schema[key] = _RULE.sub("", cleandoc(schema[key]))
        properties, title = schema.get("properties"), schema.get("title")
        if not isinstance(properties, dict) or not isinstance(title, str):
            continue
        for name, field in properties.items():
            text = meaning(title, name)
            if text is not None and "$ref" not in field:
                field.setdefault("description", text)


def _complete(description: dict[str, Any], route: Route, verb: str, operation: Operation) -> None:
    """Add what quart-schema cannot express, and convert the keys of responses to text, as in
    JSON."""
    name = _operation_name(route.rule, verb)
    description["operationId"], description["tags"] = name, [name.partition(".")[0]]
    description.setdefault("security", [])  # linters regard a missing one as forgotten
    description["responses"] = {
        str(status): each for status, each in description["responses"].items()
    }
    for parameter in description["parameters"]:
        own_key = f"{name} {parameter['name']}"
        key = own_key if own_key in _PARAMETERS else parameter["name"]
        if key in _PARAMETERS:
            parameter.update(_PARAMETERS[key])
            parameter["example"] = PARAMETERS[key]
    rule = operation.body
    if rule is not None and verb != "DELETE":  # it must be empty; generators advise against one
        body = description.setdefault("requestBody", {"content": {_JSON: {"schema": OPEN_OBJECT}}})
        body["required"] = not rule.optional
        if rule.kind is not None and rule.kind.__name__ in BODIES:
            body["content"][_JSON]["example"] = BODIES[rule.kind.__name__]
    if operation.response is None:
        kind, schema = _UNTYPED.get(name, (_JSON, OPEN_OBJECT))
        description["responses"][str(operation.status)] = {
            "description": "Done.",
            "content": {kind: {"schema": schema}},
        }
    if verb not in SAFE and not route.rule.startswith(CSRF_FREE_PREFIX):
        takes_keys = (
            operation.authentication is not Authentication.IGNORED and not operation.session_only
        )
        text = "Any non-empty value"
        text += "; a request by API key needs none." if takes_keys else "."
        schema = {"type": "string", "minLength": 1}
        header = {"name": CSRF_HEADER, "in": "header", "description": text, "schema": schema}
        description["parameters"] = [
            *description["parameters"],
            header if takes_keys else {**header, "required": True},
        ]


_UNTYPED: Final[Mapping[str, tuple[str, dict[str, Any]]]] = MappingProxyType(
    {
        "documents.export": (_JSON, OPEN_OBJECT),
        "functions.call": (_JSON, {"description": "The function's result."}),
        "site.openapi": (_JSON, OPEN_OBJECT),
        "site.metrics": ("text/plain", {"type": "string"}),
    }
)
"""Responses that no struct describes."""
_METHODS: Final = "/api/method/core.services."
_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "/api/login": "auth.login",
        "/api/logout": "auth.logout",
        "/api/boot": "site.boot",
        "/api/health": "site.health",
        "/api/ready": "site.ready",
        "/api/openapi.json": "site.openapi",
        "/metrics": "site.metrics",
        "/api/method/<path>": "functions.call",
    }
)
_RESOURCE: Final = "/api/resource/<doctype>"
# By name, or by operation and name where it means something else there.
_PARAMETERS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "doctype": {"description": "The name of a DocType, such as Webhook."},
        "name": {"description": "The name of the document."},
        "modified": {
            "description": VERSION,
            "schema": {"type": "string", "format": "date-time"},
        },
        "fields": {"description": 'The fields to return, as JSON: ["name", "title"].'},
        "filters": {
            "description": 'Conditions, as a JSON list: [["status", "=", "Open"]]. The operators '
            "are =, !=, <, <=, >, >=, in, not in, like, between and is null."
        },
        "order_by": {"description": 'The order, such as "creation desc".'},
        "limit": {
            "description": "The maximum number of rows to return.",
            "schema": {"type": "integer", "minimum": 1, "maximum": 500},
        },
        "start": {
            "description": "The number of rows to skip.",
            "schema": {"type": "integer", "minimum": 0},
        },
        "path": {"description": "The dotted path of an app's function."},
        "delivery": {"description": "The name of a Webhook Delivery.", "required": True},
        "run": {"description": "The id of a bulk replay; without it the current or the last one."},
        "webhook": {"description": "The name of a Webhook."},
        "result": {"description": "The result of an attempt: sent or failed."},
        "responseStatus": {
            "description": "The HTTP status that the receiver answered with.",
            "schema": {"type": "integer", "minimum": 100, "maximum": 999},
        },
        "error": {"description": "A text that the error contains."},
        "since": {"description": "Only since this time, in ISO 8601."},
        "until": {"description": "Only before this time, in ISO 8601."},
        "before": {"description": "The value of `next` from the previous page."},
        "jobs.list.get before": {
            "description": "The last id of the previous page.",
            "schema": {"type": "integer", "minimum": 0},
        },
        "queue": {"description": "A queue of jobs: app or mail."},
        "state": {"description": "The state of a job: ready, scheduled, leased or failed."},
        "function": {"description": "The function of a job, or the template of a mail."},
        "user": {"description": "The user of a job."},
    }
)


def _operation_name(rule: str, verb: str) -> str:
    """Return the operationId, which generators turn into the name of a function.

    It is `area.name`. Where a function can be called by GET too, that one has `.get` at its end.
    """
    if rule.startswith(_METHODS):
        name = rule.removeprefix(_METHODS)
        return f"{name}.get" if verb == "GET" else name
    if rule.startswith(_RESOURCE):
        suffix = rule.removeprefix(_RESOURCE).replace("<name>", "{name}")
        return f"documents.{_VERBS[suffix, verb.lower()]}"
    if rule in _NAMES:
        return _NAMES[rule]
    first, *others = rule.removeprefix("/api/").replace("/", "-").split("-")
    return f"{first}.{others[0]}{''.join(word.capitalize() for word in others[1:])}"


_GENERIC: Final = "/api/resource/{doctype}"
_ONE: Final = "/{name}"
# (path after the DocType, verb): the action that the caller must be permitted
_ACTIONS: Final[Mapping[tuple[str, str], str]] = {
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
_VERBS: Final[Mapping[tuple[str, str], str]] = {
    **_ACTIONS,
    (_ONE, "put"): "save",
    (f"{_ONE}/rename", "post"): "rename",
}
"""The names of operations; two of them require the right to write."""
_BODIES: Final = MappingProxyType({("", "post"): "inserted", (_ONE, "put"): "saved"})


def with_documents(
    document: Mapping[str, Any], doctypes: Sequence[DocTypeDescription]
) -> dict[str, Any]:
    """Return the document with the operations of each DocType added."""
    paths: dict[str, Any] = dict(document["paths"])
    schemas: dict[str, Any] = dict(document["components"]["schemas"])
    for each in doctypes:
        schemas |= {_named(each.doctype, kind): schema for kind, schema in _schemas(each)}
        for (suffix, verb), action in _ACTIONS.items():
            if action in each.actions:
                generic = document["paths"][_GENERIC + suffix][verb]
                path = f"/api/resource/{quote(each.doctype)}{suffix}"
                operation = _operation(generic, each.doctype, suffix, verb)
                paths.setdefault(path, {})[verb] = {
                    **operation,
                    "operationId": _named(each.doctype, _VERBS[suffix, verb]),
                }
    return {
        **document,
        "paths": paths,
        "components": {**document["components"], "schemas": schemas},
    }


def _schemas(each: DocTypeDescription) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "shown", {"title": each.doctype, **each.shown}
    yield "listed", {"title": f"{each.doctype} in a list", **each.listed}
    if "create" in each.actions:
        yield "inserted", {"title": f"New {each.doctype}", **each.inserted}
    if "write" in each.actions:
        yield "saved", {"title": f"Changes of {each.doctype}", **each.saved}


def _named(doctype: str, kind: str) -> str:
    """Return the name of a component; the dot distinguishes it from those of structs."""
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
        if verb == "post" and doctype in DOCUMENTS:
            operation["requestBody"]["content"][_JSON]["example"] = DOCUMENTS[doctype]
    responses = dict(generic["responses"])
    for status in responses.keys() & {"200", "201"}:
        if verb != "delete" and not suffix.endswith("/export"):
            schema = _listing(doctype) if (suffix, verb) == ("", "get") else _document(doctype)
            responses[status] = {**responses[status], **_json(schema)}
    return {**operation, "responses": responses}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {_JSON: {"schema": schema}}}


def _reference(doctype: str, kind: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{_named(doctype, kind)}"}


def _document(doctype: str) -> dict[str, Any]:
    properties = {"data": _reference(doctype, "shown")}
    return {"type": "object", "properties": properties, "required": ["data"]}


def _listing(doctype: str) -> dict[str, Any]:
    rows = {"type": "array", "items": _reference(doctype, "listed")}
    properties = {"data": rows, "total": {"type": "integer"}}
    return {"type": "object", "properties": properties, "required": ["data", "total"]}
