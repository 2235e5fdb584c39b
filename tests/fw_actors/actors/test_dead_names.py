"""Deliveries to receivers whose names DNS never answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from fw_actors.http import open_sender
from tests.fw_actors.actors.delivery_kit import RealSender, delivering
from tests.fw_actors.http.dead_names import DeadNames
from tests.fw_actors.http.receiver import OK, once, receiving

pytestmark = pytest.mark.usefixtures("on_both_stores")

DEAD = 60


async def test_unanswered_dns_names_delay_no_healthy_receiver(tmp_path: Path) -> None:
    """More than 40 unanswered names do not delay other receivers (B-234, B-149)."""
    with DeadNames() as names:
        async with (
            receiving(once(OK)) as receiver,
            open_sender(lookup=names.lookup) as sender,
            delivering(tmp_path, RealSender(sender), mode="development") as post,
        ):
            await post.webhook(f"http://healthy.example:{receiver.port}/", "to.healthy")
            [first] = await post.emit("to.healthy")
            assert (await post.settled(first))["status"] == "Sent"
            for number in range(DEAD):
                await post.webhook(
                    f"http://dead{number}.example:{receiver.port}/", "to.dead", timeout=60
                )
            dead = await post.emit("to.dead")
            await names.have_swallowed(24)  # three quarters of all threads
            for _ in range(3):
                [delivery] = await post.emit("to.healthy")
                assert (await post.settled(delivery))["status"] == "Sent"
            assert {(await post.read(each))["status"] for each in dead} == {"Queued"}
            assert names.swallowed == 24
            names.give_up()  # the stop would let these attempts have 10 s (O-31)
