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


def test_whitelisted_function_has_dotted_path_and_roles() -> None:
    """A function is served at `POST /api/method/<module>.<function>` (D-180)."""
    assert isinstance(close, Whitelisted)
    assert close.path == f"{__name__}.close"
    assert (close.roles, ping.roles) == (("Seller",), ())


def test_whitelisted_function_stays_directly_callable() -> None:
    assert close("fw", "a", force=True) == "fw a  True"
    named = [getattr(close, name) for name in ("__name__", "__module__", "__doc__")]
    assert named == ["close", __name__, "Close it."]


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_whitelisted_function_system_exit_becomes_runtime_error(end: type[BaseException]) -> None:
    """`sys.exit()` is a defect of its request (H-66), and the service goes on (D-146)."""

    @whitelist
    def leave(fw: Any) -> None:
        raise end

    with pytest.raises(RuntimeError, match="leave would have ended the process"):
        leave("fw")


@pytest.mark.parametrize(
    "arguments", [{"name": "a"}, {"name": "a", "reason": "b"}, {"name": "a", "force": True}]
)
def test_validate_accepts_declared_arguments(arguments: dict[str, Any]) -> None:
    close.validate(arguments)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "name"), ({"reason": "b"}, "name"), ({"name": "a", "colour": 1}, "colour"),
    ({"name": "a", "fw": 1}, "fw"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "field"), REFUSED)
def test_validate_refuses_missing_or_unknown_argument(
    arguments: dict[str, Any], field: str
) -> None:
    """A missing or unknown argument is 400 (D-182)."""
    with pytest.raises(BadRequestError) as refusal:
        close.validate(arguments)
    assert refusal.value.extra == {"field": field}


def test_validate_accepts_any_keyword_except_handle() -> None:
    ping.validate({"a": 1, "b": 2})
    with pytest.raises(BadRequestError):
        ping.validate({"fw": 1})


def test_whitelisted_call_passes_arguments_named_self_and_function() -> None:
    """The body is the keyword arguments (D-180), which may be named `self`."""

    @whitelist
    def anything(fw: Any, **named: Any) -> dict[str, Any]:
        return named

    assert anything("fw", self=1, function=2) == {"self": 1, "function": 2}


def test_whitelisted_function_returning_coroutine_fails() -> None:
    """Whitelisted functions are plain (D-184, D-145); a decorator may hide an async one."""

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
        {"sale": "SO-1"},  # not a type of JSON: bodies are not checked against it
    ],
)
def test_validate_accepts_arguments_of_annotated_types(arguments: dict[str, Any]) -> None:
    sum_up.validate(arguments)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", "2"), ("count", True), ("count", 1.5), ("count", None), ("share", "1"),
        ("rows", {}), ("rows", [1]), ("rows", [{"a": "1"}]), ("note", 5),
    ],
)  # fmt: skip
def test_validate_refuses_argument_of_wrong_type(name: str, value: Any) -> None:
    """A wrong type is 400 with the argument's name (D-182)."""
    with pytest.raises(BadRequestError) as refusal:
        sum_up.validate({name: value})
    assert refusal.value.extra == {"field": name}


@pytest.mark.parametrize(
    "annotation",
    ["Unheard_of", "how many there are", "list[int] | list[str]", "dict[int, str]", "Sale"],
)
def test_validate_ignores_annotations_outside_json(annotation: str) -> None:
    def later(fw: Any, count: int) -> None: ...

    later.__annotations__["count"] = annotation
    whitelist(later).validate({"count": "any"})


def test_validate_checks_annotations_beside_one_of_type_checkers_only() -> None:
    """An annotation that names nothing at runtime leaves the others in force (D-182)."""

    def later(fw: Any, count: int, sale: Any = None) -> None: ...

    later.__annotations__ |= {"count": "int | None", "sale": "OnlyForTypeCheckers"}
    whitelist(later).validate({"count": 1, "sale": "SO-1"})
    with pytest.raises(BadRequestError, match="count must be a whole number"):
        whitelist(later).validate({"count": "1"})


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (str, None, "kind must be text."),
        (int | None, "1", "kind must be a whole number or null."),
        (list[int], [1, "x"], "kind[1] must be a whole number."),
        (dict[str, bool], {"a": 1}, "kind[...] must be true or false."),
        (Literal["new", "old"], "gone", 'kind must be "new" or "old".'),
        (list[Literal["new"]], ["gone"], "kind is invalid: Invalid enum value 'gone' - at $[0]."),
    ],
)
def test_validate_states_the_type_of_an_argument(annotation: Any, value: Any, message: str) -> None:
    """As bodies are refused elsewhere (D-182, H-12)."""

    def later(fw: Any, kind: Any) -> None: ...

    later.__annotations__["kind"] = annotation
    with pytest.raises(BadRequestError) as refusal:
        whitelist(later).validate({"kind": value})
    assert (str(refusal.value), refusal.value.extra) == (message, {"field": "kind"})


@pytest.mark.parametrize(
    ("annotation", "value"),
    [("typing.Dict", {}), ("typing.List", []), ("typing.Dict | None", {}), ("dict", {})],
)
def test_validate_checks_bare_container_annotations(annotation: str, value: Any) -> None:
    def later(fw: Any, what: Any) -> None: ...

    later.__annotations__["what"] = annotation
    whitelist(later).validate({"what": value})
    with pytest.raises(BadRequestError):
        whitelist(later).validate({"what": "text"})


def test_validate_refusal_truncates_quoted_value() -> None:
    def later(fw: Any, kinds: list[Literal["a"]]) -> None: ...

    with pytest.raises(BadRequestError) as refusal:
        whitelist(later).validate({"kinds": ["x" * 1_000]})
    assert len(refusal.value.message) < 200


def test_validate_ignores_annotation_of_variadic_keywords() -> None:
    def later(fw: Any, **more: int) -> None: ...

    whitelist(later).validate({"more": "any"})
