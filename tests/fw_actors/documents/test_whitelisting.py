"""Functions of an app that HTTP may call (D-180 to D-184)."""

from __future__ import annotations

import typing  # noqa: F401 # annotations of a test name it
from typing import Any, Literal

import pytest

from fw_actors.app import whitelist
from fw_actors.documents.registry import Whitelisted
from fw_actors.errors import BadRequestError


@whitelist(roles=["Seller"])
def close(fw: Any, name: str, reason: str = "", *, force: bool = False) -> str:
    """Close it."""
    return f"{fw} {name} {reason} {force}"


class Sale: ...


@whitelist
def sum_up(
    fw: Any,
    count: int = 1,
    share: float | None = None,
    rows: list[dict[str, int]] = [],  # noqa: B006
    sale: Sale | None = None,
    note: str = None,  # type: ignore[assignment] # noqa: RUF013
) -> None: ...


@whitelist
def ping(fw: Any, **anything: Any) -> Any:
    return anything


def test_it_is_called_under_its_dotted_path() -> None:
    """A function is served at `POST /api/method/<module>.<function>` (D-180)."""
    assert isinstance(close, Whitelisted)
    assert close.path == f"{__name__}.close"
    assert (close.roles, ping.roles) == (("Seller",), ())


def test_it_is_still_a_function() -> None:
    assert close("fw", "a", force=True) == "fw a  True"
    named = [getattr(close, name) for name in ("__name__", "__module__", "__doc__")]
    assert named == ["close", __name__, "Close it."]


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_it_ends_no_process(end: type[BaseException]) -> None:
    """`sys.exit()` is a defect of its request (H-66), and the service goes on (D-146)."""

    @whitelist
    def leave(fw: Any) -> None:
        raise end

    with pytest.raises(RuntimeError, match="leave would have ended the process"):
        leave("fw")


@pytest.mark.parametrize(
    "arguments", [{"name": "a"}, {"name": "a", "reason": "b"}, {"name": "a", "force": True}]
)
def test_arguments_that_it_takes_are_taken(arguments: dict[str, Any]) -> None:
    close.validate(arguments)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "name"), ({"reason": "b"}, "name"), ({"name": "a", "colour": 1}, "colour"),
    ({"name": "a", "fw": 1}, "fw"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "field"), REFUSED)
def test_an_argument_missing_or_unknown_is_a_bad_request(
    arguments: dict[str, Any], field: str
) -> None:
    """A missing or unknown argument is 400 (D-182)."""
    with pytest.raises(BadRequestError) as refusal:
        close.validate(arguments)
    assert refusal.value.extra == {"field": field}


def test_a_function_of_any_keyword_takes_any_but_its_handle() -> None:
    ping.validate({"a": 1, "b": 2})
    with pytest.raises(BadRequestError):
        ping.validate({"fw": 1})


def test_an_argument_may_have_any_name() -> None:
    """The body is the keyword arguments (D-180); one called `self` was a defect (500)."""

    @whitelist
    def anything(fw: Any, **named: Any) -> dict[str, Any]:
        return named

    assert anything("fw", self=1, function=2) == {"self": 1, "function": 2}


def test_one_that_gives_back_a_coroutine_has_done_nothing_and_fails() -> None:
    """Whitelisted functions are plain (D-184, D-145); a decorator may hide that one is none."""

    async def later() -> None: ...

    @whitelist
    def hidden(fw: Any) -> Any:
        return later()

    with pytest.raises(RuntimeError, match="hidden returned a coroutine"):
        hidden("fw")


@pytest.mark.parametrize(
    "arguments",
    [
        {"count": 2, "share": 1, "rows": [{"a": 1}], "note": "x"},
        {"share": None, "note": None},
        {"sale": "SO-1"},  # no type of JSON: it says nothing of what a body may hold
    ],
)
def test_arguments_of_the_annotated_types_are_taken(arguments: dict[str, Any]) -> None:
    sum_up.validate(arguments)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", "2"), ("count", True), ("count", 1.5), ("count", None), ("share", "1"),
        ("rows", {}), ("rows", [1]), ("rows", [{"a": "1"}]), ("note", 5),
    ],
)  # fmt: skip
def test_an_argument_of_another_type_is_a_bad_request(name: str, value: Any) -> None:
    """A wrong type is 400 with the argument's name (D-182); a function met a 500 by it."""
    with pytest.raises(BadRequestError) as refusal:
        sum_up.validate({name: value})
    assert refusal.value.extra == {"field": name}


@pytest.mark.parametrize(
    "annotation",
    ["Unheard_of", "how many there are", "list[int] | list[str]", "dict[int, str]", "Sale"],
)
def test_annotations_that_say_nothing_of_json_judge_nothing(annotation: str) -> None:
    def later(fw: Any, count: int) -> None: ...

    later.__annotations__["count"] = annotation
    whitelist(later).validate({"count": "any"})


@pytest.mark.parametrize(
    ("annotation", "value"),
    [("typing.Dict", {}), ("typing.List", []), ("typing.Dict | None", {}), ("dict", {})],
)
def test_bare_containers_are_types_of_json(annotation: str, value: Any) -> None:
    def later(fw: Any, what: Any) -> None: ...

    later.__annotations__["what"] = annotation
    whitelist(later).validate({"what": value})
    with pytest.raises(BadRequestError):
        whitelist(later).validate({"what": "text"})


def test_a_refusal_quotes_no_more_than_a_line_of_the_value() -> None:
    def later(fw: Any, kind: Literal["a"]) -> None: ...

    with pytest.raises(BadRequestError) as refusal:
        whitelist(later).validate({"kind": "x" * 1_000})
    assert len(refusal.value.message) < 200


def test_the_annotation_of_any_further_keywords_judges_none() -> None:
    def later(fw: Any, **more: int) -> None: ...

    whitelist(later).validate({"more": "any"})
