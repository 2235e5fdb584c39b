"""The explanation of waiting deliveries beside a running service: doctor, explain, page."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from fw_cli.console_rows import TABS
from tests.live_site import SECRET, LiveReceiver, LiveSite, eventually

pytestmark = pytest.mark.timeout(300)  # several processes start and end, on a slow machine too

EVENTS = 8


@dataclass
class HangingReceiverSite:
    """A service beside a receiver that hangs, with `deliveries` for it, all of them due."""

    site: LiveSite
    receiver: str
    webhook: str
    deliveries: list[str]

    def last_waiting(self) -> str:
        """A delivery that is due and has no lease."""
        rows = json.loads(
            self.site.prepare(
                "eval", "fw.db.sql('SELECT subject FROM fw_job WHERE lease IS NULL ORDER BY id')"
            )
        )
        return str(rows[-1]["subject"])


@pytest.fixture(scope="module")
def blocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HangingReceiverSite]:
    with LiveReceiver(None) as hanging, LiveSite(tmp_path_factory.mktemp("waiting")) as site:
        made = (
            f'fw.new_doc("Webhook", url="{hanging.url}", event_type="Custom", timeout=60, '
            f'custom_event="a.b", secret="{SECRET}").insert().name'
        )
        webhook = json.loads(site.prepare("eval", made, "--commit"))
        owed = f'[fw.webhooks.emit("a.b", {{}})["deliveries"][0] for _ in range({EVENTS})]'
        deliveries = json.loads(site.prepare("eval", owed, "--commit"))
        site.prepare(
            "eval", "fw.db.sql('UPDATE fw_job SET next_at = next_at - 720000')", "--commit"
        )
        site.prepare(
            "eval",
            "fw.db.sql('UPDATE doc_webhook_delivery SET next_attempt = next_attempt - 720000')",
            "--commit",
        )
        site.add_manager()
        site.start()
        eventually(lambda: hanging.ids)
        yield HangingReceiverSite(site, hanging.url.removesuffix("/hook"), webhook, deliveries)
        hanging.release()


def queues(blocked: HangingReceiverSite) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(blocked.site.fw("doctor", "--json"))["sections"]["queues"]
    return report


def test_doctor_names_receiver_of_waiting_deliveries(blocked: HangingReceiverSite) -> None:
    found = queues(blocked)
    first, second = found["findings"]
    assert "has 7 due jobs; the oldest has been due for 1" in first["text"]
    assert first["todo"].startswith("The service runs; the lines below name the receivers")
    assert second["text"] == (
        f"{blocked.receiver} (Webhook {blocked.webhook}): due deliveries: 7, "
        "leased for an attempt: 1; "
        "no attempt was made yet"
    )
    assert second["todo"].startswith(f"fw webhooks test {blocked.webhook} shows")
    assert "Start the service" not in json.dumps(found)


def test_waiting_delivery_is_explained_by_queue_ahead(blocked: HangingReceiverSite) -> None:
    delivery = blocked.last_waiting()
    report = json.loads(blocked.site.fw("webhooks", "explain", delivery, "--json"))
    assert (report["reason"], report["receiver"], report["leased"]) == ("slot", blocked.receiver, 1)
    assert 0 < report["ahead"] < EVENTS
    said = blocked.site.fw("webhooks", "explain", delivery)
    assert f"that are due before it: {report['ahead']}; leased for an attempt: 1." in said
    assert said.splitlines()[-1] == f"It is due since {report['dueAt']}."
    assert "goes at" not in said
    assert "not running" not in said


def test_page_and_consoles_show_due_delivery_as_waiting(blocked: HangingReceiverSite) -> None:
    delivery = blocked.last_waiting()
    with blocked.site.client() as client:
        page = client.get(f"/app/Webhook Delivery/{delivery}", headers={"accept": "text/html"}).text
    assert "waiting for its receiver, due since" in page
    assert "next attempt" not in page
    view = json.loads(blocked.site.fw("console", "--json"))
    (tab,) = [tab for tab in TABS if tab.id == "deliveries"]
    shown = {key: cells[-1] for key, cells in tab.rows(view)}
    assert shown[delivery] == "waiting for its receiver"
    assert sum(when.startswith("leased until") for when in shown.values()) == 1


def test_paused_receiver_is_explained_with_resume(blocked: HangingReceiverSite) -> None:
    """The receiver stays paused, so tests that need it stand above."""
    with blocked.site.client() as client:
        paused = client.post(
            "/api/method/core.services.console.pause", json={"receiver": blocked.receiver}
        )
        assert paused.status_code == 200, paused.text
    _, second = queues(blocked)["findings"]
    assert second["todo"] == "The service has paused it; resume it in fw console or /app/console."
    assert "This receiver is paused" in blocked.site.fw(
        "webhooks", "explain", blocked.last_waiting()
    )


def test_webhook_command_takes_effect_in_running_service(blocked: HangingReceiverSite) -> None:
    """A command has the running service use its change of a Webhook (C-152)."""
    add = ("webhooks", "add", "https://receiver.example/", "--name", "new", "--event", "late.one")
    assert json.loads(blocked.site.fw(*add, "--json"))["inUse"] is True
    with blocked.site.client() as client:
        emit = {"name": "late.one", "data": {}}
        path = "/api/method/core.services.webhooks.emit"
        assert len(client.post(path, json=emit).json()["deliveries"]) == 1
        assert json.loads(blocked.site.fw("webhooks", "disable", "new", "--json"))["inUse"] is True
        assert client.post(path, json=emit).json()["deliveries"] == []


def test_doctor_names_webhook_whose_change_the_service_does_not_use(
    blocked: HangingReceiverSite,
) -> None:
    """B-42. The service is asked; an eval does not tell it.

    A view may have facts of the store that are some seconds old, as long ones cost time to read.
    """
    made = (
        'fw.new_doc("Webhook", name="unseen", url="https://x.example/", event_type="Custom", '
        f'custom_event="c.d", secret="{SECRET}").insert().name'
    )
    blocked.site.prepare("eval", made, "--commit")

    def warnings() -> list[str]:
        found = json.loads(blocked.site.fw("doctor", "--json"))["sections"]["webhooks"]
        return [text for text in found["warnings"] if "unseen" in text]

    assert eventually(warnings) == [
        f"the service on {socket.gethostname()} does not use 1 changed Webhook: unseen"
    ]
