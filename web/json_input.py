"""Decodes JSON from clients, strictly where `json` and msgspec are lenient.

msgspec accepts duplicate keys; `json` accepts NaN, huge numbers and lone surrogates (H-12). Every
error is a BadRequestError that names the top-level key at fault, if there is one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Generator, Iterator
from dataclasses import dataclass
from json import JSONDecoder
from math import inf, isfinite
from typing import Any, Final, Generic, TypeVar

import msgspec

from fw_actors.errors import BadRequestError, required_type
from web.request import MIB

T = TypeVar("T")

MAX_DEPTH: Final = 32
MAX_VALUES: Final = 200_000
"""The maximum number of values and containers of a body. A decoded value takes far more memory and
time than its bytes: a MiB of `[],[],…` is decoded in the time of 20 MiB of text."""
MANY_VALUES: Final = 5_000
"""The number of values from which a body is decoded in a thread: 5 ms of work."""
MAX_ITEM_CHARACTERS: Final = MIB
MAX_INTEGER: Final = 2**53
MAX_SHOWN_CHARACTERS: Final = 140
MAX_SENTENCE_CHARACTERS: Final = 400
MAX_INTEGER_CHARACTERS: Final = len(str(-MAX_INTEGER))
OUT_OF_RANGE: Final = MAX_INTEGER + 1

TO_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
NO_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{},"'))

# Every body with a value that must be checked (escapes, C1 controls, long numbers, large exponents,
# NaN) contains one of these after its digits are replaced by 0 and its E by e. C2 is the first byte
# of C1 controls in UTF-8.
SUSPECT_BYTES: Final = (b"\\", b"\x7f", b"\xc2", b"0" * 16, b"0e", b"NaN", b"Infinity")
TO_SUSPECT_BYTES: Final = bytes.maketrans(b"123456789E", b"000000000e")
SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
CONTROL_IN_TEXT: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

CONTROL_IN_NAME: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""The characters that no name or label may contain: control characters and lone surrogates."""

SPACE: Final = re.compile(r"[ \t\n\r]*")

# The messages of msgspec. A key may be as long as the body and contain any text; a path consists of
# names of structs' fields and positions.
UNKNOWN_KEY: Final = re.compile(
    r"Object contains unknown field `(.*?)`(?: - at `\$\.([^`]+)`)?", re.DOTALL
)
MISSING_KEY: Final = re.compile(r"Object missing required field `(\w+)`(?: - at `\$\.([^`]+)`)?")
TOP_LEVEL_KEY: Final = re.compile(r"at `\$\.([^.\[`]+)")


@dataclass(frozen=True)
class CharacterRules:
    """The characters that the texts under each top-level key may contain.

    `lines`: keys that also allow tab and line breaks (Text and JSON fields); with `every_line` all
    keys do, if only a later step knows the fields. `free`: keys that allow all characters except
    lone surrogates (passwords).
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


def to_struct(value: object, kind: type[T], noun: str = "body") -> T:
    """Return an object from `read_object` as a `kind`. Raises: BadRequestError."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _refusal(error, noun) from None


def _refusal(error: msgspec.ValidationError, noun: str) -> BadRequestError:
    """Return the refusal for an error of msgspec, in the words of the other refusals."""
    text = str(error)
    if match := UNKNOWN_KEY.fullmatch(text):
        key = printable(match[1])
        place = f" in {match[2]}" if match[2] else ""
        return BadRequestError(f"Unknown key {key!r}{place}.", field=key)
    if match := MISSING_KEY.fullmatch(text):
        place = f"{match[2]}." if match[2] else ""
        return BadRequestError(f"{place}{match[1]} is missing.", field=match[1])
    top = TOP_LEVEL_KEY.search(text)
    field = None if top is None else top[1]
    if (required := required_type(error)) is not None:
        place = required[0].removeprefix(".") or f"The {noun}"
        return BadRequestError(f"{place} must be {required[1]}.", field=field)
    return BadRequestError(f"The {noun} is invalid: {text[:MAX_SENTENCE_CHARACTERS]}.", field=field)


