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


def test_reconnect_backoff_reports_each_reason_of_an_outage_once() -> None:
    """A failover begins with a refused connection; later the server is a standby (O-24)."""
    backoff = ReconnectBackoff()
    reasons = ["refused", "refused", "hot standby", "refused", "wrong password", "wrong password"]
    assert [backoff.failed(reason) for reason in reasons] == [True, False, True, False, True, False]
    assert backoff.succeeded()
    assert backoff.failed("refused")
