"""The operations of the service as calls: the request, and the decoder of the response.

The names are those of the HTTP reference. Calls that may be repeated without a second effect are
marked here, and nowhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Any, Final, TypeVar
from urllib.parse import quote

from fw_client.events import EventBatch
from fw_client.models import (
    ApiKeyInfo,
    AttemptInfoPage,
    BulkReplay,
    CreatedApiKey,
    Document,
    DocumentPage,
    EmitResult,
    EndedLogins,
    InvitedUser,
    JobInfo,
    MailedLink,
    PausedWebhook,
    QueuedReplay,
    RotatedSecret,
    SessionInfo,
    TestEvent,
    UserProfile,
    read_model,
)
from fw_client.wire import Call, encode

T = TypeVar("T")
Filters = Sequence[Sequence[Any]] | Mapping[str, Any]
"""Conditions of a list: `{"status": "Open"}`, or triples `("total", ">", 5)`; all must hold."""

_METHOD: Final = "/api/method/"
_SID: Final = re.compile(r"(?:^|,\s*)sid=([^;,\s]+)")
_SERVICES: Final = _METHOD + "core.services."


def _same(answer: Any) -> Any:
    return answer


def _nothing(answer: object) -> None:
    return None


def _session_id(headers: Mapping[str, str], _: object) -> str:
    match = _SID.search(headers["set-cookie"])
    if match is None:
        raise ValueError("the response does not set the cookie sid")
    return match[1]


def _operation(
    name: str,
    read: Callable[[Any], T],
    arguments: Mapping[str, Any] | None = None,
    *,
    repeatable: bool = False,
) -> Call[T]:
    body = encode(_without_none(arguments or {}))
    return Call("POST", _SERVICES + name, read, repeatable, body)


def _without_none(arguments: Mapping[str, T | None]) -> dict[str, T]:
    return {key: value for key, value in arguments.items() if value is not None}


# Signing in


def sign_in(user: str, password: str) -> Call[str]:
    """Return the call for a sign-in; its result is the session's id, from the cookie. It is
    repeatable, because a second session is harmless."""
    body = encode({"usr": user, "pwd": password})
    return Call("POST", "/api/login", _same, True, body, read_answer=_session_id)


def sign_out() -> Call[None]:
    return Call("POST", "/api/logout", _nothing, repeatable=True)


def profile() -> Call[UserProfile]:
    return Call(
        "GET", _SERVICES + "profile.getMyProfile", partial(read_model, UserProfile), repeatable=True
    )


def update_profile(full_name: str | None, language: str | None) -> Call[UserProfile]:
    arguments = {"fullName": full_name, "language": language}
    read = partial(read_model, UserProfile)
    return _operation("profile.updateMyProfile", read, arguments, repeatable=True)


def change_password(current: str, password: str) -> Call[EndedLogins]:
    """Not repeatable: the repetition would count as a failed sign-in, because `current` is wrong
    then."""
    arguments = {"current": current, "password": password}
    return _operation("profile.changeMyPassword", partial(read_model, EndedLogins), arguments)


# Sessions


def list_sessions() -> Call[tuple[SessionInfo, ...]]:
    def read(answer: Any) -> tuple[SessionInfo, ...]:
        return tuple(read_model(SessionInfo, each) for each in answer["sessions"])

    return Call("GET", _SERVICES + "sessions.listMySessions", read, repeatable=True)


def revoke_session(session: str) -> Call[None]:
    body = encode({"id": session})
    path = _SERVICES + "sessions.revokeMySession"
    return Call("POST", path, _nothing, True, body, done_if_repeated=_NOT_FOUND)


def revoke_other_sessions() -> Call[int]:
    """Not repeatable: the result of the repetition would be 0."""
    return _operation("sessions.revokeMyOtherSessions", itemgetter("sessionsEnded"))


# API keys


def list_keys() -> Call[tuple[ApiKeyInfo, ...]]:
    def read(answer: Any) -> tuple[ApiKeyInfo, ...]:
        return tuple(read_model(ApiKeyInfo, each) for each in answer["keys"])

    return Call("GET", _SERVICES + "api_keys.listMyAPIKeys", read, repeatable=True)


def create_key(label: str, days: int | None) -> Call[CreatedApiKey]:
    return _operation(
        "api_keys.createMyAPIKey",
        partial(read_model, CreatedApiKey),
        {"label": label, "days": days},
    )


def revoke_key(name: str) -> Call[None]:
    body = encode({"name": name})
    path = _SERVICES + "api_keys.revokeMyAPIKey"
    return Call("POST", path, _nothing, True, body, done_if_repeated=_NOT_FOUND)


def revoke_all_keys() -> Call[int]:
    """Not repeatable: the result of the repetition would be 0."""
    return _operation("api_keys.revokeAllMyAPIKeys", itemgetter("keysEnded"))


# Users


def invite(
    email: str, name: str | None, full_name: str | None, roles: Sequence[str] | None
) -> Call[InvitedUser]:
    arguments = {
        "email": email,
        "name": name,
        "fullName": full_name,
        "roles": None if roles is None else list(roles),
    }
    return _operation("users.invite", partial(read_model, InvitedUser), arguments)


def resend_invite(user: str) -> Call[MailedLink]:
    return _operation("users.resendInvite", partial(read_model, MailedLink), {"user": user})


def send_password_reset(user: str) -> Call[MailedLink]:
    return _operation("users.sendPasswordReset", partial(read_model, MailedLink), {"user": user})


def revoke_user_sessions(user: str, keys: bool) -> Call[EndedLogins]:
    arguments = {"user": user, "keys": keys}
    return _operation("users.revokeUserSessions", partial(read_model, EndedLogins), arguments)


def unlock_user(user: str) -> Call[None]:
    return _operation("users.unlockUser", _nothing, {"user": user}, repeatable=True)


# Documents

_NOT_FOUND: Final = frozenset({"NotFoundError"})


def _resource(doctype: str, name: str | None = None, act: str = "") -> str:
    path = f"/api/resource/{_segment(doctype)}"
    if name is not None:
        path += f"/{_segment(name)}"
    return f"{path}/{act}" if act else path


def _segment(text: str) -> str:
    """Return a text as one segment of a path. Dots alone would name another path."""
    return quote(text, safe="") if text.strip(".") else text.replace(".", "%2E")


def _data(answer: Any) -> Document:
    document: Document = answer["data"]
    if not isinstance(document, dict):
        raise TypeError("a document must be an object")
    return document


def _page(answer: Any) -> DocumentPage:
    return DocumentPage(tuple(answer["data"]), answer["total"])


def triples(filters: Filters) -> list[Sequence[Any]]:
    """Return conditions in the service's format: a list of triples."""
    if isinstance(filters, Mapping):
        return [[field, "=", value] for field, value in filters.items()]
    return list(filters)


