"""JSON Schemas of DocTypes, for request bodies and responses.

OpenAPI 3.1 (H-105), whose schemas are JSON Schema 2020-12. Like the documents themselves, a
schema hides fields above the caller's permlevel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from fw_actors.documents.doctype import CHILD_STANDARD, STANDARD, Meta
from fw_actors.documents.fields import MAX_INTEGER, Field, Int, Table, Vault
from fw_actors.documents.handle import child_of
from fw_actors.documents.naming import NAME_CHARACTERS
from fw_actors.documents.permissions import Rights
from fw_actors.documents.validation import MAX_CHILD_ROWS

Schema = dict[str, Any]

_TEXT: Final = MappingProxyType({"type": "string"})
_TIME: Final = MappingProxyType({"type": "string", "format": "date-time"})
_NAME: Final = MappingProxyType({"type": "string", "minLength": 1, "maxLength": NAME_CHARACTERS})
_WHOLE: Final = MappingProxyType({"type": "integer"})
_CONFIGURED: Final = MappingProxyType(
    {"type": "object", "properties": {"configured": {"const": True}}, "required": ["configured"]}
)
_NULL: Final = MappingProxyType({"type": "null"})
_STANDARD: Final[Mapping[str, Mapping[str, Any]]] = {
    "name": {**_NAME, "description": "The name of the document, which is unique in its DocType."},
    "owner": {**_TEXT, "description": "The user who created it."},
    "creation": {**_TIME, "description": "When it was created."},
    "modified": {**_TIME, "description": "When it was last changed; identifies the version."},
    "modified_by": {**_TEXT, "description": "The user who last changed it."},
    "docstatus": {
        "type": "integer",
        "enum": [0, 1, 2],
        "description": "0: a draft, 1: submitted, 2: cancelled.",
    },
    "idx": {**_WHOLE, "description": "The place of a row among its siblings, from 1; else 0."},
    "parent": {**_TEXT, "description": "The name of the document that the row belongs to."},
    "parenttype": {**_TEXT, "description": "The DocType of that document."},
    "parentfield": {**_TEXT, "description": "The field of that document that holds the row."},
}


def shown(meta: Meta, rights: Rights) -> Schema:
    """Return the schema of a document in a response, as a user sees it; every key is present."""
    return _shown(meta, meta, rights)


def listed(meta: Meta, rights: Rights) -> Schema:
    """Return the schema of a row of a list: any of the fields that can be listed."""
    properties: Schema = {name: dict(_STANDARD[name]) for name in STANDARD}
    for field in _seen(meta, meta, rights, "read"):
        if field.plain and field.stored:
            properties[field.name] = _described(field, _answered(field, meta, rights))
    return _object(properties, [])


def accepted(meta: Meta, rights: Rights, *, new: bool) -> Schema:
    """Return the schema of a request's body: a whole document if `new`, else the fields of a
    save."""
    properties: Schema = {"doctype": _doctype(meta)}
    if meta.naming.kind == "given" or not new:
        properties["name"] = dict(_STANDARD["name"])
    if not new:
        properties["modified"] = {**_TIME, "description": "The version that is to be replaced."}
    elif meta.submittable and "submit" not in meta.fields:
        properties["submit"] = {"type": "boolean", "description": "Submits the document too."}
    for field in _seen(meta, meta, rights, "write"):
        requested = _requested(field, meta, rights)
        if not new:  # a field that is left out keeps its value, and generated clients send defaults
            requested.pop("default", None)
        properties[field.name] = _described(field, requested)
    return _object(properties, _required(meta, rights, meta) if new else [])


def _shown(owner: Meta, meta: Meta, rights: Rights) -> Schema:
    """Child rows follow the permissions of `owner`, their parent's DocType."""
    names = (*STANDARD, *(CHILD_STANDARD if meta.child else ()))
    properties: Schema = {"doctype": _doctype(meta)}
    properties |= {name: {**_STANDARD[name], "readOnly": True} for name in names}
    for field in _seen(owner, meta, rights, "read"):
        properties[field.name] = _described(field, _answered(field, owner, rights))
    return _object(properties, list(properties))


def _doctype(meta: Meta) -> Schema:
    return {"const": meta.name, "description": "The DocType."}


def _described(field: Field, schema: Schema) -> Schema:
    """Return a schema with the description from the field's declaration (D-171)."""
    return {"description": field.description, **schema} if field.description else schema


