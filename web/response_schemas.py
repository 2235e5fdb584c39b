"""Schemas of successful responses and errors, for the OpenAPI document (H-105)."""

from __future__ import annotations

from typing import Any

import msgspec

Struct = msgspec.Struct


class ErrorDetails(Struct, frozen=True):
    """The type of an error, its message, and further fields of that type."""

    type: str
    message: str
    extra: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class ErrorResponse(Struct, frozen=True):
    """The envelope of every error (H-50)."""

    error: ErrorDetails


class OkResponse(Struct, frozen=True):
    """The operation succeeded."""

    ok: bool


class SessionsEndedResponse(Struct, frozen=True, rename="camel"):
    """The operation succeeded and ended this many sessions."""

    ok: bool
    sessions_ended: int


class KeysEndedResponse(Struct, frozen=True, rename="camel"):
    """The operation succeeded and ended this many API keys."""

    ok: bool
    keys_ended: int


class AccessRevokedResponse(Struct, frozen=True, rename="camel"):
    """The number of ended sessions; `keysEnded` is present if the request included keys."""

    ok: bool
    sessions_ended: int
    keys_ended: int | msgspec.UnsetType = msgspec.UNSET


class ReplayRunDetails(Struct, frozen=True, rename="camel"):
    """The progress of a bulk replay.

    `total`: deliveries that matched at the start. `refused`: those that could not be replayed, by
    reason. `error`: the reason why the run failed. `arrived`, `failedAgain` and `open`: the current
    states of the replayed deliveries; `gone`: those that were replayed again since, or deleted.
    `more`: not all were counted, so each number is a lower bound.
    """

    id: str
    user: str
    filters: list[Any]
    state: str
    total: int
    done: int
    replayed: int
    refused: dict[str, int]
    error: str
    begun: str
    ended: str | None
    arrived: int
    failed_again: int
    open: int
    gone: int
    more: bool


class ListedAttemptDetails(Struct, frozen=True, rename="camel"):
    """An attempt in the list; `user`: the user whose replay caused it."""

    delivery: str
    webhook: str
    event: str
    number: int
    trigger: str
    user: str | None
    began: str
    ended: str
    duration_ms: int
    status: str
    response_status: int | None
    error: str | None


class AttemptsResponse(Struct, frozen=True, rename="camel"):
    """Attempts, newest first; `next` is the `before` of the following page.

    `newestOnly`: only the newest attempts were searched, and there are more.
    """

    attempts: list[ListedAttemptDetails]
    next: str | None
    newest_only: bool


class ReplayRunsResponse(Struct, frozen=True):
    """The bulk replays that are kept, newest first; their outcomes are counted up to 1,000."""

    runs: list[ReplayRunDetails]


class ReplayRunResponse(Struct, frozen=True):
    """The requested run, or else the current or last one; null before the first."""

    run: ReplayRunDetails | None


class ProfileResponse(Struct, frozen=True, rename="camel"):
    """The caller's account."""

    name: str
    email: str
    full_name: str
    language: str
    roles: list[str]


class SignInScreen(Struct, frozen=True, rename="camel"):
    """The public content of the sign-in screen."""

    notice: str | msgspec.UnsetType = msgspec.UNSET
    demo_user: str | msgspec.UnsetType = msgspec.UNSET
    demo_password: str | msgspec.UnsetType = msgspec.UNSET


class SiteDetails(Struct, frozen=True, rename="camel"):
    """The public part of the site's settings."""

    name: str
    url: str
    csrf_header: str
    login: SignInScreen


class BootResponse(Struct, frozen=True):
    """The site and the user, for a client that starts; `user` is null for a guest."""

    site: SiteDetails
    user: ProfileResponse | None


class SignedInResponse(Struct, frozen=True, rename="camel"):
    """The signed-in user and the end of the session, which is in the cookie."""

    ok: bool
    user: str
    full_name: str
    expires: str


class LinkResponse(Struct, frozen=True, rename="camel"):
    """The kind, account and expiry of a link."""

    kind: str
    user: str
    full_name: str
    expires: str


class SessionDetails(Struct, frozen=True, rename="camel"):
    """A session; `id` is its handle."""

    id: str
    ip: str
    user_agent: str
    created: str
    last_seen: str
    expires: str
    current: bool


class SessionsResponse(Struct, frozen=True):
    """The caller's live sessions."""

    sessions: list[SessionDetails]


class KeyDetails(Struct, frozen=True, rename="camel"):
    """An API key without its secret."""

    name: str
    label: str
    created: str
    expires: str | None
    last_used: str | None


