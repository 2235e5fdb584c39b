"""The checks before an operation, in their order (H-21).

404 and 405 for path and verb, 413, CSRF 403, 400 for two credentials, 401, 409 for another user
than the request is meant for, the address's 429, 415, and 400 for query and body. The operation
itself checks roles and values, and the address's 429 when query and body are valid: it counts the
address in its transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, cast
from urllib.parse import parse_qsl, unquote

import trio
from quart.wrappers import Request

from fw_actors.actors.gateway import Gateway
from fw_actors.errors import (
    AuthenticationError,
    BadRequestError,
    ConflictError,
    CSRFError,
    FwError,
    MethodNotAllowedError,
    OverloadedError,
    PayloadTooLargeError,
    UnsupportedMediaTypeError,
)
from web.exchange import Exchange
from web.json_input import CONTROL_IN_NAME, has_many_values, printable
from web.operations import DEFAULT_BODY_BYTES, Authentication, BodyRule, Operation, Route
from web.request import LimitedBody
from web.response import COOKIE, CSRF_HEADER, USER_HEADER, Response

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
CSRF_FREE_PREFIX: Final = "/api/auth/"
MAX_PARAMETERS: Final = 50
MAX_SID_CHARACTERS: Final = 128
UTF_8: Final = ("utf-8", "utf8")
CONDITIONS: Final = ("If-Match", "If-None-Match", "If-Unmodified-Since")


MAX_WAITING_BODIES: Final = 32


class BodyDecoder:
    """Decodes bodies; one with many values in a thread, so that no other request waits for it.

    A body of 200,000 values takes up to 0.3 s. One is decoded at a time, because threads of Python
    do not decode faster together.
    """

    def __init__(self) -> None:
        self._thread = trio.CapacityLimiter(1)

    async def read(self, received: LimitedBody, rule: BodyRule) -> Any:
        """Return the decoded body of a request.

        Raises: as `LimitedBody.read` and `rule.read`; BadRequestError for a missing body,
            OverloadedError.
        """
        body = received.read(rule.limit)
        if not body:
            if not rule.optional:
                raise BadRequestError("The body is missing.")
            return rule.read(b"{}")
        if not has_many_values(body):
            return rule.read(body)
        if self._thread.statistics().tasks_waiting >= MAX_WAITING_BODIES:
            raise OverloadedError("Too many long bodies wait to be decoded. Try again in a moment.")
        return await trio.to_thread.run_sync(rule.read, body, limiter=self._thread)


async def check_request(
    exchange: Exchange, route: Route, gateway: Gateway, decoder: BodyDecoder
) -> Operation:
    """Return the operation to run; the exchange then holds caller, query and body.

    Raises: the error of the first check that fails.
    """
    request = exchange.request
    operation = _operation(exchange, route)
    limit = DEFAULT_BODY_BYTES if operation.body is None else operation.body.limit
    received = cast("LimitedBody", request.body).received  # a chunked body declares no length
    if max(request.content_length or 0, received) > limit:
        raise PayloadTooLargeError(limit)
    keys = api_keys_of(request)
    reads_keys = operation.authentication is not Authentication.IGNORED
    if not (keys and reads_keys):
        _require_csrf_header(request)  # a key that is not read exempts from nothing
    elif len(keys) > 1:
        raise BadRequestError("Send only one API key.", field="Authorization")
    sids = session_ids(request.headers.getlist("Cookie"))
    if len(sids) > 1 or (sids and keys):
        _reject_ambiguous(exchange, len(sids) > 1, operation)
        keys = []
    elif sids and 0 < len(sids[0]) <= MAX_SID_CHARACTERS:  # a longer one is not hashed
        exchange.sid = sids[0]
    await _authenticate(exchange, operation.authentication, keys[0] if keys else None, gateway)
    _require_intended_user(exchange)
    _validate_path_arguments(exchange)
    try:
        await _read_arguments(exchange, operation, decoder)
    except FwError:
        if operation.check_address is not None:
            await operation.check_address(exchange)
        raise
    return operation


async def _read_arguments(exchange: Exchange, operation: Operation, decoder: BodyDecoder) -> None:
    rule, request = operation.body, exchange.request
    if rule is not None and _has_body(request):
        _require_json(request)
    _refuse_conditions(request)
    exchange.query = _query(request, operation.query)
    if rule is not None:
        exchange.body = await decoder.read(cast("LimitedBody", request.body), rule)


def _operation(exchange: Exchange, route: Route) -> Operation:
    if route.find is not None:
        route.find(exchange)
    method = exchange.request.method
    operation = route.operations.get("GET" if method == "HEAD" else method)
    if operation is not None:
        return operation
    if method == "OPTIONS":
        # The query is that of another verb.
        return Operation(partial(_list_verbs, route), Authentication.IGNORED, query=None)
    raise MethodNotAllowedError(route.verbs)


async def _list_verbs(route: Route, exchange: Exchange) -> Response:
    return Response(b"", status=204, headers=(("Allow", ", ".join(route.verbs)),))


def api_keys_of(request: Request) -> list[str]:
    """Return the request's API keys, of which there may be one; other schemes are ignored, since a
    proxy may use them."""
    keys = []
    for line in request.headers.getlist("Authorization"):
        scheme, _, rest = line.partition(" ")
        if scheme.lower() == "bearer":
            keys.append(rest.strip())
    return keys


def _require_csrf_header(request: Request) -> None:
    """Require the CSRF header: a page of another site can send forms, but not set it."""
    if request.method in SAFE or request.path.startswith(CSRF_FREE_PREFIX):
        return
    if not request.headers.get(CSRF_HEADER):
        raise CSRFError
    if request.headers.get("Sec-Fetch-Site", "").lower() == "cross-site":
        raise CSRFError("Requests from other sites are not allowed.")


def session_ids(cookie_lines: Iterable[str]) -> list[str]:
    """Return the values of all cookies named `sid`, empty ones too; more than one is an error."""
    ids = []
    for line in cookie_lines:
        for part in line.split(";"):
            name, equals, value = part.partition("=")
            if equals and name.strip(" \t") == COOKIE:
                ids.append(value.strip(" \t"))
    return ids


def _reject_ambiguous(exchange: Exchange, two_sids: bool, operation: Operation) -> None:
    """Raise BadRequestError for two credentials, unless the operation treats them as a guest's.

    A sibling host can set a second cookie `sid`, with which a user could not sign in or out.
    Therefore these two operations are served, and other responses clear all `sid` cookies.
    """
    exchange.clears_cookies = two_sids or operation.ambiguous_as_guest
    if operation.ambiguous_as_guest:
        return
    if two_sids:
        raise BadRequestError("Send only one cookie sid.", field="sid")
    raise BadRequestError("Send a cookie sid or an API key, not both.", field="sid")


async def _authenticate(
    exchange: Exchange, authentication: Authentication, key: str | None, gateway: Gateway
) -> None:
    if authentication is Authentication.IGNORED:
        return
    if key is not None:
        exchange.caller = await gateway.keys.caller(key, exchange.address)
        return
    if exchange.sid is not None:
        try:
            exchange.caller = await gateway.authenticate(exchange.sid)
        except AuthenticationError:
            if authentication is Authentication.REQUIRED:
                raise
    elif authentication is Authentication.REQUIRED:
        raise AuthenticationError


def _require_intended_user(exchange: Exchange) -> None:
    """Raise ConflictError if the request is meant for another user than its caller.

    All pages of a browser share its cookie: a page that was opened before another user signed in
    would otherwise change that user's account.
    """
    if exchange.caller is None:
        return
    user = exchange.caller.user
    for intended in map(unquote, exchange.request.headers.getlist(USER_HEADER)):
        if intended != user:
            raise ConflictError(
                f"This request was made as {printable(intended)}, but {user} is signed in now. "
                "Reload the page, or sign in again in another tab."
            )


def _validate_path_arguments(exchange: Exchange) -> None:
    """Raise BadRequestError for control characters: PostgreSQL rejects them, SQLite does not."""
    for name, text in (exchange.request.view_args or {}).items():
        if CONTROL_IN_NAME.search(text):
            raise BadRequestError(
                f"{name} must not contain a control character or a lone surrogate.", field=name
            )


def _has_body(request: Request) -> bool:
    """Return whether the request has a body of at least one byte."""
    return bool(request.content_length or cast("LimitedBody", request.body).received)


def _require_json(request: Request) -> None:
    """Raise UnsupportedMediaTypeError unless the body is declared as JSON and, if a charset is
    given, as UTF-8 (RFC 8259 8.1).

    A request with two Content-Type headers is refused: a proxy could use the other one.
    """
    kinds = request.headers.getlist("Content-Type")
    kind, _, rest = kinds[0].partition(";") if len(kinds) == 1 else ("", "", "")
    if kind.strip(" \t").lower() != "application/json":
        raise UnsupportedMediaTypeError
    codings = request.headers.getlist("Content-Encoding")
    if any(coding.lower() != "identity" for coding in codings):
        raise UnsupportedMediaTypeError("Send the body without Content-Encoding.")
    for parameter in rest.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip(' "').lower() not in UTF_8:
            raise UnsupportedMediaTypeError


def _refuse_conditions(request: Request) -> None:
    """Raise BadRequestError for a change on a condition that no response lets a client set.

    Ignoring the condition would overwrite what another user has changed.
    """
    if request.method in SAFE:
        return
    for header in CONDITIONS:
        if header in request.headers:
            raise BadRequestError(
                f"{header} is not supported, because responses have no ETag; give the modified of "
                "the document as it was read.",
                field=header,
            )


def _query(request: Request, allowed_names: frozenset[str] | None) -> Mapping[str, str]:
    raw = request.query_string
    if not raw:
        return {}
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_PARAMETERS,
        )
    except ValueError:
        raise BadRequestError("The query is malformed.") from None
    parameters: dict[str, str] = {}
    for name, value in pairs:
        if allowed_names is not None and name not in allowed_names:
            printed = printable(name)
            raise BadRequestError(f"Unknown query parameter {printed!r}.", field=printed)
        if name in parameters:
            raise BadRequestError(f"The query parameter {name} must not be repeated.", field=name)
        if CONTROL_IN_NAME.search(value):
            raise BadRequestError(
                f"{name} must not contain a control character or a lone surrogate.", field=name
            )
        parameters[name] = value
    return parameters