def _answered(field: Field, owner: Meta, rights: Rights) -> Schema:
    if isinstance(field, Vault):
        return {"anyOf": [dict(_CONFIGURED), dict(_NULL)]}
    if field.secret:
        return {**_NULL, "description": "Never shown."}
    if isinstance(field, Table):
        return {"type": "array", "items": _shown(owner, child_of(field).meta, rights)}
    schema = _value(field) if field.empty is not None else _or_null(_value(field))
    return {**schema, "readOnly": True} if field.read_only else schema


def _requested(field: Field, owner: Meta, rights: Rights) -> Schema:
    if isinstance(field, Table):
        return {
            "type": ["array", "null"],
            "items": _row(owner, child_of(field).meta, rights),
            "maxItems": MAX_CHILD_ROWS,
        }
    schema = _value(field)
    if field.type == "Check":
        return _flag(field)
    if field.secret:
        schema["writeOnly"] = True
    if not field.required or field.secret:
        schema = _or_null(schema)
    if isinstance(field, Vault):
        kept = {**_CONFIGURED, "description": "Leaves the stored value."}
        schema = {"anyOf": [schema, kept]}
    if field.read_only:
        schema["readOnly"] = True
    if field.default is not None and not field.secret:
        schema["default"] = field.blank()
    return schema


def _flag(field: Field) -> Schema:
    """Return the schema of a Check in a request: one alternative for each accepted type, because
    client generators refuse an enum of several types.
    """
    taken: list[Schema] = [{"type": "boolean"}, {"type": "integer", "enum": [0, 1]}]
    schema: Schema = {"anyOf": taken if field.required else [*taken, dict(_NULL)]}
    if field.read_only:
        schema["readOnly"] = True
    return schema if field.default is None else {**schema, "default": field.blank()}


def _row(owner: Meta, meta: Meta, rights: Rights) -> Schema:
    """Return the schema of a child row in a request. Read-only keys may be sent back and are
    ignored.
    """
    echoed = ("doctype", *STANDARD, *CHILD_STANDARD)
    properties: Schema = {name: {"readOnly": True} for name in echoed}
    properties["name"] = {
        **_or_null(dict(_TEXT)),
        "description": "The name of an existing row, whose secrets are kept.",
    }
    for field in _seen(owner, meta, rights, "write"):
        properties[field.name] = _described(field, _requested(field, owner, rights))
    return _object(properties, _required(meta, rights, owner))


def _seen(owner: Meta, meta: Meta, rights: Rights, action: str) -> list[Field]:
    fields = meta.fields.values()
    return [field for field in fields if rights.sees_level(owner, field.permlevel, action)]


def _required(meta: Meta, rights: Rights, owner: Meta) -> list[str]:
    """Return the required fields of a new document or row."""
    return [
        field.name
        for field in _seen(owner, meta, rights, "write")
        if field.required and field.default is None and not field.read_only
    ]


def _object(properties: Schema, required: list[str]) -> Schema:
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def _or_null(schema: Schema) -> Schema:
    if "type" in schema:
        schema = {**schema, "type": [schema["type"], "null"]}
    return {**schema, "enum": [*schema["enum"], None]} if "enum" in schema else schema


def _value(field: Field) -> Schema:
    """Return the schema of a non-empty value of a field."""
    schema: Schema = _VALUES[field.type](field)
    if field.length is not None and schema.get("type") == "string":
        schema["maxLength"] = field.length
    return schema


def _of_select(field: Field) -> Schema:
    return {"type": "string", "enum": [*field.options, *([] if field.required else [""])]}


def _of_int(field: Field) -> Schema:
    low = high = None
    if isinstance(field, Int):
        low, high = field.minimum, field.maximum
    return {
        "type": "integer",
        "minimum": -MAX_INTEGER if low is None else low,
        "maximum": MAX_INTEGER if high is None else high,
    }


def _of_text(field: Field) -> Schema:
    return {"type": "string", "minLength": 1} if field.required else dict(_TEXT)


_VALUES: Final[Mapping[str, Callable[[Any], Schema]]] = {
    "Data": _of_text,
    "Text": _of_text,
    "Password": _of_text,
    "Vault": lambda field: dict(_TEXT),
    "Select": _of_select,
    "Link": lambda field: {**_of_text(field), "description": f"The name of a {field.options}."},
    "Int": _of_int,
    "Float": lambda field: {"type": "number"},
    "Check": lambda field: {"type": "integer", "enum": [0, 1]},
    "Date": lambda field: {"type": "string", "format": "date"},
    "Datetime": lambda field: dict(_TIME),
    "JSON": lambda field: {},
}
