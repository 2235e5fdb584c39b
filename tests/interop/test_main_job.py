"""The main job, as its user does it: a note is saved, and a signed POST arrives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import standardwebhooks

from fw_actors.store.statement import POSTGRESQL
from tests.live_site import SECRET, LiveReceiver, LiveSite, eventually
from tests.webhook_kit import deliveries, make_webhook


@pytest.fixture
def site(tmp_path: Path) -> Any:
    with LiveSite(tmp_path, ops={"backoffSeconds": 0.2}) as site:
        site.add_manager()
        site.start()
        yield site


@pytest.mark.parametrize(
    "secret", [SECRET, "whsec_" + "QUJD" * 8, "a plain secret", "sécret-ключ-☃"]
)
def test_saved_note_is_verified_by_official_packages(site: LiveSite, secret: str) -> None:
    """`whsec_` is decoded (B-22), any other secret is its raw bytes (B-23); the request (B-121)."""
    import svix.webhooks  # not at the top: it takes 0.4 s, of every process that collects tests

    with LiveReceiver() as receiver, site.client() as client:
        make_webhook(client, receiver.url, secret=secret)
        note = client.post("/api/resource/Note", json={"title": "ünïcode ☃"}).json()["data"]
        [sent] = eventually(lambda: deliveries(client, status="Sent"))
        [got] = receiver.got
    key = secret if secret.startswith("whsec_") else secret.encode()
    body = standardwebhooks.Webhook(key).verify(got.body, got.headers)
    svix.webhooks.Webhook(key).verify(got.body, got.headers)
    assert (body["type"], body["data"]["doc"]["title"]) == ("doc.on_insert", "ünïcode ☃")
    assert body["data"]["name"] == note["name"]
    assert got.headers["webhook-id"] == sent["name"]
    assert (sent["attempts"], sent["response_status"], sent["error"]) == (1, 204, None)


def test_failed_delivery_is_retried_with_same_bytes(site: LiveSite) -> None:
    """503 and 500 are retried, then 200 is Sent (B-163, B-162, B-106)."""
    with LiveReceiver(503, 500, 200) as receiver, site.client() as client:
        make_webhook(client, receiver.url)
        client.post("/api/resource/Note", json={"title": "again"})
        [sent] = eventually(lambda: deliveries(client, status="Sent"))
    assert sent["attempts"] == 3
    assert len({got.body for got in receiver.got}) == 1
    assert set(receiver.ids) == {sent["name"]}
    for got in receiver.got:
        standardwebhooks.Webhook(SECRET).verify(got.body, got.headers)


def test_refusing_hook_removes_event_with_write(site: LiveSite) -> None:
    """A hook that raises removes the event with the write (B-56)."""
    with LiveReceiver() as receiver, site.client() as client:
        make_webhook(client, receiver.url)
        refused = client.post("/api/resource/Note", json={"title": " "})
        assert refused.status_code == 422
        assert refused.json()["error"]["extra"] == {"field": "title"}
        client.post("/api/resource/Note", json={"title": "taken"})
        eventually(lambda: deliveries(client, status="Sent"))
        assert len(deliveries(client)) == len(receiver.got) == 1


@pytest.mark.parametrize("on_both_stores", [POSTGRESQL], indirect=True)
def test_postgresql_events_of_service_and_command_are_sent(
    on_both_stores: None, tmp_path: Path
) -> None:
    """FW_DATABASE=postgresql://…: what the tests above show on SQLite, in one go."""
    with LiveSite(tmp_path, ops={"backoffSeconds": 0.2}) as site:
        site.add_manager()
        site.start()
        with LiveReceiver(503, 200) as receiver, site.client() as client:
            make_webhook(client, receiver.url)
            client.post("/api/resource/Note", json={"title": "ünïcode ☃"})
            [sent] = eventually(lambda: deliveries(client, status="Sent"))
            assert sent["attempts"] == 2
            for got in receiver.got:
                standardwebhooks.Webhook(SECRET).verify(got.body, got.headers)
            site.fw("eval", 'fw.new_doc("Note", title="from outside").insert().name', "--commit")
            eventually(lambda: len(receiver.got) == 3)
        assert site.end() == 0
    assert not (tmp_path / "data" / "fw.db").exists()


def test_command_line_commit_is_sent_promptly(site: LiveSite) -> None:
    """A commit of another process is seen by a running service within a second (O-17)."""
    with LiveReceiver() as receiver, site.client() as client:
        make_webhook(client, receiver.url)
        site.fw("eval", 'fw.new_doc("Note", title="from outside").insert().name', "--commit")
        eventually(lambda: receiver.got, seconds=5)
