"""Decodes JSON from clients, strictly where `json` and msgspec are lenient.

msgspec accepts duplicate keys; `json` accepts NaN, huge numbers and lone surrogates (H-12). Every
error is a BadRequestError that names the top-level key at fault, if there is one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from json import JSONDecoder
from math import inf, isfinite
from typing import Any, Final, TypeVar

import msgspec

from fw_actors.errors import BadRequestError

T = TypeVar("T")

MAX_DEPTH: Final = 32
MAX_INTEGER: Final = 2**53
LONGEST_SHOWN: Final = 140
LONGEST_INTEGER: Final = len(str(-MAX_INTEGER))
BEYOND: Final = MAX_INTEGER + 1

# A string, closed or not. Possessive quantifiers keep it linear in every case.
STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
TO_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
NO_BRACKET: Final = bytes(set(range(256)) - set(b"[]{}"))

# Text that calls for a check of each value: escapes, C1 controls, long numbers, exponents, NaN.
SUSPECT: Final = re.compile(r"[\\\x7f-\x9f]|\d{16}|\d[eE]\+?\d{3}|NaN|Infinity")
SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
CONTROL_IN_TEXT: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

NAMED_KEY: Final = re.compile(r"field `([^`]+)`")
PATH_KEY: Final = re.compile(r"at `\$\.([^.\[`]+)")


@dataclass(frozen=True)
class CharacterRules:
    """The characters that the texts under each top-level key may contain.

    `lines`: keys that also allow tab and line breaks (Text and JSON fields); with `every_line` all
    keys do, if only a later step knows the fields. `free`: keys that allow all characters but lone
    surrogates (passwords).
    """

    lines: Collection[str] = ()
    free: Collection[str] = ()
    every_line: bool = False

    def forbidden(self, key: str) -> re.Pattern[str]:
        """Return the pattern of forbidden characters in the texts under `key`."""
        if key in self.free:
            return SURROGATE
        return CONTROL_IN_TEXT if self.every_line or key in self.lines else CONTROL


PLAIN: Final = CharacterRules()


def read_object(body: bytes, texts: CharacterRules = PLAIN) -> dict[str, Any]:
    """Return the JSON object in `body`.

    Raises: BadRequestError for anything else, and for the values that this module rejects.
    """
    value, suspect = _parse(body)
    if type(value) is not dict:
        raise BadRequestError("The body must be a JSON object.")
    if suspect:
        _validate_object(value, texts)
    return value


def read_struct(body: bytes, kind: type[T], texts: CharacterRules = PLAIN) -> T:
    """Return `body` as a `kind`, a struct that forbids unknown fields.

    Raises: BadRequestError; `field` names the key that is missing, unknown or of another type.
    """
    return to_struct(read_object(body, texts), kind)


def to_struct(value: Mapping[str, Any], kind: type[T]) -> T:
    """Return an object from `read_object` as a `kind`."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text = str(error)
        found = NAMED_KEY.search(text) or PATH_KEY.search(text)
        raise BadRequestError(
            f"The body is invalid: {text}.", field=found[1] if found else None
        ) from None


def read_argument(text: str, field: str) -> Any:
    """Return the JSON in the query parameter `field`, under the same rules as a body."""
    try:
        value, suspect = _parse(text.encode())
    except (UnicodeEncodeError, BadRequestError):
        raise BadRequestError(f"{field} must be valid JSON.", field=field) from None
    if suspect:
        _validate(value, field, CONTROL_IN_TEXT)
    return value


def has_control(text: str) -> bool:
    """Say whether a name or label holds a control character or a lone surrogate."""
    return (CONTROL.search(text) or SURROGATE.search(text)) is not None


def depth_of(body: bytes, most: int) -> int:
    """Return how deep the brackets of `body` nest outside strings, at most `most` + 1.

    Each round removes the innermost pairs: at most `most` passes at memory speed.
    """
    if body.count(b"[") + body.count(b"{") <= 1:
        return 1
    left = STRING.sub(b"", body).translate(TO_SQUARE, delete=NO_BRACKET)
    for depth in range(most + 1):
        if not left:
            return depth
        shorter = left.replace(b"[]", b"")
        if len(shorter) == len(left):
            return depth  # unbalanced: the parser raises
        left = shorter
    return most + 1


def _parse(body: bytes) -> tuple[Any, bool]:
    """Return the value, and whether each value in it must be checked."""
    if depth_of(body, MAX_DEPTH) > MAX_DEPTH:
        raise BadRequestError(f"The JSON is nested deeper than {MAX_DEPTH} levels.")
    try:
        text = body.decode()
        return DECODER.decode(text), SUSPECT.search(text) is not None
    except UnicodeDecodeError:
        raise BadRequestError("The body is not UTF-8.") from None
    except (ValueError, RecursionError):
        raise BadRequestError("The body is not JSON.") from None


def _validate_object(value: dict[str, Any], texts: CharacterRules) -> None:
    for key, under in value.items():
        if has_control(key):
            raise BadRequestError("A key contains a forbidden character.", field=_printable(key))
        _validate(under, key, texts.forbidden(key))


def _validate(value: Any, field: str, forbidden: re.Pattern[str]) -> None:
    """Raise BadRequestError naming the key `field` for a bad value at any depth."""
    if isinstance(value, str):
        if forbidden.search(value) or SURROGATE.search(value):
            raise BadRequestError(f"{field} contains a forbidden character.", field=field)
    elif isinstance(value, dict):
        for key, under in value.items():
            _validate(key, field, forbidden)
            _validate(under, field, forbidden)
    elif isinstance(value, list):
        for under in value:
            _validate(under, field, forbidden)
    elif isinstance(value, int | float):
        _validate_number(value, field)


def _validate_number(value: float, field: str) -> None:
    if not isfinite(value):
        raise BadRequestError(f"{field} must be a finite number.", field=field)
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise BadRequestError(f"{field} must not exceed 2^53.", field=field)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise BadRequestError("A key occurs twice in one object.", field=_printable(key))
        found[key] = value
    return found


def _printable(key: str) -> str:
    """Return a key of any characters in a form that a response may show."""
    return key[:LONGEST_SHOWN].encode("utf-8", "backslashreplace").decode()


def _integer(text: str) -> int:
    """Return the number; one too large without int(), whose limit of digits raises."""
    return int(text) if len(text) <= LONGEST_INTEGER else BEYOND


DECODER: Final = JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_constant=lambda _: inf
)