class ListReader(Generic[T]):
    """Decodes an object with one long list item by item, so that a task can pause in between.

    It decodes like `read_struct`, and the rules of this module apply to each item.
    """

    def __init__(self, body: bytes, key: str, kind: type[T], texts: CharacterRules = PLAIN) -> None:
        """`key` holds the list; the other keys are those of `kind`.

        Raises: BadRequestError for bytes that are not UTF-8, or too many values.
        """
        self._key, self._kind, self._texts = key, kind, texts
        self.has_many_values = has_many_values(body)
        _validate_size(body)
        self._others: dict[str, Any] = {}
        self._text = _decoded(body)
        self._suspect = may_be_suspect(body)

    def items(self) -> Iterator[tuple[Any, int]]:
        """Yield each item, and the number of characters of the body that were read.

        An item with forbidden values, or with more than `MAX_ITEM_CHARACTERS` characters, is a
        BadRequestError instead.

        Raises: BadRequestError if the body is not a JSON object, or nests too deep.
        """
        try:
            yield from self._object()
        except IndexError:
            raise BadRequestError("The body is not JSON.") from None

    def rest(self) -> T:
        """Return the object without its items, after they were read. Raises: BadRequestError."""
        _validate_object(self._others, self._texts)
        return to_struct(self._others, self._kind)

    def _object(self) -> Iterator[tuple[Any, int]]:
        if self._text[self._next(0)] != "{":
            raise BadRequestError("The body must be a JSON object.")
        at = self._next(self._next(0) + 1)
        while self._text[at] != "}":
            if self._text[at] != '"':
                raise BadRequestError("The body is not JSON.")
            key, at = self._value(at)
            at = self._next(at)
            if self._text[at] != ":":
                raise BadRequestError("The body is not JSON.")
            at = self._next(at + 1)
            if key in self._others:
                raise BadRequestError("A key occurs twice in one object.", field=printable(key))
            if key == self._key and self._text[at] == "[":
                self._others[key] = []
                at = yield from self._list(at)
            else:
                self._others[key], at = self._value(at)
            at = self._following(at, "}")
        if self._next(at + 1) != len(self._text):
            raise BadRequestError("The body is not JSON.")

    def _list(self, at: int) -> Generator[tuple[Any, int], None, int]:
        at = self._next(at + 1)
        while self._text[at] != "]":
            begin = at
            item, at = self._value(at)
            yield self._checked(item, begin, at), at
            at = self._following(at, "]")
        return at + 1

    def _checked(self, item: Any, begin: int, end: int) -> Any:
        if end - begin > MAX_ITEM_CHARACTERS:
            max_mib = MAX_ITEM_CHARACTERS // MIB
            return BadRequestError(f"An item of {self._key} must have at most {max_mib} MiB.")
        if not self._suspect:
            return item
        try:
            if type(item) is dict:
                _validate_object(item, self._texts)
            else:
                _validate(item, self._key, self._texts.forbidden(self._key))
        except BadRequestError as refusal:
            return refusal
        return item

    def _value(self, at: int) -> tuple[Any, int]:
        try:
            value, end = DECODER.raw_decode(self._text, at)
        except (ValueError, RecursionError):
            raise BadRequestError("The body is not JSON.") from None
        brackets = self._text.count("{", at, end) + self._text.count("[", at, end)
        if brackets > MAX_DEPTH - 2:  # fewer cannot nest deeper
            _validate_depth(self._text[at:end].encode(), MAX_DEPTH - 2)
        return value, end

    def _following(self, at: int, end: str) -> int:
        """Return the position of the next member, or of the bracket `end`."""
        at = self._next(at)
        if self._text[at] == end:
            return at
        if self._text[at] == ",":
            at = self._next(at + 1)
            if self._text[at] != end:
                return at
        raise BadRequestError("The body is not JSON.")

    def _next(self, at: int) -> int:
        if self._text[at : at + 1] > " ":
            return at
        space = SPACE.match(self._text, at)
        assert space is not None
        return space.end()


def read_argument(text: str, field: str) -> Any:
    """Return the JSON in the query parameter `field`, under the same rules as a body."""
    try:
        value, suspect = _parse(text.encode())
    except (UnicodeEncodeError, BadRequestError):
        raise BadRequestError(f"{field} must be valid JSON.", field=field) from None
    if suspect:
        _validate(value, field, CONTROL_IN_TEXT)
    return value


