"""The OpenAPI document of all operations, made by quart-schema from the operations themselves.

quart-schema reads view functions, and the front end has none: each operation is described by a
stand-in, on an application that serves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

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
    operation_id,
    security_scheme,
)

from fw_actors.version import __version__
from web.answers import Refusal
from web.guard import CSRF_FREE_PREFIX, SAFE
from web.headers import CSRF_HEADER
from web.operations import Operation, Path, Session

DESCRIBED: Final = ("/api/", "/metrics")
SESSION, KEY = "session", "key"
ANYBODY: Final[dict[str, list[str]]] = {}
OPEN_OBJECT: Final = {"type": "object"}


def described(paths: Iterable[Path], site: str) -> dict[str, Any]:
    """Return the document of a site's operations: OpenAPI 3.1, as JSON's types."""
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
    shown = [path for path in paths if path.rule.startswith(DESCRIBED)]
    for path in shown:
        for verb, operation in path.operations.items():
            app.add_url_rule(
                path.rule,
                endpoint=f"{verb} {path.rule}",
                view_func=_stand_in(path, verb, operation),
                methods=[verb],
                provide_automatic_options=False,
            )
    document: dict[str, Any] = schema.openapi_provider.schema()
    document["components"]["schemas"] = _components(shown)
    for path in shown:
        for verb, operation in path.operations.items():
            rule = path.rule.replace("<", "{").replace(">", "}")
            _complete(document["paths"][rule][verb.lower()], path, verb, operation)
    return document


def _stand_in(path: Path, verb: str, operation: Operation) -> Callable[[], str]:
    """Return a function that quart-schema finds all about an operation on."""

    def view() -> str:
        raise LookupError("This application only describes.")

    view.__doc__ = operation.handle.__doc__
    operation_id(f"{path.rule.strip('/')}")(view)
    if operation.body is not None and operation.body.kind is not None:
        document_request(operation.body.kind)(view)
    if operation.query:
        known = [(name, str | msgspec.UnsetType, msgspec.UNSET) for name in sorted(operation.query)]
        document_querystring(msgspec.defstruct("Query", known))(view)
    if operation.answer is not None:
        document_response(operation.answer, operation.status)(view)
    document_response(Refusal, "default")(view)  # type: ignore[arg-type]
    if operation.session is not Session.IGNORED:
        guests = [ANYBODY] if operation.session is Session.OPTIONAL else []
        security_scheme([{SESSION: []}, {KEY: []}, *guests])(view)
    return view


def _components(paths: Iterable[Path]) -> dict[str, Any]:
    """Return the schemas of all structs; quart-schema leaves out those inside of others."""
    operations = [each for path in paths for each in path.operations.values()]
    structs: dict[type[msgspec.Struct], None] = {Refusal: None}
    for each in operations:
        structs |= {kind: None for kind in (each.answer, each.body and each.body.kind) if kind}
    _, components = msgspec.json.schema_components(
        structs, ref_template="#/components/schemas/{name}"
    )
    return components


def _complete(shown: dict[str, Any], path: Path, verb: str, operation: Operation) -> None:
    """Say what quart-schema has no words for."""
    rule = operation.body
    if rule is not None:
        body = shown.setdefault(
            "requestBody", {"content": {"application/json": {"schema": OPEN_OBJECT}}}
        )
        body["required"] = not rule.may_be_absent
    if operation.answer is None:
        shown["responses"][operation.status] = {"description": "Done."}
    if verb not in SAFE and not path.rule.startswith(CSRF_FREE_PREFIX):
        text = "Any value; a request by API key needs none."
        schema = {"type": "string", "minLength": 1}
        shown["parameters"] = [
            *shown["parameters"],
            {"name": CSRF_HEADER, "in": "header", "description": text, "schema": schema},
        ]