def list_documents(
    doctype: str,
    filters: Filters,
    fields: Sequence[str] | None,
    order_by: str | None,
    limit: int,
    start: int,
) -> Call[DocumentPage]:
    query = {"limit": str(limit)}
    if start:
        query["start"] = str(start)
    if filters:
        query["filters"] = json.dumps(triples(filters))
    if fields is not None:
        query["fields"] = json.dumps(list(fields))
    if order_by is not None:
        query["order_by"] = order_by
    return Call("GET", _resource(doctype), _page, repeatable=True, query=query)


def get_document(doctype: str, name: str) -> Call[Document]:
    return Call("GET", _resource(doctype, name), _data, repeatable=True)


def insert_document(doctype: str, values: Mapping[str, Any], submit: bool) -> Call[Document]:
    body = {**values, "submit": True} if submit else dict(values)
    return Call("POST", _resource(doctype), _data, body=encode(body))


def save_document(doctype: str, name: str, changes: Mapping[str, Any]) -> Call[Document]:
    """Not repeatable: a second save would be a second event."""
    return Call("PUT", _resource(doctype, name), _data, body=encode(dict(changes)))


def delete_document(doctype: str, name: str, modified: str | None) -> Call[None]:
    path, query = _resource(doctype, name), _without_none({"modified": modified})
    return Call("DELETE", path, _nothing, repeatable=True, query=query, done_if_repeated=_NOT_FOUND)


