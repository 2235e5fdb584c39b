"""The checks before an operation, in their order (H-21).

404 and 405 (which path, which verb), 413, CSRF 403, 400 for two credentials, 401, the address's
429, 415, and 400 for the query and the body. Roles and what the values mean are the operation's,
and so is the address's 429 where nothing is wrong with query and body: who counts it tells of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl

from quart.wrappers import Request

from fw_actors.actors.gateway import Gateway
from fw_actors.errors import (
    AuthenticationError,
    BadRequestError,
    CSRFError,
    FwError,
    MethodNotAllowedError,
    PayloadTooLargeError,
    UnsupportedMediaTypeError,
)
from web.exchange import Exchange
from web.json_input import has_control
from web.operations import LARGE, BodyRule, Operation, Path, Session
from web.request import sids
from web.response import CSRF_HEADER, Answer

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
CSRF_FREE_PREFIX: Final = "/api/auth/"
MOST_PARAMETERS: Final = 50
LONGEST_SID: Final = 128
UTF_8: Final = ("utf-8", "utf8")


async def admit(exchange: Exchange, path: Path, gateway: Gateway) -> Operation:
    """Return the operation to carry out; the exchange then holds caller, query and body.

    Raises: the refusal that comes first.
    """
    request = exchange.request
    operation = _operation(exchange, path)
    limit = LARGE if operation.body is None else operation.body.limit
    if (request.content_length or 0) > limit:
        raise PayloadTooLargeError(limit)
    key = api_key_of(request)
    if key is None:
        _refuse_forgery(request)
    key = _take_sid(exchange, key, operation)
    await _authenticate(exchange, operation.session, key, gateway)
    _refuse_unfit_path(exchange)
    try:
        await _take_arguments(exchange, operation)
    except FwError:
        if operation.admit is not None:
            await operation.admit(exchange)
        raise
    return operation


async def _take_arguments(exchange: Exchange, operation: Operation) -> None:
    rule = operation.body
    if rule is not None and exchange.has_body:
        _require_json(exchange.request)
    exchange.query = _query(exchange.request, operation.query)
    if rule is not None:
        exchange.body = _read(exchange, rule)


def _operation(exchange: Exchange, path: Path) -> Operation:
    if path.find is not None:
        path.find(exchange)
    method = exchange.request.method
    operation = path.operations.get("GET" if method == "HEAD" else method)
    if operation is not None:
        return operation
    if method == "OPTIONS":
        return Operation(partial(_tell_verbs, path), Session.IGNORED)
    raise MethodNotAllowedError(path.verbs)


async def _tell_verbs(path: Path, exchange: Exchange) -> Answer:
    return Answer(b"", status=204, headers=(("Allow", ", ".join(path.verbs)),))


def api_key_of(request: Request) -> str | None:
    """Return the API key that is presented; other schemes may be a proxy's own business.

    Raises: BadRequestError for more than one.
    """
    found = []
    for line in request.headers.getlist("Authorization"):
        scheme, _, rest = line.partition(" ")
        if scheme.lower() == "bearer":
            found.append(rest.strip())
    if len(found) > 1:
        raise BadRequestError("Send one API key.", field="Authorization")
    return found[0] if found else None


def _refuse_forgery(request: Request) -> None:
    """A page elsewhere can send a form, but no such header; nor hide where it comes from."""
    if request.method in SAFE or request.path.startswith(CSRF_FREE_PREFIX):
        return
    if not request.headers.get(CSRF_HEADER):
        raise CSRFError
    if request.headers.get("Sec-Fetch-Site", "").lower() == "cross-site":
        raise CSRFError("Requests from other sites are refused.")


def _take_sid(exchange: Exchange, key: str | None, operation: Operation) -> str | None:
    """Take the session's cookie; return the key that counts beside it."""
    found = sids(exchange.request.headers.getlist("Cookie"))
    if len(found) > 1 or (found and key is not None):
        _refuse_ambiguous(exchange, len(found) > 1, operation)
        return None
    # An over-long one is nobody's; it need not be hashed to know that.
    exchange.sid = found[0] if found and 0 < len(found[0]) <= LONGEST_SID else None
    return key


def _refuse_ambiguous(exchange: Exchange, two_sids: bool, operation: Operation) -> None:
    """Refuse a request with two credentials, or have it be a guest's.

    A sibling host can give a browser a second cookie `sid`: whoever signs in or out would be locked
    out by it, so these are served, and the refusal takes all of the cookies away as well.
    """
    exchange.clears_cookies = two_sids or operation.ambiguous_as_guest
    if operation.ambiguous_as_guest:
        return
    if two_sids:
        raise BadRequestError("Send one cookie sid.", field="sid")
    raise BadRequestError("Send a cookie sid or an API key, not both.", field="sid")


async def _authenticate(
    exchange: Exchange, session: Session, key: str | None, gateway: Gateway
) -> None:
    if session is Session.IGNORED:
        return
    if key is not None:
        exchange.caller = await gateway.keys.caller(key, exchange.address)
        return
    if exchange.sid is not None:
        try:
            exchange.caller = await gateway.authenticate(exchange.sid)
        except AuthenticationError:
            if session is Session.REQUIRED:
                raise
    elif session is Session.REQUIRED:
        raise AuthenticationError


def _refuse_unfit_path(exchange: Exchange) -> None:
    """Names with control characters stop here: SQLite would take them, PostgreSQL would not."""
    for name, text in (exchange.request.view_args or {}).items():
        if has_control(text):
            raise BadRequestError(f"{name} holds characters that are not allowed.", field=name)


def _require_json(request: Request) -> None:
    """RFC 8259 §8.1: JSON between systems is UTF-8; a charset that says otherwise is refused."""
    kind, _, rest = request.headers.get("Content-Type", "").partition(";")
    if kind.strip().lower() != "application/json":
        raise UnsupportedMediaTypeError
    for parameter in rest.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip(' "').lower() not in UTF_8:
            raise UnsupportedMediaTypeError


def _query(request: Request, known: frozenset[str] | None) -> Mapping[str, str]:
    raw = request.query_string
    if not raw:
        return {}
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MOST_PARAMETERS,
        )
    except ValueError:
        raise BadRequestError("The query is malformed.") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if known is not None and name not in known:
            raise BadRequestError(f"This path takes no query parameter {name!r}.", field=name)
        if name in found:
            raise BadRequestError(f"The query parameter {name} stands twice.", field=name)
        if has_control(value):
            raise BadRequestError(f"{name} holds characters that are not allowed.", field=name)
        found[name] = value
    return found


def _read(exchange: Exchange, rule: BodyRule) -> Any:
    body = exchange.arriving.read(rule.limit)
    if body:
        return rule.read(body)
    if not rule.may_be_absent:
        raise BadRequestError("The body is missing.")
    return rule.read(b"{}")
