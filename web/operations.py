"""Operations as data: which path takes which verb, and what each asks of a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fw_actors.errors import FwError
from web.request import KIB, MIB
from web.response import Answer

if TYPE_CHECKING:
    from web.exchange import Exchange

SMALL: Final = 64 * KIB
LARGE: Final = MIB


class Session(Enum):
    """What an operation makes of the request's credentials."""

    IGNORED = "not looked at"
    OPTIONAL = "a guest is served as well"
    REQUIRED = "401 without"


@dataclass(frozen=True)
class BodyRule:
    """How an operation's body is read: `read` decodes it or raises BadRequestError.

    `may_be_absent`: no body counts as `{}`. `limit` in bytes.
    """

    read: Callable[[bytes], Any]
    limit: int = LARGE
    may_be_absent: bool = False

    @property
    def kind(self) -> type[msgspec.Struct] | None:
        """The struct that the body is read as, where `read` is one of `read_struct`."""
        kind: type[msgspec.Struct] | None = getattr(self.read, "keywords", {}).get("kind")
        return kind


@dataclass(frozen=True)
class Operation:
    """One verb of a path. Without a body rule, a body that comes along is dropped unread.

    `query` names the parameters that are taken; None leaves that to the handler. `admit` is asked
    only where query or body are refused, and may refuse in their place (address 429 comes before
    415 and 400, H-21); the handler of such an operation refuses the same by itself.
    `ambiguous_as_guest`: a request with two cookies `sid`, or with a key and one, is served as if
    it had neither, and its cookies are taken away (A-173, A-174).
    `answer` and `status` are what a carried out operation answers, for the description.
    """

    handle: Callable[[Exchange], Awaitable[Answer]]
    session: Session = Session.REQUIRED
    body: BodyRule | None = None
    query: frozenset[str] | None = frozenset()
    admit: Callable[[Exchange], Awaitable[None]] | None = None
    answer: type[msgspec.Struct] | None = None
    status: int = 200
    ambiguous_as_guest: bool = False


@dataclass(frozen=True)
class Path:
    """A path and its verbs. `rule` is Quart's; its arguments are texts without a slash.

    `find` is called first of all, for paths that exist only sometimes; it raises NotFoundError.
    `refuse` makes the answer of a refusal, where it is not to be the envelope.
    """

    rule: str
    operations: Mapping[str, Operation]
    find: Callable[[Exchange], object] | None = None
    refuse: Callable[[Exchange, FwError], Answer] | None = None

    @property
    def verbs(self) -> tuple[str, ...]:
        """The verbs that are taken; HEAD goes with GET."""
        head = ("HEAD",) if "GET" in self.operations else ()
        return (*self.operations, *head, "OPTIONS")