def submit_document(doctype: str, name: str, modified: str | None) -> Call[Document]:
    body = encode(_without_none({"modified": modified}))
    return Call("POST", _resource(doctype, name, "submit"), _data, body=body)


def cancel_document(doctype: str, name: str, modified: str | None) -> Call[Document]:
    body = encode(_without_none({"modified": modified}))
    return Call("POST", _resource(doctype, name, "cancel"), _data, body=body)


def rename_document(doctype: str, name: str, new_name: str, modified: str | None) -> Call[Document]:
    body = encode(_without_none({"name": new_name, "modified": modified}))
    return Call("POST", _resource(doctype, name, "rename"), _data, body=body)


def export_document(doctype: str, name: str) -> Call[Document]:
    return Call("GET", _resource(doctype, name, "export"), _same, repeatable=True)


# Webhooks


def emit_batch(batch: EventBatch) -> Call[list[EmitResult]]:
    """Repeatable: if the request was carried out before, the result of each event is that its key
    is known."""

    def read(headers: Mapping[str, str], answer: Any) -> list[EmitResult]:
        return batch.results(answer, headers.get("x-request-id"))

    path = _SERVICES + "webhooks.emitMany"
    return Call("POST", path, batch.results, True, batch.body, read_answer=read)


def replay(delivery: str) -> Call[QueuedReplay]:
    return _operation("webhooks.replay", partial(read_model, QueuedReplay), {"delivery": delivery})


def _run(answer: Any) -> BulkReplay | None:
    return None if answer["run"] is None else read_model(BulkReplay, answer["run"])


def _begun_run(answer: Any) -> BulkReplay:
    return read_model(BulkReplay, answer["run"])


def replay_many(filters: Filters) -> Call[BulkReplay]:
    return _operation("webhooks.replayMany", _begun_run, {"filters": triples(filters)})


def replay_progress(run: str | None) -> Call[BulkReplay | None]:
    path, query = _SERVICES + "webhooks.replayProgress", _without_none({"run": run})
    return Call("GET", path, _run, repeatable=True, query=query)


def replay_runs() -> Call[tuple[BulkReplay, ...]]:
    def read(answer: Any) -> tuple[BulkReplay, ...]:
        return tuple(read_model(BulkReplay, each) for each in answer["runs"])

    return Call("GET", _SERVICES + "webhooks.replayRuns", read, repeatable=True)


def stop_replay() -> Call[BulkReplay | None]:
    return _operation("webhooks.stopReplay", _run, repeatable=True)


def explain(delivery: str) -> Call[dict[str, Any]]:
    path, query = _SERVICES + "webhooks.explain", {"delivery": delivery}
    return Call("GET", path, _same, repeatable=True, query=query)


