"""Validates values by JSON Schema: the keywords that the OpenAPI document uses, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
    "object": (dict,), "array": (list,), "null": (type(None),),
}  # fmt: skip
_SAY_NOTHING = {"title", "description", "format", "readOnly", "writeOnly", "default"}


class SchemaChecker:
    """Judges by the schemas of one document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._components: dict[str, Any] = document["components"]["schemas"]

    def problems(self, schema: dict[str, Any], value: Any, where: str = "") -> list[str]:
        """Return what of `value` the schema refuses."""
        return list(self._problems(schema, value, where))

    def _problems(self, schema: dict[str, Any], value: Any, where: str) -> Iterator[str]:
        for keyword, expected in schema.items():
            if keyword not in _SAY_NOTHING:
                validate = getattr(self, f"_{keyword.strip('$')}")  # an unknown keyword is an error
                yield from validate(expected, value, where, schema)

    def _ref(self, expected: str, value: Any, where: str, schema: Any) -> Iterator[str]:
        yield from self._problems(self._components[expected.rpartition("/")[2]], value, where)

    def _type(self, expected: Any, value: Any, where: str, schema: Any) -> Iterator[str]:
        names = [expected] if isinstance(expected, str) else expected
        kinds = tuple(kind for name in names for kind in _TYPES[name])
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            yield f"{where} is no {names}"

    def _enum(self, expected: Any, value: Any, where: str, schema: Any) -> Iterator[str]:
        if value not in expected:
            yield f"{where} is none of {expected}"

    def _const(self, expected: Any, value: Any, where: str, schema: Any) -> Iterator[str]:
        if value != expected:
            yield f"{where} is not {expected}"

    def _anyOf(self, expected: Any, value: Any, where: str, schema: Any) -> Iterator[str]:  # noqa: N802
        if all(self.problems(each, value) for each in expected):
            yield f"{where} fits none"

    def _maxLength(self, limit: int, value: Any, where: str, schema: Any) -> Iterator[str]:  # noqa: N802
        if isinstance(value, str) and len(value) > limit:
            yield f"{where} is too long"

    def _minLength(self, least: int, value: Any, where: str, schema: Any) -> Iterator[str]:  # noqa: N802
        if isinstance(value, str) and len(value) < least:
            yield f"{where} is too short"

    def _maximum(self, limit: int, value: Any, where: str, schema: Any) -> Iterator[str]:
        if isinstance(value, int) and value > limit:
            yield f"{where} is too large"

    def _minimum(self, least: int, value: Any, where: str, schema: Any) -> Iterator[str]:
        if isinstance(value, int) and value < least:
            yield f"{where} is too small"

    def _maxItems(self, limit: int, value: Any, where: str, schema: Any) -> Iterator[str]:  # noqa: N802
        if isinstance(value, list) and len(value) > limit:
            yield f"{where} is too many"

    def _items(self, expected: Any, value: Any, where: str, schema: Any) -> Iterator[str]:
        for at, each in enumerate(value if isinstance(value, list) else ()):
            yield from self._problems(expected, each, f"{where}[{at}]")

    def _required(self, expected: Any, value: Any, where: str, schema: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from (f"{where}.{key} is missing" for key in expected if key not in value)

    def _properties(self, expected: Any, value: Any, where: str, schema: Any) -> Iterator[str]:
        for key, each in (value if isinstance(value, dict) else {}).items():
            if key in expected:
                yield from self._problems(expected[key], each, f"{where}.{key}")

    def _additionalProperties(  # noqa: N802
        self, expected: Any, value: Any, where: str, schema: Any
    ) -> Iterator[str]:
        if isinstance(value, dict) and expected is False:
            yield from (f"{where}.{k} is unknown" for k in value if k not in schema["properties"])
