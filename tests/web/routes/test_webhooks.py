"""webhooks.replay, test, pause, rotate and erase (B-250, B-270, B-300, B-350, B-360)."""

from __future__ import annotations

import pytest

from fw_actors.errors import ConflictError, FwError, NotFoundError, PermissionDeniedError
from tests.web.client import AppClient
from tests.web.fakes import EXPIRES, SID, FakeGateway

REPLAY = "/api/method/core.services.webhooks.replay"
PAUSE = "/api/method/core.services.webhooks.pause"
RESUME = "/api/method/core.services.webhooks.resume"
ROTATE = "/api/method/core.services.webhooks.rotate"
CANCEL = "/api/method/core.services.webhooks.cancel"
ERASE = "/api/method/core.services.webhooks.erase"
TEST = "/api/method/core.services.webhooks.test"


async def test_replay_returns_the_delivery_and_its_status(
    client: AppClient, gateway: FakeGateway
) -> None:
    headers = [("X-Request-Id", "r-7")]
    reply = await client.ask("POST", REPLAY, {"delivery": "msg_1"}, sid=SID, headers=headers)
    assert (reply.status, reply.json) == (200, {"delivery": "msg_1", "status": "Queued"})
    assert gateway.calls == [("replay", "ann", "msg_1", "r-7")]


async def test_webhook_test_returns_status_error_and_times(
    client: AppClient, gateway: FakeGateway
) -> None:
    """Over HTTP it is 200 with `error` (B-272)."""
    headers = [("X-Request-Id", "r-7")]
    reply = await client.ask("POST", TEST, {"webhook": "hook"}, sid=SID, headers=headers)
    assert (reply.status, reply.json) == (
        200,
        {
            "status": None,
            "error": "timeout: late.",
            "times": {"dns": 1.5, "connect": 2.0, "tls": 0.0, "answer": 0.0},
        },
    )
    assert gateway.calls == [("test_webhook", "ann", "hook", "r-7")]


async def test_pause_and_resume_return_the_pause(client: AppClient, gateway: FakeGateway) -> None:
    headers = [("X-Request-Id", "r-7")]
    reply = await client.ask(
        "POST", PAUSE, {"webhook": "w", "seconds": 60}, sid=SID, headers=headers
    )
    since = "2026-02-28T12:00:00.000Z"
    assert reply.json == {"webhook": "w", "paused": True, "since": since, "until": None}
    reply = await client.ask("POST", RESUME, {"webhook": "w"}, sid=SID, headers=headers)
    assert reply.json == {"webhook": "w", "paused": False, "since": None, "until": None}
    assert gateway.calls == [
        ("pause_webhook", "ann", "w", 60, "r-7"), ("resume_webhook", "ann", "w", "r-7"),
    ]  # fmt: skip


async def test_rotate_returns_the_secret_that_the_service_made_and_no_other(
    client: AppClient, gateway: FakeGateway
) -> None:
    body = {"webhook": "w", "overlap": 24}
    made = await client.ask("POST", ROTATE, body, sid=SID)
    read, until = "2026-02-28T12:00:00.000Z", "2026-03-01T12:00:00.000Z"
    shown = {"webhook": "w", "modified": read}
    assert made.json == {**shown, "secret": "whsec_made", "old_secret_until": until}
    given = await client.ask("POST", ROTATE, {"webhook": "w", "secret": "whsec_own"}, sid=SID)
    assert given.json == {**shown, "secret": None, "old_secret_until": None}
    assert [call[:5] for call in gateway.calls] == [
        ("rotate", "ann", "w", "whsec_made", 24), ("rotate", "ann", "w", "whsec_own", 0),
    ]  # fmt: skip


async def test_rotate_takes_the_version_that_was_read(
    client: AppClient, gateway: FakeGateway
) -> None:
    """B-350"""
    body = {"webhook": "w", "modified": "2026-02-28T12:00:00.000Z"}
    assert (await client.ask("POST", ROTATE, body, sid=SID)).status == 200
    assert gateway.calls[-1][-1] == EXPIRES
    reply = await client.ask("POST", ROTATE, {**body, "modified": "yesterday"}, sid=SID)
    assert (reply.status, reply.error["extra"]) == (400, {"field": "modified"})


async def test_erase_returns_the_time(client: AppClient, gateway: FakeGateway) -> None:
    headers = [("X-Request-Id", "r-7")]
    reply = await client.ask("POST", ERASE, {"delivery": "msg_1"}, sid=SID, headers=headers)
    assert reply.json == {"delivery": "msg_1", "erased": "2026-02-28T12:00:00.000Z"}
    assert gateway.calls == [("erase", "ann", "msg_1", "r-7")]


async def test_cancel_returns_the_new_status(client: AppClient, gateway: FakeGateway) -> None:
    headers = [("X-Request-Id", "r-7")]
    reply = await client.ask("POST", CANCEL, {"delivery": "msg_1"}, sid=SID, headers=headers)
    assert (reply.status, reply.json) == (200, {"delivery": "msg_1", "status": "Failed"})
    assert gateway.calls == [("cancel_delivery", "ann", "msg_1", "r-7")]


OF_WEBHOOKS, OF_DELIVERIES = (TEST, PAUSE, RESUME, ROTATE), (REPLAY, CANCEL, ERASE)
ACTS = [
    *((path, {"webhook": "x"}) for path in OF_WEBHOOKS),
    *((path, {"delivery": "x"}) for path in OF_DELIVERIES),
]
REFUSALS = [
    (PermissionDeniedError(), 403),
    (NotFoundError("No."), 404),
    (ConflictError("No."), 409),
]


@pytest.mark.parametrize(("refusal", "status"), REFUSALS)
@pytest.mark.parametrize(("path", "body"), ACTS)
async def test_webhook_errors_are_in_the_envelope(
    client: AppClient,
    gateway: FakeGateway,
    path: str,
    body: dict[str, str],
    refusal: FwError,
    status: int,
) -> None:
    gateway.refuse = refusal
    reply = await client.ask("POST", path, body, sid=SID)
    assert (reply.status, reply.error["type"]) == (status, type(refusal).__name__)


@pytest.mark.parametrize("path", [*OF_DELIVERIES, *OF_WEBHOOKS])
@pytest.mark.parametrize("body", [{}, {"delivery": 5, "webhook": 5}, {"x": "y"}, [], "x", None])
async def test_webhook_operations_answer_400_for_a_malformed_body(
    client: AppClient, gateway: FakeGateway, path: str, body: object
) -> None:
    assert (await client.ask("POST", path, body, sid=SID)).status == 400
    assert gateway.calls == []


@pytest.mark.parametrize("path", [*OF_DELIVERIES, *OF_WEBHOOKS])
async def test_webhook_operations_need_session_csrf_header_and_post(
    client: AppClient, gateway: FakeGateway, path: str
) -> None:
    body = {"delivery": "x"}
    assert (await client.ask("POST", path, body)).status == 401
    assert (await client.ask("POST", path, body, sid=SID, csrf=False)).status == 403
    assert (await client.ask("GET", path, sid=SID)).status == 405
    assert gateway.calls == []
