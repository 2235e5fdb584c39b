"""Reads JSON from outside: the one decoder, strict where `json` and msgspec are lenient.

msgspec alone lets duplicate keys pass, `json` alone lets NaN, huge numbers and lone surrogates
pass (H-12). Every refusal is a BadRequestError; it names the top-level key to blame wherever
there is one.
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

# A string, closed or not. Possessive, and content with no end at all: linear in every case.
STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
TO_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
NO_BRACKET: Final = bytes(set(range(256)) - set(b"[]{}"))

# What needs a look at each value: an escape, a C1 control, a long number, an exponent, NaN.
SUSPECT: Final = re.compile(r"[\\\x7f-\x9f]|\d{16}|\d[eE]\+?\d{3}|NaN|Infinity")
SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
CONTROL_IN_TEXT: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

NAMED_KEY: Final = re.compile(r"field `([^`]+)`")
PATH_KEY: Final = re.compile(r"at `\$\.([^.\[`]+)")


@dataclass(frozen=True)
class Texts:
    """Which top-level keys may hold more than plain characters.

    `lines`: tab and line breaks pass inside (Text and JSON fields); `every_line` says so of all
    keys, where only a later step knows the fields. `free`: all but lone surrogates (passwords).
    """

    lines: Collection[str] = ()
    free: Collection[str] = ()
    every_line: bool = False

    def refused(self, key: str) -> re.Pattern[str]:
        """Return the pattern of what is refused in the texts under `key`."""
        if key in self.free:
            return SURROGATE
        return CONTROL_IN_TEXT if self.every_line or key in self.lines else CONTROL


PLAIN: Final = Texts()


def read_object(body: bytes, texts: Texts = PLAIN) -> dict[str, Any]:
    """Return the JSON object that `body` holds.

    Raises: BadRequestError for anything else, and for what the module's first lines name.
    """
    value, suspect = _parse(body)
    if type(value) is not dict:
        raise BadRequestError("The body must be a JSON object.")
    if suspect:
        _judge_object(value, texts)
    return value


def read_struct(body: bytes, kind: type[T], texts: Texts = PLAIN) -> T:
    """Return `body` as the request `kind`, a struct that forbids unknown fields.

    Raises: BadRequestError; `field` names the key that is missing, unknown or of a wrong type.
    """
    return to_struct(read_object(body, texts), kind)


def to_struct(value: Mapping[str, Any], kind: type[T]) -> T:
    """Return an object that was read before as the request `kind`."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text = str(error)
        found = NAMED_KEY.search(text) or PATH_KEY.search(text)
        raise BadRequestError(
            f"The body is not as it should be: {text}.", field=found[1] if found else None
        ) from None


def read_argument(text: str, field: str) -> Any:
    """Return the JSON in the query parameter `field`; refused for what a body is refused for."""
    try:
        value, suspect = _parse(text.encode())
    except (UnicodeEncodeError, BadRequestError):
        raise BadRequestError(f"{field} is not JSON as it should be.", field=field) from None
    if suspect:
        _judge(value, field, CONTROL_IN_TEXT)
    return value


def has_control(text: str) -> bool:
    """Say whether a name or label holds a control character or a lone surrogate."""
    return (CONTROL.search(text) or SURROGATE.search(text)) is not None


def depth_of(body: bytes, most: int) -> int:
    """Return how deep the brackets of `body` nest, at most `most` + 1. Strings don't count.

    Each round takes the innermost pairs away, so that the work is `most` passes at memory speed.
    """
    if body.count(b"[") + body.count(b"{") <= 1:
        return 1
    left = STRING.sub(b"", body).translate(TO_SQUARE, delete=NO_BRACKET)
    for depth in range(most + 1):
        if not left:
            return depth
        shorter = left.replace(b"[]", b"")
        if len(shorter) == len(left):
            return depth  # unbalanced: the parser says so
        left = shorter
    return most + 1


def _parse(body: bytes) -> tuple[Any, bool]:
    """Return the value, and whether something in it needs a look at each part."""
    if depth_of(body, MAX_DEPTH) > MAX_DEPTH:
        raise BadRequestError(f"The JSON is nested deeper than {MAX_DEPTH} levels.")
    try:
        text = body.decode()
        return DECODER.decode(text), SUSPECT.search(text) is not None
    except UnicodeDecodeError:
        raise BadRequestError("The body is not UTF-8.") from None
    except (ValueError, RecursionError):
        raise BadRequestError("The body is not JSON.") from None


def _judge_object(value: dict[str, Any], texts: Texts) -> None:
    for key, under in value.items():
        if has_control(key):
            raise BadRequestError("A key holds characters that are not allowed.", field=_shown(key))
        _judge(under, key, texts.refused(key))


def _judge(value: Any, field: str, refused: re.Pattern[str]) -> None:
    """Refuse a value, and all within it, in the name of the top-level key `field`."""
    if isinstance(value, str):
        if refused.search(value) or SURROGATE.search(value):
            raise BadRequestError(f"{field} holds characters that are not allowed.", field=field)
    elif isinstance(value, dict):
        for key, under in value.items():
            _judge(key, field, refused)
            _judge(under, field, refused)
    elif isinstance(value, list):
        for under in value:
            _judge(under, field, refused)
    elif isinstance(value, int | float):
        _judge_number(value, field)


def _judge_number(value: float, field: str) -> None:
    if not isfinite(value):
        raise BadRequestError(f"{field} holds no finite number.", field=field)
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise BadRequestError(f"{field} holds an integer beyond 2^53.", field=field)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise BadRequestError("A key stands twice in one object.", field=_shown(key))
        found[key] = value
    return found


def _shown(key: str) -> str:
    """Return a key that may hold anything, as an answer may show it."""
    return key[:LONGEST_SHOWN].encode("utf-8", "backslashreplace").decode()


def _integer(text: str) -> int:
    """Return the number, or one that is beyond, before Python's own limit of digits is met."""
    return int(text) if len(text) <= LONGEST_INTEGER else BEYOND


DECODER: Final = JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_constant=lambda _: inf
)
