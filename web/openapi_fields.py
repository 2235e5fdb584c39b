"""The meaning of each field of requests and responses, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_ACCOUNT: Final = "The name of the account."
_TOKEN: Final = "The token of the link: the text after `#token=`."
_LINK_END: Final = "When the link ends, in ISO 8601."
_LINK: Final = "The link itself; present only if mail is written to the log."

VERSION: Final = (
    "The `modified` of the document as it was read: 409 if another version is stored. Without it, "
    "any version is accepted."
)

COMMON: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ok": "Always true.",
        "user": _ACCOUNT,
        "usr": "The name or the e-mail address of the account.",
        "email": "The e-mail address of the account.",
        "fullName": "The display name of the account.",
        "language": "The language of the account, such as `en`.",
        "roles": "The roles of the account.",
        "expires": "When the session ends, in ISO 8601.",
        "created": "When it was created, in ISO 8601.",
        "token": _TOKEN,
        "link": _LINK,
        "password": "The new password.",
        "label": "The purpose of the key.",
        "sessionsEnded": "The number of ended sessions.",
        "keysEnded": "The number of ended API keys.",
        "webhook": "The name of the Webhook.",
        "delivery": "The name of the Webhook Delivery, which receivers get as `webhook-id`.",
        "deliveries": "The names of the Webhook Deliveries, one for each Webhook that subscribes.",
        "event": "The event, such as `order.paid`.",
        "began": "When the attempt began, in ISO 8601.",
        "ended": "When it ended, in ISO 8601; null if it has not ended.",
        "durationMs": "Duration of the attempt in milliseconds.",
        "trigger": "The cause of the attempt: event, retry or replay.",
        "number": "The number of the attempt, since the event or its last replay.",
        "responseStatus": "The HTTP status of the receiver's response; null without a response.",
        "status": "The status of the delivery after the attempt: Sent, Retrying or Failed.",
        "error": "The error of the attempt; null if the receiver answered 2xx.",
        "queue": "The queue: app or mail.",
        "function": "The function of an app, or the template of a mail.",
        "limit": "The maximum number of entries, 1 to 500.",
        "receiver": "The origin of a receiver, such as `https://receiver.example:443`.",
    }
)
"""The meanings of names that mean the same in most structs."""

FIELDS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "ErrorResponse": {"error": "The error."},
        "ErrorDetails": {
            "type": "The type of the error, for programs.",
            "message": "One sentence that states the rule, for people.",
            "extra": "Further values of this type, such as the `field` that was refused.",
        },
        "SignInRequest": {"pwd": "The password."},
        "BootResponse": {
            "site": "The public settings of the site.",
            "user": "The caller's account; null for a guest.",
        },
        "SiteDetails": {
            "name": "The name of the site.",
            "url": "The public URL of the site.",
            "csrfHeader": "The header that a request with the cookie must have to change anything.",
            "login": "The content of the sign-in page.",
        },
        "SignInScreen": {
            "notice": "A notice for the sign-in page; absent if there is none.",
            "demoUser": "The name of the demo account; absent if there is none.",
            "demoPassword": "The password of the demo account; absent if there is none.",
        },
        "ProfileResponse": {"name": _ACCOUNT},
        "LinkResponse": {
            "kind": "The purpose of the link: recovery or invitation.",
            "expires": _LINK_END,
        },
        "InvitedResponse": {"expires": _LINK_END},
        "SentLinkResponse": {"expires": _LINK_END},
        "PasswordRequest": {"current": "The current password."},
        "SessionsResponse": {"sessions": "The sessions that have not ended."},
        "SessionDetails": {
            "id": "The handle of the session, which is not its secret.",
            "ip": "The address from which the account signed in.",
            "userAgent": "The browser or program that signed in.",
            "created": "When the account signed in, in ISO 8601.",
            "lastSeen": "When the session was last used, in ISO 8601.",
            "current": "Whether the request itself uses this session.",
        },
        "HandleRequest": {"id": "The handle of the session, as in the list of sessions."},
        "KeysResponse": {"keys": "The API keys of the account."},
        "KeyDetails": {
            "name": "The name of the key, which is not its secret.",
            "expires": "When the key ends, in ISO 8601; null: never.",
            "lastUsed": "When the key was last used, in ISO 8601; null: never.",
        },
        "KeyRequest": {"days": "Validity in days; the policy's if it is left out."},
        "KeyNameRequest": {"name": "The name of the key, as in the list of keys."},
        "NewKeyResponse": {
            "name": "The name of the key.",
            "expires": "When the key ends, in ISO 8601; null: never.",
            "key": "The key itself; it is shown only once.",
        },
        "InviteRequest": {
            "name": "The name of the account; its e-mail address if it is left out.",
            "roles": "The roles of the account; none if they are left out.",
        },
        "UserRequest": {
            "user": "The name of the account; to lift a lockout, also its e-mail address."
        },
        "RevokeSessionsRequest": {"keys": "Whether its API keys end too."},
        "AccessRevokedResponse": {
            "keysEnded": "The number of ended API keys; absent if the request has no `keys`."
        },
        "DocumentResponse": {"data": "The document, with the fields that the caller may see."},
        "ListResponse": {
            "data": "The documents of this page, with the requested fields.",
            "total": "The number of all matching documents.",
        },
        "VersionRequest": {"modified": VERSION},
        "RenameRequest": {"name": "The new name of the document.", "modified": VERSION},
        "Reference": {
            "doctype": "The DocType of the document.",
            "name": "The name of the document.",
        },
        "EmitRequest": {
            "name": "The name of the event, such as `order.paid`.",
            "data": "The data of the event.",
            "options": "A key, and the document that the event is about.",
        },
        "EmitOptions": {
            "reference": "The document that the event is about.",
            "key": "An idempotency key: each Webhook receives it once.",
        },
        "EmitManyRequest": {
            "events": "1 to 1,000 events.",
            "all": "Whether one refused event refuses all; otherwise the others are recorded.",
        },
        "EmittedManyResponse": {"events": "The result of each event, in their order."},
        "EmittedEvent": {
            "deliveries": "The names of its Webhook Deliveries; absent if it was refused.",
            "error": "The reason of the refusal; absent if the event was recorded.",
        },
        "ReplayedResponse": {"status": "The new status of the delivery: Queued."},
        "CancelledDeliveryResponse": {"status": "The new status of the delivery: Failed."},
        "ErasedResponse": {"erased": "When the body was erased, in ISO 8601."},
        "RotateRequest": {
            "secret": "The new signing secret; the service creates one if it is left out.",
            "overlap": "Hours for which the old secret also signs, 0 to 720.",
            "modified": VERSION,
        },
        "RotatedResponse": {
            "secret": "The new signing secret, shown only once; null if the request had it.",
            "old_secret_until": "The time until which the old secret also signs, in ISO 8601; null "
            "if it does not.",
            "modified": "The new `modified` of the Webhook.",
        },
        "TestEventResult": {
            "status": "The HTTP status of the receiver's response; null without a response.",
            "error": "The reason why it was not delivered; null after 2xx.",
            "times": "The duration of each step.",
        },
        "StepTimes": {
            "dns": "Milliseconds for the address of the receiver.",
            "connect": "Milliseconds for the connection.",
            "tls": "Milliseconds for the TLS handshake.",
            "answer": "Milliseconds from the request to the response.",
        },
        "PauseRequest": {"seconds": "The duration in seconds; without it, until resumed."},
        "WebhookPauseResponse": {
            "paused": "Whether the Webhook is paused.",
            "since": "The beginning of the pause, in ISO 8601; null if it is not paused.",
            "until": "The end of the pause, in ISO 8601; null if it lasts until resumed.",
        },
        "DeliveryExplainedResponse": {
            "status": "The status of the delivery: Queued, Sent, Retrying or Failed.",
            "reason": "The reason why it waits, or its end: sent, failed, deleted, disabled, "
            "paused, order, leased, leaseEnded, backoff, slot or noJob.",
            "dueAt": "The earliest time of the next attempt, in ISO 8601; null if it is unknown, "
            "as during an attempt, and at the end.",
            "attempts": "The number of attempts since the event or the last replay.",
            "maxAttempts": "The number of attempts after which it fails.",
            "receiver": "The origin of its receiver; null without a usable URL.",
            "ahead": "The number of earlier due deliveries to its receiver, at most 1,000.",
            "leased": "The number of current attempts at its receiver, at most 1,000.",
            "text": "The reason in a sentence, for people.",
            "erased": "When its body was erased, in ISO 8601; null if it was not.",
            "traceId": "The trace of its event; null if it has none.",
            "user": "The user who last replayed it; null if it was never replayed.",
            "queued": "The time of that replay, else of its event, in ISO 8601.",
            "recorded": "Its recorded attempts, newest first; the last 30 are kept.",
        },
        "AttemptDetails": {
            "user": "The user who requested the replay; null without a replay.",
            "queued": "The time of that replay, else of its event, in ISO 8601.",
            "ended": "When the attempt ended, in ISO 8601.",
            "times": "Milliseconds of each step: dns, connect, tls and answer.",
            "responseBody": "The first 512 bytes of the receiver's response; null without one.",
            "nextAttempt": "The due time of the next attempt, in ISO 8601; null after the last.",
            "address": "The address that it was sent to; null without a connection.",
            "worker": "The process that made it, as host and process number.",
            "request": "The request as sent; null if none was sent.",
        },
        "RequestDetails": {
            "url": "The URL without its query.",
            "headers": "The headers of the request.",
            "curl": "A command that sends the request again.",
        },
        "ReplayManyRequest": {
            "filters": "The deliveries to replay: conditions as in a list, at least one."
        },
        "ReplayRunResponse": {
            "run": "The requested bulk replay, or the current or last one; null before the first."
        },
        "ReplayRunsResponse": {"runs": "The bulk replays that are kept, newest first."},
        "ReplayRunDetails": {
            "id": "The id of the bulk replay.",
            "user": "The user who began it.",
            "filters": "The conditions that the deliveries met.",
            "state": "running, done, stopped or failed.",
            "total": "The number of matching deliveries at the start.",
            "done": "The number of deliveries processed so far.",
            "replayed": "The number of deliveries replayed so far.",
            "refused": "The number of deliveries that could not be replayed, by reason.",
            "error": "The reason for its failure; empty if it has not failed.",
            "begun": "When it began, in ISO 8601.",
            "arrived": "The number of replayed deliveries that were sent since.",
            "failedAgain": "The number of replayed deliveries that failed again.",
            "open": "The number of replayed deliveries that wait.",
            "gone": "The number of replayed deliveries that were replayed again since, or deleted.",
            "more": "Whether there are more of each than were counted.",
        },
        "ProgressRequest": {"run": "The id of a bulk replay; else the current or the last one."},
        "AttemptsResponse": {
            "attempts": "The attempts of this page, newest first.",
            "next": "The `before` of the following page; null at the end.",
            "newestOnly": "Whether only the newest 5,000 were searched, and there are others.",
        },
        "ListedAttemptDetails": {
            "user": "The user who requested the replay; null without a replay.",
            "ended": "When the attempt ended, in ISO 8601.",
        },
        "AttemptsRequest": {
            "webhook": "Only attempts at this Webhook.",
            "result": "Only attempts with this result: sent or failed.",
            "responseStatus": "Only attempts with this HTTP status of the response.",
            "error": "Only attempts whose error contains this text.",
            "since": "Only since this time, in ISO 8601.",
            "until": "Only before this time, in ISO 8601.",
            "before": "The value of `next` from the previous page.",
        },
        "JobsResponse": {"jobs": "The jobs of this page, the newest first."},
        "JobDetails": {
            "id": "The number of the job.",
            "state": "ready, scheduled, leased or failed.",
            "subject": "The Email Delivery of a mail; null for other jobs.",
            "user": "The user who caused it; null if the service did.",
            "attempts": "The number of attempts so far.",
            "due": "The time of the next attempt, or of the end of its lease, in ISO 8601; null if "
            "it has failed.",
            "error": "The error of the last attempt; null without one.",
        },
        "ListJobsRequest": {
            "queue": "Only jobs of this queue: app or mail.",
            "state": "Only jobs in this state: ready, scheduled, leased or failed.",
            "function": "Only jobs of this function, or mails of this template.",
            "user": "Only jobs of this user.",
            "before": "The last id of the previous page.",
        },
        "MatchingJobsRequest": {
            "queue": "Only jobs of this queue: app or mail.",
            "state": "Only jobs in this state: ready, scheduled, leased or failed.",
            "function": "Only jobs of this function, or mails of this template.",
            "user": "Only jobs of this user.",
            "before": "The `next` of the previous response: only jobs with a lower id.",
        },
        "JobRequest": {"job": "The number of the job."},
        "ChangedJobsResponse": {
            "changed": "The number of changed jobs.",
            "next": "The `before` of the next request; null if no further jobs match.",
        },
        "ActorRequest": {"actor": "The name of a single actor, as the console shows it."},
    }
)
"""The meanings of other fields, by the name of their struct."""


def meaning(struct: str, field: str) -> str | None:
    """Return the meaning of a field as a sentence; None if it has none here."""
    return FIELDS.get(struct, {}).get(field) or COMMON.get(field)
