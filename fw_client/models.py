"""The results of calls, as frozen data. Times are aware datetimes in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final, TypeVar

from fw_client.errors import ApiError

T = TypeVar("T")
Document = dict[str, Any]
"""A document as sent by the service: its fields by name."""


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


_READ: Final = "read"
_TIME: Final = {_READ: _time}
_TEXTS: Final = {_READ: tuple}


@dataclass(frozen=True, slots=True)
class UserProfile:
    """An account."""

    name: str
    email: str
    full_name: str
    language: str
    roles: tuple[str, ...] = field(metadata=_TEXTS)


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session; `id` is its handle, which is not a credential. `current`: whether it is the
    client's."""

    id: str
    ip: str
    user_agent: str
    created: datetime = field(metadata=_TIME)
    last_seen: datetime = field(metadata=_TIME)
    expires: datetime = field(metadata=_TIME)
    current: bool


@dataclass(frozen=True, slots=True)
class ApiKeyInfo:
    """An API key without its secret; `expires` and `last_used` are None for never."""

    name: str
    label: str
    created: datetime = field(metadata=_TIME)
    expires: datetime | None = field(metadata=_TIME)
    last_used: datetime | None = field(metadata=_TIME)


@dataclass(frozen=True, slots=True)
class CreatedApiKey:
    """A new API key. `key` is the key itself, which the service shows only once."""

    name: str
    label: str
    expires: datetime | None = field(metadata=_TIME)
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class InvitedUser:
    """A new account; `link` only if the service writes mail to its log."""

    user: str
    email: str
    expires: datetime = field(metadata=_TIME)
    link: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class MailedLink:
    """A mailed link; `link` only if the service writes mail to its log."""

    expires: datetime = field(metadata=_TIME)
    link: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class EndedLogins:
    """The numbers of a user's sessions and API keys that were ended."""

    sessions_ended: int
    keys_ended: int = 0


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """Some documents of a list; `total` is the number of all that match."""

    rows: tuple[Document, ...]
    total: int


@dataclass(frozen=True, slots=True)
class EventEmitted:
    """An event that is recorded.

    `deliveries`: the ids of its deliveries, one for each Webhook that subscribes to the event.
    `repeated`: a Webhook has received the key before; nothing was queued now, and `deliveries` is
    empty.
    """

    key: str
    deliveries: tuple[str, ...]
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class EventRefused:
    """An event of a batch that was refused because of `error`; the others are not affected."""

    key: str
    error: ApiError


EmitResult = EventEmitted | EventRefused


@dataclass(frozen=True, slots=True)
class QueuedReplay:
    """A delivery that is sent again, under its old id."""

    delivery: str
    status: str


@dataclass(frozen=True, slots=True)
class BulkReplay:
    """A replay of many deliveries.

    `total` deliveries matched at the start; `done` is the sum of `replayed` and `refused`, which is
    counted by reason. `error`: the reason why the run failed, else empty. The states of the
    replayed deliveries: `arrived`, `failed_again`, `open`, and `gone` (replayed again since, or
    deleted). With `more`, not all were counted, and these numbers are lower bounds.
    """

    id: str
    user: str
    state: str
    total: int
    done: int
    replayed: int
    refused: Mapping[str, int]
    error: str
    begun: datetime = field(metadata=_TIME)
    ended: datetime | None = field(metadata=_TIME)
    arrived: int = 0
    failed_again: int = 0
    open: int = 0
    gone: int = 0
    more: bool = False


@dataclass(frozen=True, slots=True)
class AttemptInfo:
    """An attempt of a delivery.

    `number` counts the attempts since the event or the replay; `trigger` is event, retry or replay;
    `user`: the user whose replay caused it. `response_status` is None without an answer; `error` is
    None after a success.
    """

    delivery: str
    webhook: str
    event: str
    number: int
    trigger: str
    user: str | None
    began: datetime = field(metadata=_TIME)
    ended: datetime = field(metadata=_TIME)
    duration_ms: int
    status: str
    response_status: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class AttemptInfoPage:
    """Some attempts of a list.

    `next` is the `before` of the following page, None at the end. `newest_only`: only the newest
    attempts were searched, and there are more.
    """

    attempts: tuple[AttemptInfo, ...]
    next: str | None
    newest_only: bool

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> AttemptInfoPage:
        """Return the page in a response. Raises: as `read_model`."""
        attempts = tuple(read_model(AttemptInfo, each) for each in content["attempts"])
        return cls(attempts, content["next"], content["newestOnly"])


@dataclass(frozen=True, slots=True)
class TestEvent:
    """The outcome of a test event: the receiver's status, or the error; times in milliseconds."""

    __test__ = False  # no test case, despite its name

    status: int | None
    error: str | None
    times: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class PausedWebhook:
    """The pause of a Webhook, if `paused`; `until` None: until it is resumed."""

    webhook: str
    paused: bool
    since: datetime | None = field(metadata=_TIME)
    until: datetime | None = field(metadata=_TIME)


@dataclass(frozen=True, slots=True)
class RotatedSecret:
    """A Webhook whose secret was replaced.

    `secret` is the new secret if the service generated it, shown only once; `old_until` is the time
    until which the old one also signs; `modified` is the new version of the Webhook, None from a
    service of version 0.2.0.
    """

    webhook: str
    old_until: datetime | None = field(metadata=_TIME)
    modified: str | None = None
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job, without the values of its arguments.

    `state` is ready, scheduled, leased or failed; `due` is the time of the next attempt, or of the
    end of the lease.
    """

    id: int
    queue: str
    state: str
    function: str
    subject: str | None
    user: str | None
    attempts: int
    due: datetime | None = field(metadata=_TIME)
    created: datetime = field(metadata=_TIME)
    error: str | None


def read_model(kind: type[T], content: Mapping[str, Any]) -> T:
    """Create a model from a response; unknown fields of the response are ignored.

    Raises: TypeError, ValueError for a response with a missing or malformed field.
    """
    values = {}
    for each in fields(kind):  # type: ignore[arg-type]  # they are all dataclasses
        key = _camel(each.name)
        if key in content:
            read = each.metadata.get(_READ)
            values[each.name] = content[key] if read is None else read(content[key])
    return kind(**values)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
