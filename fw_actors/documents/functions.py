"""Functions of an app that HTTP may call, with the roles that may (D-180)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints, overload

import msgspec

from fw_actors.documents.hooks import call_plainly
from fw_actors.errors import BadRequestError

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_LONGEST_SHOWN: Final = 140
_JSON_TYPES: Final = (str, int, float, bool, dict, list, NoneType, Any)


class Whitelisted:
    """A function under `/api/method/<module>.<function>`; still callable as itself."""

    def __init__(self, function: Callable[..., Any], roles: Sequence[str]) -> None:
        self.function = function
        self.given_roles = roles  # the registry validates them
        self.roles = tuple(roles)
        self.module = function.__module__
        self.path = f"{function.__module__}.{function.__name__}"
        self._signature = inspect.signature(function)
        functools.update_wrapper(self, function)  # so that it can be enqueued by its own name

    def __call__(self, /, *args: Any, **arguments: Any) -> Any:
        """Call it; see `call_plainly`."""
        return call_plainly(self.path, self.function, *args, **arguments)

    @property
    def is_plain(self) -> bool:
        """Whether it can be called with the handle, and returns when it is done."""
        first = next(iter(self._signature.parameters.values()), None)
        takes_handle = first is not None and first.kind in _POSITIONAL
        return takes_handle and not inspect.iscoroutinefunction(self.function)

    @functools.cached_property
    def _types(self) -> dict[str, Any]:
        """The JSON types that the parameters are annotated with; others say nothing of a body."""
        try:
            hints = get_type_hints(self.function)
        except Exception:  # a name that type checkers alone see, or plain words
            return {}
        return {name: hint for name, hint in hints.items() if _is_json(hint)}

    def validate(self, arguments: Mapping[str, Any]) -> None:
        """Refuse arguments that the function does not take, or not of this type (D-182).

        Raises: BadRequestError naming the argument.
        """
        handle, *taken = self._signature.parameters.values()
        anything = any(p.kind is p.VAR_KEYWORD for p in taken)
        known = {p.name for p in taken if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        for name in arguments:
            if name not in known and (not anything or name == handle.name):
                raise BadRequestError(f"{self.path} takes no {name}.", field=name)
        for parameter in taken:
            needed = parameter.default is parameter.empty and parameter.name in known
            if needed and parameter.name not in arguments:
                raise BadRequestError(f"{parameter.name} is missing.", field=parameter.name)
            if parameter.name in known and parameter.name in arguments:
                self._validate_type(parameter, arguments[parameter.name])

    def _validate_type(self, parameter: inspect.Parameter, value: Any) -> None:
        name = parameter.name
        if name not in self._types or (value is None and parameter.default is None):
            return
        try:
            msgspec.convert(value, self._types[name])
        except msgspec.ValidationError as error:
            text = str(error).replace("`", "")[:_LONGEST_SHOWN]  # it may quote the value
            raise BadRequestError(f"{name} is of a wrong type: {text}.", field=name) from None
        except TypeError:  # a union that msgspec can't tell apart
            return


def _is_json(hint: Any) -> bool:
    """Whether an annotation is of nothing but what JSON has, so that a body can be held to it."""
    origin = get_origin(hint)
    if origin is Literal:
        return True
    parts = get_args(hint)
    if origin is dict and parts[:1] not in ((), (str,)):  # () is of a bare typing.Dict
        return False
    if origin in (dict, list, Union, UnionType):
        return all(_is_json(part) for part in parts)
    return any(hint is each for each in _JSON_TYPES)


@overload
def whitelist(function: Callable[..., Any], /) -> Whitelisted: ...


@overload
def whitelist(*, roles: Sequence[str] = ()) -> Callable[[Callable[..., Any]], Whitelisted]: ...


def whitelist(
    function: Callable[..., Any] | None = None, /, *, roles: Sequence[str] = ()
) -> Whitelisted | Callable[[Callable[..., Any]], Whitelisted]:
    """Let HTTP call a function, by POST, in a write transaction.

    `roles`: may call it besides a System Manager; none means every signed-in user.
    """
    if function is not None:
        return Whitelisted(function, roles)
    return lambda target: Whitelisted(target, roles)