class KeysResponse(Struct, frozen=True):
    """The caller's API keys."""

    keys: list[KeyDetails]


class NewKeyResponse(Struct, frozen=True):
    """A new API key; `key` is shown only once."""

    name: str
    label: str
    expires: str | None
    key: str


class InvitedResponse(Struct, frozen=True):
    """A new account; `link` only if mail is written to the log."""

    user: str
    email: str
    expires: str
    link: str | msgspec.UnsetType = msgspec.UNSET


class SentLinkResponse(Struct, frozen=True):
    """A link was mailed; `link` only if mail is written to the log."""

    ok: bool
    expires: str
    link: str | msgspec.UnsetType = msgspec.UNSET


class EmittedResponse(Struct, frozen=True):
    """The deliveries of the event."""

    deliveries: list[str]


class EmittedEvent(Struct, frozen=True):
    """An event of a batch: its deliveries, or its error."""

    deliveries: list[str] | msgspec.UnsetType = msgspec.UNSET
    error: ErrorDetails | msgspec.UnsetType = msgspec.UNSET


class EmittedManyResponse(Struct, frozen=True):
    """The events in their order."""

    events: list[EmittedEvent]


class ReplayedResponse(Struct, frozen=True):
    """A delivery that is sent again, and its new status."""

    delivery: str
    status: str


class WebhookPauseResponse(Struct, frozen=True):
    """Whether a Webhook is paused, with begin and end of the pause; `until` null: until it is
    resumed."""

    webhook: str
    paused: bool
    since: str | None
    until: str | None


class CancelledDeliveryResponse(Struct, frozen=True):
    """A cancelled delivery and its new status."""

    delivery: str
    status: str


class ErasedResponse(Struct, frozen=True):
    """A delivery whose body was erased, and the time of the erasure."""

    delivery: str
    erased: str


class RotatedResponse(Struct, frozen=True):
    """The new signing secret, if the service generated it, the time until which the old one also
    signs, and the new version of the Webhook."""

    webhook: str
    secret: str | None
    old_secret_until: str | None
    modified: str


class RequestDetails(Struct, frozen=True):
    """A request as it was sent, without the query of its URL; `curl` sends it again."""

    url: str
    headers: dict[str, str]
    curl: str


class AttemptDetails(Struct, frozen=True, rename="camel"):
    """A recorded attempt; `request` is null if none was sent.

    `number` counts the attempts since the event or the replay at `queued`; `trigger` is event,
    retry or replay; `times` in milliseconds.
    """

    number: int
    trigger: str
    user: str | None
    queued: str
    began: str
    ended: str
    duration_ms: int
    times: dict[str, float]
    status: str
    response_status: int | None
    response_body: str | None
    error: str | None
    next_attempt: str | None
    address: str | None
    worker: str | None
    request: RequestDetails | None


class DeliveryExplainedResponse(Struct, frozen=True, rename="camel"):
    """A delivery: the reason why it waits, or its end, and its attempts, newest first.

    `user` and `queued`: the user and time of the last replay; without a replay, null and the time
    of the event. `ahead`: deliveries to its receiver that are due before it; `leased`: deliveries
    to its receiver that are leased; both at most 1,000. `traceId`: the trace of its event, if that
    has one.
    """

    delivery: str
    status: str
    reason: str
    due_at: str | None
    attempts: int
    max_attempts: int
    receiver: str | None
    ahead: int
    leased: int
    text: str
    erased: str | None
    trace_id: str | None
    user: str | None
    queued: str
    recorded: list[AttemptDetails]


class JobDetails(Struct, frozen=True):
    """A job, without the values of its arguments.

    `state` is ready, scheduled, leased or failed; `subject` is the Email Delivery of a mail, and
    `function` its template; `due` is the time of the next attempt, or of the end of the lease.
    """

    id: int
    queue: str
    state: str
    function: str
    subject: str | None
    user: str | None
    attempts: int
    due: str | None
    created: str
    error: str | None


class JobsResponse(Struct, frozen=True):
    """Jobs, the newest first."""

    jobs: list[JobDetails]


class ChangedJobsResponse(Struct, frozen=True):
    """The number of jobs that were changed; `next` is the `before` of the next request, null if no
    further jobs match."""

    changed: int
    next: int | None


class DocumentResponse(Struct, frozen=True):
    """A document."""

    data: dict[str, Any]


class ListResponse(Struct, frozen=True):
    """A page of documents, and the number of all that match."""

    data: list[dict[str, Any]]
    total: int
