"""Trace contexts: which are accepted, and which are sent on (B-421, B-422)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.tracing import (
    TraceContext,
    decode_context,
    encode_context,
    new_context,
    new_parent_id,
    read_context,
)

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
VALID = f"00-{TRACE}-{PARENT}-01"

_KEY_CHARACTERS = st.sampled_from("abcxyz019_-*/@")
_KEYS = st.builds(str.__add__, st.sampled_from("abz09"), st.text(_KEY_CHARACTERS, max_size=20))
_VALUES = st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters=",="),
    min_size=1,
    max_size=5,
)
_STATES = st.lists(st.tuples(_KEYS, _VALUES), max_size=10, unique_by=lambda pair: pair[0]).map(
    lambda pairs: ",".join(f"{key}={value}" for key, value in pairs)
)
_IDS = st.binary(min_size=24, max_size=24).map(new_context)


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "00",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-1",
        f"00-{TRACE}-{PARENT}-01-",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE}-{PARENT}-01.",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE}-{PARENT.upper()}-01",
        f"00-{TRACE}-{PARENT}-0A",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{PARENT}-01",
        f"00-{TRACE}0-{PARENT}-01",
        f"00-{TRACE}-{PARENT[1:]}-01",
        f"00_{TRACE}_{PARENT}_01",
        f"ff-{TRACE}-{PARENT}-01",
        f"0-{TRACE}-{PARENT}-01",
        f"zz-{TRACE}-{PARENT}-01",
        f"01-{TRACE}-{PARENT}-01.what",
        f"01-{TRACE}-{PARENT}-01-{'x' * 600}",
        f"00-{TRACE[:-1]}\u0663-{PARENT}-01",
        f"{VALID}\n",
        f"{VALID},{VALID}",
    ],
)
def test_invalid_traceparent_is_ignored(parent: str) -> None:
    assert read_context([parent], ["a=1"]) is None


@pytest.mark.parametrize("parents", [[], [VALID, VALID], [VALID, ""]])
def test_traceparent_must_be_sent_once(parents: list[str]) -> None:
    assert read_context(parents) is None


@pytest.mark.parametrize(
    ("parent", "flags"),
    [
        (VALID, 1),
        (f" {VALID}\t", 1),
        (f"00-{TRACE}-{PARENT}-00", 0),
        (f"00-{TRACE}-{PARENT}-03", 3),
        (f"00-{TRACE}-{PARENT}-ff", 3),
        (f"00-{TRACE}-{PARENT}-fc", 0),
        (f"01-{TRACE}-{PARENT}-01", 1),
        (f"cc-{TRACE}-{PARENT}-03-what-comes-then", 1),
        (f"cc-{TRACE}-{PARENT}-00-", 0),
    ],
)
def test_traceparent_keeps_known_flags_only(parent: str, flags: int) -> None:
    """The known fields of a later version are read, and version 00 is sent on."""
    context = read_context([parent])
    assert context == TraceContext(TRACE, PARENT, flags)
    assert context is not None
    assert context.parent == f"00-{TRACE}-{PARENT}-{flags:02x}"
    assert context.is_sampled is bool(flags & 1)


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        (["congo=t61rcWkgMzE"], "congo=t61rcWkgMzE"),
        (["a=1, b=2\t,c=3"], "a=1, b=2\t,c=3"),
        (["a=1", "b=2"], "a=1,b=2"),
        (["a=1,,b=2"], "a=1,,b=2"),
        (["1a-_*/@x=v"], "1a-_*/@x=v"),
        ([f"k={'v' * 256}"], f"k={'v' * 256}"),
        ([",".join(f"k{n}=1" for n in range(32))], ",".join(f"k{n}=1" for n in range(32))),
        ([], ""),
        ([""], ""),
        ([" , "], ""),
        ([",".join(f"k{n}=1" for n in range(33))], ""),
        ([f"k={'v' * 257}"], ""),
        ([f"a={'v' * 255},b={'v' * 255}"], ""),
        (["a=1,a=2"], ""),
        (["A=1"], ""),
        (["a"], ""),
        (["a="], ""),
        (["=1"], ""),
        (["a=b=c"], ""),
        (["a=\x00"], ""),
        (["a=\u00e9"], ""),
        (["a=1\r\nx: y"], ""),
    ],
)
def test_tracestate_is_kept_unchanged_or_dropped_whole(lines: list[str], state: str) -> None:
    assert read_context([VALID], lines) == TraceContext(TRACE, PARENT, 1, state)


@given(_IDS, st.sampled_from([0, 1, 2, 3]), _STATES)
def test_trace_context_round_trips_headers_and_storage(
    ids: TraceContext, flags: int, state: str
) -> None:
    context = TraceContext(ids.trace_id, ids.parent_id, flags, state)
    headers = {name.decode(): value.decode() for name, value in context.headers}
    assert ("tracestate" in headers) is bool(state)
    sent = [headers["tracestate"]] if state else []
    assert read_context([headers["traceparent"]], sent) == context
    assert decode_context(encode_context(context)) == context


@given(st.text(max_size=80), st.lists(st.text(max_size=600), max_size=3))
def test_read_context_accepts_any_text(parent: str, states: list[str]) -> None:
    assert read_context([parent], states) is None or parent.strip(" \t").isascii()
    context = read_context([VALID], states)
    assert context is not None
    assert len(context.state) <= 512
    assert context.state.isascii()
    assert context.state.isprintable() or "\t" in context.state


@pytest.mark.parametrize("text", [None, "", "garbage", VALID[:-1], f"{VALID.upper()} a=1"])
def test_stored_context_ignores_invalid_text(text: str | None) -> None:
    assert decode_context(text) is None


def test_trace_ids_are_never_zero() -> None:
    """Random bytes that are all zero make ids that receivers take."""
    context = new_context(bytes(24))
    assert read_context([context.parent]) == context
    assert int(new_parent_id(bytes(8)), 16) > 0


def test_followed_by_keeps_the_trace_with_a_new_parent() -> None:
    context = TraceContext(TRACE, PARENT, 1, "a=1")
    assert context.followed_by("00f067aa0ba902b7") == TraceContext(
        TRACE, "00f067aa0ba902b7", 1, "a=1"
    )