def depth_of(body: bytes, max_depth: int) -> int:
    """Return the nesting depth of the brackets of `body` outside strings, at most `max_depth` + 1.

    Each round removes the innermost pairs: at most `max_depth` passes at memory speed.
    """
    if body.count(b"[") + body.count(b"{") <= 1:
        return 1
    brackets = _structure(body).translate(TO_SQUARE, delete=b",")
    for depth in range(max_depth + 1):
        if not brackets:
            return depth
        shorter = brackets.replace(b"[]", b"")
        if len(shorter) == len(brackets):
            return depth  # unbalanced: the parser raises
        brackets = shorter
    return max_depth + 1


def _structure(body: bytes) -> bytes:
    """Return the brackets and commas of `body` outside strings, in their order.

    Each step is at memory speed: removing the strings one by one took a tenth of a second for a MiB
    of short ones, for which all other requests waited.
    """
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = body.translate(None, NO_STRUCTURE)
    # Two adjacent quotation marks enclose nothing, or end a string and begin the next one. Without
    # them all other marks stay inside or outside strings.
    return b"".join(marks.replace(b'""', b"").split(b'"')[::2])


def has_many_values(body: bytes) -> bool:
    """Return whether decoding takes so long that other requests must not wait for it."""
    return _values_of(body) > MANY_VALUES


def _validate_size(body: bytes) -> None:
    if _values_of(body) > MAX_VALUES and _values_of(_structure(body)) > MAX_VALUES:
        raise BadRequestError(f"The JSON has more than {MAX_VALUES:,} values.")


def _values_of(body: bytes) -> int:
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def _validate_depth(body: bytes, max_depth: int) -> None:
    if depth_of(body, max_depth) > max_depth:
        raise BadRequestError(f"The JSON is nested deeper than {MAX_DEPTH} levels.")


def _decoded(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise BadRequestError("The body is not UTF-8.") from None


def _parse(body: bytes) -> tuple[Any, bool]:
    """Return the value, and whether each value in it must be checked.

    The values are then checked one by one: a pattern over the whole text would take longer, and in
    one step, during which no other request is served.
    """
    _validate_size(body)
    _validate_depth(body, MAX_DEPTH)
    text = _decoded(body)
    try:
        value = DECODER.decode(text)
    except (ValueError, RecursionError):
        raise BadRequestError("The body is not JSON.") from None
    return value, may_be_suspect(body)


def may_be_suspect(body: bytes) -> bool:
    """Return False only for bodies without escapes, C1 controls, long numbers, large exponents and
    NaN: their values need no check."""
    plain = body.translate(TO_SUSPECT_BYTES)
    return any(part in plain for part in SUSPECT_BYTES)


def _validate_object(value: dict[str, Any], texts: CharacterRules) -> None:
    for key, under in value.items():
        if CONTROL_IN_NAME.search(key):
            raise BadRequestError(
                "A key must not contain a control character or a lone surrogate.",
                field=printable(key),
            )
        _validate(under, key, texts.forbidden(key))


def _validate(value: Any, field: str, forbidden: re.Pattern[str]) -> None:
    """Raise BadRequestError naming the key `field` for a bad value at any depth."""
    if isinstance(value, str):
        if SURROGATE.search(value):
            raise BadRequestError(f"{field} must not contain a lone surrogate.", field=field)
        if forbidden.search(value):
            raise BadRequestError(f"{field} must not contain a control character.", field=field)
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
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise BadRequestError("A key occurs twice in one object.", field=printable(key))
        members[key] = value
    return members


def printable(key: str) -> str:
    """Return a key of any length and characters in a form that a response may show."""
    return key[:MAX_SHOWN_CHARACTERS].encode("utf-8", "backslashreplace").decode()


def _integer(text: str) -> int:
    """Return the number; a very large one without int(), which raises at its limit of digits."""
    return int(text) if len(text) <= MAX_INTEGER_CHARACTERS else OUT_OF_RANGE


DECODER: Final = JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_constant=lambda _: inf
)
