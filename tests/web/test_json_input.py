"""JSON that is rejected, with the key's name (H-12)."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.errors import BadRequestError
from web.json_input import (
    MAX_ITEM_CHARACTERS,
    MAX_VALUES,
    PLAIN,
    CharacterRules,
    ListReader,
    depth_of,
    may_be_suspect,
    read_argument,
    read_object,
    read_struct,
)


class OrderLineInput(msgspec.Struct, forbid_unknown_fields=True):
    item: str


class OrderInput(msgspec.Struct, forbid_unknown_fields=True):
    title: str
    qty: int = 0
    share: float | None = None
    urgent: bool = False
    lines: list[OrderLineInput] = []


def refused(body: bytes, texts: CharacterRules = PLAIN) -> str | None:
    with pytest.raises(BadRequestError) as caught:
        read_object(body, texts)
    field = caught.value.extra.get("field")
    assert field is None or isinstance(field, str)
    return field


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"null",
        b"12",
        b"a=b",
        b"\xff\xfe",
        b'{"a": 1} x',
        b"\xef\xbb\xbf{}",
        b"{'a': 1}",
        b'{"a": 01}',
        b'{"a": 1,}',
        b'{"a": "\t"}',
        b'{"a": "\xc3"}',
        b"{" * 1000,
    ],
)
def test_read_object_rejects_other_json(body: bytes) -> None:
    assert refused(body) is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"a": 1, "a": 1}', "a"),
        (b'{"lines": [{"b": 1, "b": 2}]}', "b"),
        (b'{"a": NaN}', "a"),
        (b'{"a": [-Infinity]}', "a"),
        (b'{"a": 1e999}', "a"),
        (b'{"a": 9007199254740993}', "a"),
        (b'{"a": {"b": -9007199254740993}}', "a"),
        (b'{"a": ' + b"9" * 5000 + b"}", "a"),
        (b'{"a": "\\ud800"}', "a"),
        (b'{"a": "\\u0000"}', "a"),
        (b'{"a": "\x7f"}', "a"),
        ('{"a": "\x85"}'.encode(), "a"),
        (b'{"a": ["\\n"]}', "a"),
        (b'{"a": {"\\t": 1}}', "a"),
    ],
)
def test_read_object_names_the_key_of_a_bad_value(body: bytes, field: str) -> None:
    assert refused(body) == field


def test_read_object_escapes_an_unprintable_key() -> None:
    assert refused(b'{"\\ud800": 1}') == "\\ud800"
    assert refused(b'{"\\ud800": 1, "\\ud800": 2}') == "\\ud800"


@pytest.mark.parametrize(
    "value", [2**53, -(2**53), 1e308, -0.5, "ü☃\U0001f600", 'a"b\\c', "[[{", True]
)
def test_read_object_keeps_allowed_values(value: object) -> None:
    sent = {"a": value, "b": [value, {"c": value}], "d": None}
    assert read_object(json.dumps(sent).encode()) == sent
    assert read_object(json.dumps(sent, ensure_ascii=False).encode()) == sent


@pytest.mark.parametrize("text", ["a\tb", "a\nb", "a\r\nb"])
def test_read_object_allows_line_breaks_by_rule(text: str) -> None:
    body = json.dumps({"a": text, "b": {"c": [text]}}).encode()
    assert refused(body) == "a"
    assert refused(body, CharacterRules(lines=("a",))) == "b"
    assert read_object(body, CharacterRules(lines=("a", "b")))["b"] == {"c": [text]}
    assert read_object(body, CharacterRules(every_line=True))["a"] == text


def test_read_object_allows_controls_in_free_keys_only() -> None:
    """Passwords are exempt from the rule, but for lone surrogates (H-14)."""
    body = b'{"pwd": "\\u0000\\u001b"}'
    assert refused(body, CharacterRules(every_line=True)) == "pwd"
    assert read_object(body, CharacterRules(free=("pwd",))) == {"pwd": "\0\x1b"}
    assert refused(b'{"pwd": "\\udc00"}', CharacterRules(free=("pwd",))) == "pwd"


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"k":', "}")])
def test_read_object_limits_nesting_to_32_levels(opening: str, closing: str) -> None:
    def nested(levels: int) -> bytes:
        inner = opening * (levels - 1) + "1" + closing * (levels - 1)
        return f'{{"a": {inner}}}'.encode()

    assert read_object(nested(32))
    assert refused(nested(33)) is None
    assert refused(nested(100_000)) is None


TEXTS = st.text() | st.text(st.sampled_from('[]{},:"\\ a'))


@given(
    st.recursive(
        TEXTS | st.integers(), lambda under: st.lists(under) | st.dictionaries(TEXTS, under)
    )
)
def test_depth_of_agrees_with_the_parser(value: Any) -> None:
    def depth(part: Any) -> int:
        if isinstance(part, dict):
            return 1 + max(map(depth, part.values()), default=0)
        return 1 + max(map(depth, part), default=0) if isinstance(part, list) else 0

    assert depth_of(json.dumps([value]).encode(), 32) == depth([value])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("part", [b'"', b'\\"', b'"\\', b"[]", b"[", b'{"', b"\\"])
def test_read_object_is_linear_for_a_hostile_mebibyte(part: bytes) -> None:
    """A quadratic scan would take minutes here; the test's time limit is a minute."""
    assert refused(b'{"a": "' + part * (1024 * 1024 // len(part))) is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{}", "title"),
        (b'{"title": 1}', "title"),
        (b'{"title": null}', "title"),
        (b'{"title": true}', "title"),
        (b'{"title": "a", "qty": "1"}', "qty"),
        (b'{"title": "a", "qty": 1.5}', "qty"),
        (b'{"title": "a", "lines": [1]}', "lines"),
        (b'{"title": "a", "colour": "red"}', "colour"),
        (b'{"title": "a", "": "red"}', ""),
        (b'{"title": "a", "co`lour": "red"}', "co`lour"),
        (b'{"title": "a", "lines": [{"item": "b", "co`lour": 1}]}', "co`lour"),
    ],
)
def test_read_struct_names_missing_unknown_and_mistyped_keys(body: bytes, field: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        read_struct(body, OrderInput)
    assert caught.value.extra == {"field": field}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("{}", "title is missing."),
        ('{"title": null}', "title must be text."),
        ('{"title": "a", "qty": 1.5}', "qty must be a whole number."),
        ('{"title": "a", "share": "1"}', "share must be a number or null."),
        ('{"title": "a", "urgent": 1}', "urgent must be true or false."),
        ('{"title": "a", "lines": {}}', "lines must be a list."),
        ('{"title": "a", "lines": [1]}', "lines[0] must be an object."),
        ('{"title": "a", "lines": [{}]}', "lines[0].item is missing."),
        ('{"title": "a", "lines": [{"item": 1}]}', "lines[0].item must be text."),
        ('{"title": "a", "lines": [{"item": "b", "z": 1}]}', "Unknown key 'z' in lines[0]."),
        ('{"title": "a", "colour": "red"}', "Unknown key 'colour'."),
    ],
)
def test_read_struct_states_the_rule_in_a_sentence(body: str, sentence: str) -> None:
    """The message is a sentence for people, without the names of Python's types (H-50)."""
    with pytest.raises(BadRequestError) as caught:
        read_struct(body.encode(), OrderInput)
    assert str(caught.value) == sentence


