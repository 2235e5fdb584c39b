"""A receiver that an operator has paused takes nothing, and does as before once it goes on."""

from __future__ import annotations

from fw_actors.rules.concurrency import ReceiverSlots, startable


def test_nothing_starts_at_a_paused_receiver() -> None:
    receiver = ReceiverSlots(limit=16, window=8)
    receiver.take(2)
    receiver.paused = True
    assert (receiver.health, startable(receiver, 512, 512)) == ("paused", 0)
    receiver.answered(0.1)
    assert startable(receiver, 512, 512) == 0
    receiver.paused = False
    assert (receiver.health, startable(receiver, 512, 512)) == ("healthy", 15)


def test_a_slow_receiver_says_so_unless_it_is_paused() -> None:
    receiver = ReceiverSlots(limit=16, window=8)
    receiver.take(1)
    receiver.timed_out()
    assert receiver.health == "slow"
    receiver.paused = True
    assert receiver.health == "paused"