@dataclass(frozen=True, slots=True)
class AttemptConditions:
    """The filter of a list of attempts; None matches all. The times have a time zone."""

    webhook: str | None = None
    result: str | None = None
    response_status: int | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the filter in the service's format. Raises: ValueError for a time without a time
        zone."""
        return {
            "webhook": self.webhook,
            "result": self.result,
            "responseStatus": self.response_status,
            "error": self.error,
            "since": _iso(self.since, "since"),
            "until": _iso(self.until, "until"),
        }


def _iso(time: datetime | None, name: str) -> str | None:
    if time is None:
        return None
    if time.utcoffset() is None:
        raise ValueError(f"{name} must have a time zone.")
    return time.isoformat()


def attempts(
    conditions: AttemptConditions, limit: int, before: str | None
) -> Call[AttemptInfoPage]:
    arguments = {**conditions.arguments(), "limit": limit, "before": before}
    return _operation("webhooks.attempts", AttemptInfoPage.read, arguments, repeatable=True)


def send_test_event(webhook: str) -> Call[TestEvent]:
    return _operation("webhooks.test", partial(read_model, TestEvent), {"webhook": webhook})


def pause(webhook: str, seconds: int | None) -> Call[PausedWebhook]:
    """Repeatable: a repetition only sets the end again, counted from its own time."""
    arguments = {"webhook": webhook, "seconds": seconds}
    read = partial(read_model, PausedWebhook)
    return _operation("webhooks.pause", read, arguments, repeatable=True)


def resume(webhook: str) -> Call[PausedWebhook]:
    read = partial(read_model, PausedWebhook)
    return _operation("webhooks.resume", read, {"webhook": webhook}, repeatable=True)


def rotate(
    webhook: str, secret: str | None, overlap: int, modified: str | None
) -> Call[RotatedSecret]:
    """Not repeatable: a second rotation would end the secret that should overlap."""

    def read(answer: Any) -> RotatedSecret:
        return read_model(RotatedSecret, {**answer, "oldUntil": answer["old_secret_until"]})

    arguments = {
        "webhook": webhook,
        "secret": secret,
        "overlap": overlap,
        "modified": modified,
    }
    return _operation("webhooks.rotate", read, arguments)


def cancel_delivery(delivery: str) -> Call[None]:
    return _operation("webhooks.cancel", _nothing, {"delivery": delivery})


def erase(delivery: str) -> Call[datetime]:
    def read(answer: Any) -> datetime:
        return datetime.fromisoformat(answer["erased"])

    return _operation("webhooks.erase", read, {"delivery": delivery}, repeatable=True)


# Jobs


@dataclass(frozen=True, slots=True)
class JobConditions:
    """The filter of a list of jobs; one left out matches all."""

    queue: str | None = None
    state: str | None = None
    function: str | None = None
    user: str | None = None


def list_jobs(
    conditions: JobConditions, limit: int, before: int | None
) -> Call[tuple[JobInfo, ...]]:
    def read(answer: Any) -> tuple[JobInfo, ...]:
        return tuple(read_model(JobInfo, each) for each in answer["jobs"])

    arguments = {**asdict(conditions), "limit": limit, "before": before}
    return _operation("jobs.list", read, arguments, repeatable=True)


ChangeJobs = Callable[[JobConditions, int | None], Call[tuple[int, int | None]]]
"""Makes the request that changes matching jobs with ids below a number; returns how many were
changed, and the number for the next request, None at the end."""


def _changed(answer: Any) -> tuple[int, int | None]:
    """A service of 0.2.0 has no `next`: it changes up to 500 jobs."""
    return answer["changed"], answer.get("next")


def retry_matching(conditions: JobConditions, before: int | None) -> Call[tuple[int, int | None]]:
    """Not repeatable: a job that has failed again meanwhile would run once more."""
    return _operation("jobs.retryMatching", _changed, {**asdict(conditions), "before": before})


def cancel_matching(conditions: JobConditions, before: int | None) -> Call[tuple[int, int | None]]:
    """Not repeatable: further matching jobs may have been queued meanwhile."""
    return _operation("jobs.cancelMatching", _changed, {**asdict(conditions), "before": before})


def retry_job(job: int) -> Call[None]:
    return _operation("jobs.retry", _nothing, {"job": job})


def cancel_job(job: int) -> Call[None]:
    return _operation("jobs.cancel", _nothing, {"job": job})


# Apps


def function(path: str, arguments: Mapping[str, Any], repeatable: bool) -> Call[Any]:
    body = encode(dict(arguments))
    return Call("POST", _METHOD + _segment(path), _same, repeatable, body)