def test_read_argument_names_the_parameter() -> None:
    assert read_argument('[["name", "like", "a%"]]', "filters") == [["name", "like", "a%"]]
    for text in ("[", '{"a": 1, "a": 2}', "[NaN]", "[" * 40 + "]" * 40, '["\\u0000"]', "\ud800"):
        with pytest.raises(BadRequestError) as caught:
            read_argument(text, "filters")
        assert caught.value.extra == {"field": "filters"}


class Batch(msgspec.Struct, forbid_unknown_fields=True):
    items: list[Any]
    flag: bool = False


def read_batch(body: bytes) -> tuple[list[Any], Batch]:
    reader = ListReader(body, "items", Batch)
    items = [item for item, _ in reader.items()]
    return items, reader.rest()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text('a,]}"\\\u00e9 '),
    lambda under: st.lists(under) | st.dictionaries(st.text("b:{"), under),
    max_leaves=10,
)


@given(st.lists(JSON), st.booleans(), st.booleans(), st.sampled_from([None, 1]))
def test_list_reader_reads_what_the_whole_decoder_reads(
    items: list[Any], flag: bool, first: bool, indent: int | None
) -> None:
    members = {"items": items, "flag": flag} if first else {"flag": flag, "items": items}
    body = json.dumps(members, indent=indent).encode()
    assert read_batch(body) == (items, Batch([], flag))


@given(st.binary(max_size=40) | st.text('[]{},:"12items flag', max_size=40).map(str.encode))
def test_list_reader_refuses_what_is_no_json(body: bytes) -> None:
    try:
        expected = read_struct(body, Batch)
    except BadRequestError:
        with pytest.raises(BadRequestError):
            read_batch(body)
    else:
        items, rest = read_batch(body)
        assert Batch(items, rest.flag) == expected


