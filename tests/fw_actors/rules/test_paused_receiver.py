"""A receiver that an operator has paused starts no attempt until it is resumed."""

from __future__ import annotations

from fw_actors.rules.receivers import ReceiverSlots, startable


def test_paused_receiver_starts_nothing_until_resumed() -> None:
    receiver = ReceiverSlots(limit=16, window=8)
    receiver.take(2)
    receiver.paused = True
    assert (receiver.health, startable(receiver, 512, 512)) == ("paused", 0)
    receiver.answered(0.1)
    assert startable(receiver, 512, 512) == 0
    receiver.paused = False
    assert (receiver.health, startable(receiver, 512, 512)) == ("healthy", 15)


def test_slow_receiver_shows_slow_unless_paused() -> None:
    receiver = ReceiverSlots(limit=16, window=8)
    receiver.take(1)
    receiver.timed_out()
    assert receiver.health == "slow"
    receiver.paused = True
    assert receiver.health == "paused"
