"""Routes and operations as data: the verbs of a path, and what each requires of a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fw_actors.errors import FwError
from fw_actors.rules import LARGE_BODY_BYTES
from web.request import KIB
from web.response import Response

if TYPE_CHECKING:
    from web.exchange import Exchange

SMALL_BODY_BYTES: Final = 64 * KIB
DEFAULT_BODY_BYTES: Final = LARGE_BODY_BYTES


class Authentication(Enum):
    """Whether an operation reads the request's credentials."""

    IGNORED = "credentials are not read"
    OPTIONAL = "guests are served too"
    REQUIRED = "401 without credentials"


@dataclass(frozen=True)
class BodyRule:
    """The decoder of an operation's body: `read` decodes it or raises BadRequestError.

    `limit` is in bytes. With `optional`, a missing body counts as `{}`.
    """

    read: Callable[[bytes], Any]
    limit: int = DEFAULT_BODY_BYTES
    optional: bool = False

    @property
    def kind(self) -> type[msgspec.Struct] | None:
        """The struct that the body is decoded to, if `read` is a partial of `read_struct`."""
        kind: type[msgspec.Struct] | None = getattr(self.read, "keywords", {}).get("kind")
        return kind


OperationHandler = Callable[["Exchange"], Awaitable[Response]]


@dataclass(frozen=True)
class Operation:
    """One verb of a path. Without a body rule, a request body is discarded unread.

    `query` names the allowed parameters; None leaves validation to the handler. `check_address` is
    called only if query or body are invalid, and may raise another error instead of theirs: the
    address's 429 comes before 415 and 400 (H-21). For valid requests the handler raises it. With
    `ambiguous_as_guest`, a request with two cookies `sid`, or with a cookie and an API key, is
    served as if it had neither, and its cookies are cleared (A-173, A-174). `response` and `status`
    describe a successful response in the OpenAPI document, and `session_only` states there that the
    use case refuses an API key (A-264).
    """

    handle: OperationHandler
    authentication: Authentication = Authentication.REQUIRED
    body: BodyRule | None = None
    query: frozenset[str] | None = frozenset()
    check_address: Callable[[Exchange], Awaitable[None]] | None = None
    response: type[msgspec.Struct] | None = None
    status: int = 200
    ambiguous_as_guest: bool = False
    session_only: bool = False


@dataclass(frozen=True)
class Route:
    """A path and its verbs. `rule` is a rule of Werkzeug's; arguments hold no slash.

    `find` is called first, for paths that may not exist; it raises NotFoundError. `error_page`
    renders errors as pages; without it they are the JSON envelope.
    """

    rule: str
    operations: Mapping[str, Operation]
    find: Callable[[Exchange], object] | None = None
    error_page: Callable[[Exchange, FwError], Response] | None = None

    @property
    def verbs(self) -> tuple[str, ...]:
        """The allowed verbs; GET includes HEAD."""
        head = ("HEAD",) if "GET" in self.operations else ()
        return (*self.operations, *head, "OPTIONS")