BATCH = b'{"items": [1, {"a": [2]}], "flag": true}'


@pytest.mark.parametrize("end", range(len(BATCH)))
def test_list_reader_refuses_each_truncated_body(end: int) -> None:
    with pytest.raises(BadRequestError):
        read_batch(BATCH[:end])


@pytest.mark.parametrize(
    "body",
    [
        b'{"items": [1,], "flag": true}',
        b'{"items": [1], "flag": true,}',
        b'{"items": [1] "flag": true}',
        b'{"items": [1], "items": [2]}',
        b'{"items": [{"a": 1, "a": 2}]}',
        b'{"items": [1]} x',
        b'{"items": [1]}{}',
        b"{1: [1]}",
        b'{"items": [NaN]}',
        b'{"items": ["\xff"]}',
        b'{"items": [' + b"[" * 40 + b"]" * 40 + b"]}",
        b'{"items": [' + b"[" * 100_000 + b"]" * 100_000 + b"]}",
    ],
)
def test_list_reader_keeps_the_rules_of_bodies(body: bytes) -> None:
    """The rules on malformed bodies hold item by item (H-12)."""
    try:
        items, _ = read_batch(body)
    except BadRequestError:
        return
    assert any(isinstance(item, BadRequestError) for item in items)


def test_list_reader_yields_the_refusal_of_a_forbidden_value() -> None:
    reader = ListReader(b'{"items": [{"a": 1}, {"b": "\\u0000"}, {"a": 2}]}', "items", Batch)
    first, refused_one, last = (item for item, _ in reader.items())
    assert (first, last) == ({"a": 1}, {"a": 2})
    assert isinstance(refused_one, BadRequestError)
    assert refused_one.extra == {"field": "b"}


@pytest.mark.parametrize("depth", [30, 31])
def test_list_reader_limits_depth_like_read_struct(depth: int) -> None:
    """Its object and its list are two of the 32 levels (H-12)."""
    body = b'{"items": [%s%s]}' % (b"[" * depth, b"]" * depth)
    reader = ListReader(body, "items", Batch)
    refused = depth > 30
    with pytest.raises(BadRequestError) if refused else nullcontext():
        assert len(list(reader.items())) == 1
    with pytest.raises(BadRequestError) if refused else nullcontext():
        read_object(body)


def test_list_reader_refuses_one_character_behind_the_object() -> None:
    with pytest.raises(BadRequestError):
        list(ListReader(b'{"items": []}x', "items", Batch).items())


@given(
    st.text(st.sampled_from("0159eE+-.aNnIify \\\u007f\u0080\u009f\u00a0\u00e9"), max_size=30),
    st.sampled_from(["", "NaN", "Infinity", "0" * 16, "1e400", "9E+308"]),
)
def test_read_object_checks_each_value_of_a_suspect_body(text: str, part: str) -> None:
    """The search in the bytes misses nothing that has to be checked."""
    to_check = r"[\\\x7f-\x9f]|\d{16}|\d[eE]\+?\d{3}|NaN|Infinity"
    body = json.dumps({"a": text + part}, ensure_ascii=False).encode()
    if re.search(to_check, body.decode()):
        assert may_be_suspect(body)


MANY = b"[]," * MAX_VALUES + b"[]"


@pytest.mark.parametrize(
    "body", [b'{"a": [' + MANY + b"]}", b'{"items": [{"a": [' + MANY + b"]}]}"]
)
def test_json_with_too_many_values_is_refused(body: bytes) -> None:
    """Each would take more memory and time than its bytes (H-12)."""
    for read in (read_object, read_batch):
        with pytest.raises(BadRequestError, match="more than 200,000 values"):
            read(body)


def test_punctuation_in_texts_is_no_value() -> None:
    text = ",[{" * MAX_VALUES
    assert read_object(json.dumps({"a": text}).encode()) == {"a": text}


def test_list_reader_refuses_one_item_that_is_too_long() -> None:
    """An event of a batch may be as long as a single one (B-89)."""
    items = ["x" * (MAX_ITEM_CHARACTERS - 2), "x" * (MAX_ITEM_CHARACTERS - 1)]
    body = json.dumps({"items": items}).encode()
    (accepted, refused_one), _ = read_batch(body)
    assert accepted == items[0]
    assert refused_one.message == "An item of items must have at most 1 MiB."
