"""Each operation of the OpenAPI document has a method of the client (H-220)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from fw_client import Event, FwClient, FwClientError, RetryPolicy
from tests.live_site import LiveSite

Document = dict[str, Any]
LEFT_OUT = {
    "auth.forgotPassword": "for a person who cannot sign in, and who reads the mail",
    "auth.token": "the page that such a mail leads to",
    "auth.resetPassword": "the page that such a mail leads to",
    "auth.acceptInvite": "the page that such a mail leads to",
    "site.boot": "for front ends; a program asks for its profile",
    "site.health": "for monitoring",
    "site.ready": "for monitoring",
    "site.metrics": "for Prometheus",
    "site.openapi": "describes the operations to generators",
    "console.pause": "for an operator's eyes: the receivers and actors of running processes",
    "console.resume": "as console.pause",
    "console.restart": "as console.pause",
    "console.trace": "as console.pause",
    "console.unlock": "as users.unlockUser, for an identifier that is no account",
}
NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOBS = {"queue": "mail", "state": "failed", "function": "f", "user": "u"}
ATTEMPTS: dict[str, Any] = {
    "webhook": "w", "result": "failed", "response_status": 500, "error": "e", "since": NOW,
    "until": NOW,
}  # fmt: skip
CALLS: dict[str, Callable[[FwClient], Any]] = {
    "profile.getMyProfile": lambda fw: fw.profile(),
    "profile.updateMyProfile": lambda fw: fw.update_profile(full_name="A", language="de"),
    "sessions.listMySessions": lambda fw: fw.sessions.list(),
    "sessions.revokeMySession": lambda fw: fw.sessions.revoke("s"),
    "sessions.revokeMyOtherSessions": lambda fw: fw.sessions.revoke_others(),
    "api_keys.listMyAPIKeys": lambda fw: fw.api_keys.list(),
    "api_keys.createMyAPIKey": lambda fw: fw.api_keys.create("label", days=1),
    "api_keys.revokeMyAPIKey": lambda fw: fw.api_keys.revoke("k"),
    "api_keys.revokeAllMyAPIKeys": lambda fw: fw.api_keys.revoke_all(),
    "users.invite": lambda fw: fw.users.invite("e", name="n", full_name="N", roles=["r"]),
    "users.resendInvite": lambda fw: fw.users.resend_invite("u"),
    "users.sendPasswordReset": lambda fw: fw.users.send_password_reset("u"),
    "users.revokeUserSessions": lambda fw: fw.users.revoke_sessions("u", keys=True),
    "users.unlockUser": lambda fw: fw.users.unlock("u"),
    "documents.list": lambda fw: fw.documents.list(
        "D", {"a": 1}, fields=["a"], order_by="a asc", limit=1, start=1
    ),
    "documents.create": lambda fw: fw.documents.insert("D", {}, submit=True),
    "documents.read": lambda fw: fw.documents.get("D", "n"),
    "documents.save": lambda fw: fw.documents.save("D", "n", {}),
    "documents.delete": lambda fw: fw.documents.delete("D", "n", modified="t"),
    "documents.submit": lambda fw: fw.documents.submit("D", "n", modified="t"),
    "documents.cancel": lambda fw: fw.documents.cancel("D", "n", modified="t"),
    "documents.rename": lambda fw: fw.documents.rename("D", "n", "m", modified="t"),
    "documents.export": lambda fw: fw.documents.export("D", "n"),
    "webhooks.emitMany": lambda fw: fw.webhooks.emit_many([Event("a.b", {}, ("D", "n"))]),
    "webhooks.replay": lambda fw: fw.webhooks.replay("d"),
    "webhooks.cancel": lambda fw: fw.webhooks.cancel("d"),
    "webhooks.erase": lambda fw: fw.webhooks.erase("d"),
    "webhooks.rotate": lambda fw: fw.webhooks.rotate("w", secret="s", overlap=1, modified="t"),
    "webhooks.test": lambda fw: fw.webhooks.test("w"),
    "webhooks.pause": lambda fw: fw.webhooks.pause("w", seconds=1),
    "webhooks.resume": lambda fw: fw.webhooks.resume("w"),
    "webhooks.explain": lambda fw: fw.webhooks.explain("d"),
    "webhooks.replayMany": lambda fw: fw.webhooks.replay_many({"name": "d"}),
    "webhooks.stopReplay": lambda fw: fw.webhooks.stop_replay(),
    "webhooks.replayRuns": lambda fw: fw.webhooks.replay_runs(),
    "webhooks.replayProgress": lambda fw: fw.webhooks.replay_progress("r"),
    "webhooks.attempts": lambda fw: fw.webhooks.attempts(**ATTEMPTS, limit=1, before="p"),
    "jobs.list": lambda fw: fw.jobs.list(**JOBS, limit=1, before=1),
    "jobs.retry": lambda fw: fw.jobs.retry(1),
    "jobs.cancel": lambda fw: fw.jobs.cancel(1),
    "jobs.retryMatching": lambda fw: fw.jobs.retry_matching(**JOBS),
    "jobs.cancelMatching": lambda fw: fw.jobs.cancel_matching(**JOBS),
    "functions.call": lambda fw: fw.call("a.b", {}),
}
REPEATABLE = {
    "profile.getMyProfile", "profile.updateMyProfile", "sessions.listMySessions",
    "sessions.revokeMySession", "api_keys.listMyAPIKeys", "api_keys.revokeMyAPIKey",
    "users.unlockUser", "documents.list", "documents.read", "documents.delete",
    "documents.export", "webhooks.emitMany", "webhooks.erase", "webhooks.pause",
    "webhooks.resume", "webhooks.explain", "webhooks.stopReplay", "webhooks.replayRuns",
    "webhooks.replayProgress", "webhooks.attempts", "jobs.list",
}  # fmt: skip
ELSEWHERE = {
    "auth.login": "test_client.py: a client signs in by itself",
    "auth.logout": "test_client.py: closing ends the session",
    "profile.changeMyPassword": "test_client.py: it asks for the profile first",
    "webhooks.emit": "an event goes as a batch of one, so that its key is there (H-225)",
}


@pytest.fixture(scope="module")
def document(site: LiveSite) -> Document:
    found: Document = httpx.get(f"{site.url}/api/openapi.json", timeout=60).json()
    return found


def operations(document: Document) -> Iterator[tuple[str, str, str, Document]]:
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            yield operation["operationId"], verb.upper(), path, operation


def test_operation_has_client_method_or_reason(document: Document) -> None:
    """One that can be asked by GET and by POST is asked by either."""
    known = {name for name, *_ in operations(document)}
    twice = {name for name in known if name.removesuffix(".get") in known - {name}}
    mapped = CALLS.keys() | LEFT_OUT.keys() | ELSEWHERE.keys()
    assert (known - twice - mapped, mapped - known) == (set(), set())


@pytest.mark.parametrize("name", CALLS)
def test_client_method_sends_parameters_of_its_operation(name: str, document: Document) -> None:
    """All arguments are given, so that none goes by a name that the service refuses."""
    request = request_of(CALLS[name])
    (operation,) = (
        operation
        for each, verb, path, operation in operations(document)
        if each.removesuffix(".get") == name
        and (verb, path) == (request.method, pattern_of(request.url.path))
    )
    in_query = {each["name"] for each in operation["parameters"] if each["in"] == "query"}
    assert set(request.url.params) == in_query
    if request.content and operation.get("requestBody") and not free(operation):
        assert set(json.loads(request.content)) == fields_of(document, operation)


@pytest.mark.parametrize("name", CALLS)
def test_client_method_repeats_a_lost_request_only_if_it_changes_nothing_twice(name: str) -> None:
    """The answer is lost, so that the request may have been carried out (H-223)."""
    sent = []

    def lose(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        raise httpx.ReadError("lost")

    policy = RetryPolicy(attempts=2, first_seconds=0)
    http = httpx.Client(transport=httpx.MockTransport(lose))
    with (
        FwClient("http://127.0.0.1", key="fwk_k", http=http, retries=policy) as fw,
        pytest.raises(FwClientError),
    ):
        CALLS[name](fw)
    assert len(sent) == (2 if name in REPEATABLE else 1)


def request_of(act: Callable[[FwClient], Any]) -> httpx.Request:
    """Return what a method sends."""
    seen: list[httpx.Request] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(500)

    http = httpx.Client(transport=httpx.MockTransport(refuse))
    with (
        FwClient("http://127.0.0.1", key="fwk_k", http=http, retries=RetryPolicy(attempts=1)) as fw,
        pytest.raises(FwClientError),
    ):
        act(fw)
    (request,) = seen
    return request


def pattern_of(path: str) -> str:
    """Return the path as the document has it."""
    parts = path.split("/")
    if parts[2] == "resource":
        parts[3:5] = ["{doctype}", "{name}"][: len(parts) - 3]
    elif parts[3] == "a.b":
        parts[3] = "{path}"
    return "/".join(parts)


def schema_of(operation: Document) -> Document:
    found: Document = operation["requestBody"]["content"]["application/json"]["schema"]
    return found


def free(operation: Document) -> bool:
    return "$ref" not in schema_of(operation)


def fields_of(document: Document, operation: Document) -> set[str]:
    component = schema_of(operation)["$ref"].rpartition("/")[2]
    return set(document["components"]["schemas"][component]["properties"])
