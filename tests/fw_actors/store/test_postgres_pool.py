"""The backoff before reconnecting to an unreachable server: ADR-036."""

from __future__ import annotations

from fw_actors.store.postgres_connection import MAX_WAIT_SECONDS, ReconnectBackoff


def test_reconnect_backoff_stays_bounded_over_long_outage() -> None:
    """At two seconds per attempt, half an hour is a thousand consecutive failures."""
    backoff = ReconnectBackoff()
    assert backoff.failed()
    for _ in range(3000):
        assert not backoff.failed()
        assert backoff.remaining() <= MAX_WAIT_SECONDS
    assert backoff.succeeded()
    assert backoff.remaining() == 0
