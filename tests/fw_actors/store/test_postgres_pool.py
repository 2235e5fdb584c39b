"""How long a server that can't be reached is left alone: ADR-036."""

from __future__ import annotations

from fw_actors.store.postgres_connection import MAX_WAIT_SECONDS, ReconnectBackoff


def test_an_outage_of_hours_is_borne_like_one_of_seconds() -> None:
    """At two seconds a try, half an hour is a thousand failures in a row."""
    backoff = ReconnectBackoff()
    assert backoff.failed()
    for _ in range(3000):
        assert not backoff.failed()
        assert backoff.remaining() <= MAX_WAIT_SECONDS
    assert backoff.succeeded()
    assert backoff.remaining() == 0
