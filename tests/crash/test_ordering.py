"""kill -9 leaves the order of a document's deliveries, and loses none (B-323)."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.live_site import LiveReceiver, LiveSite, eventually
from tests.webhook_kit import deliveries, make_webhook

DEVELOPMENT = {"FW_MODE": "development"}
AFTER_THE_LEASE = {**DEVELOPMENT, "FW_CLOCK_OFFSET": "45"}  # timeout 10 and 30 more
SAVES = 4


def test_document_order_survives_kill(tmp_path: Path) -> None:
    """The first POST hangs, and the process is killed meanwhile."""
    with LiveSite(tmp_path) as site, LiveReceiver(None, 204) as receiver:
        site.add_manager()
        site.start(**DEVELOPMENT)
        with site.client() as client:
            make_webhook(client, receiver.url, ordering="document", on_update=1)
            note = client.post("/api/resource/Note", json={"title": "0"}).json()["data"]
            for number in range(1, SAVES):
                path = f"/api/resource/Note/{note['name']}"
                assert client.put(path, json={"title": str(number)}).status_code == 200
            eventually(lambda: receiver.got)
        site.end(signal.SIGKILL)
        assert len(receiver.got) == 1
        site.start(**AFTER_THE_LEASE)
        with site.client() as client:
            eventually(lambda: all(each["status"] == "Sent" for each in deliveries(client)))
            recorded = sorted(each["name"] for each in deliveries(client))
    assert len(recorded) == SAVES
    assert receiver.ids == [recorded[0], *recorded]  # by their times; the cut one twice
