"""Deliveries to a receiver whose name resolves to a refused address."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from fw_actors.http import Address, open_sender
from fw_actors.rules.outgoing import OutgoingPolicy
from tests.fw_actors.actors.delivery_kit import DeliverySite, RealSender, delivering
from tests.fw_actors.http.receiver import OK, once, receiving

pytestmark = pytest.mark.usefixtures("on_both_stores")


async def attempted(post: DeliverySite, delivery: str) -> dict[str, Any]:
    """Wait until a delivery was attempted; return it."""
    while True:
        found = await post.read(delivery)
        if found["status"] != "Queued":
            return found
        await trio.sleep(0.01)


async def test_delivery_to_refused_address_sends_nothing_and_is_retried(
    tmp_path: Path,
) -> None:
    """DNS answers may change, so the attempt counts as a failed connection."""
    async with receiving(once(OK)) as receiver:
        hosts = ["127.0.0.1", "169.254.169.254", "127.0.0.1"]

        def rebinding(host: str, port: int) -> Sequence[Address]:
            return [(socket.AF_INET, (hosts.pop(0), receiver.port))]

        url = f"http://receiver.example:{receiver.port}/hook"
        async with (
            open_sender(lookup=rebinding) as sender,
            delivering(
                tmp_path, RealSender(sender), mode="development", backoff_seconds=1.0
            ) as post,
        ):
            await post.webhook(url)
            [first] = await post.emit()
            assert (await post.settled(first))["attempts"] == 1
            [second] = await post.emit()
            refused = await attempted(post, second)
            assert (refused["status"], refused["error"]) == (
                "Retrying",
                "connect: receiver.example is a link-local address, which is never connected to.",
            )
            assert len(receiver.requests) == 1
            assert ((await post.settled(second))["status"], hosts) == ("Sent", [])


async def test_delivery_to_denied_private_address_fails_immediately(
    tmp_path: Path,
) -> None:
    """An attempt that the site's policy refuses is not retried (B-155)."""
    async with (
        receiving(once(OK)) as receiver,
        open_sender(policy=OutgoingPolicy("deny")) as sender,
        delivering(tmp_path, RealSender(sender), mode="development") as post,
    ):
        await post.webhook(f"http://127.0.0.1:{receiver.port}/hook")
        [delivery] = await post.emit()
        failed = await post.settled(delivery)
        assert (failed["status"], failed["attempts"], failed["error"]) == (
            "Failed",
            1,
            "connect: 127.0.0.1 is not a public address, and ops.outgoing.private is deny.",
        )
        assert receiver.connections == 0
