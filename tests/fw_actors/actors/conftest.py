"""Fixtures for the tests of actors."""

from __future__ import annotations

import pytest

from fw_actors.actors import dispatcher, queue_worker

HOUR = 3600.0


@pytest.fixture
def rare_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers poll only at wake-ups and due times, and once an hour.

    A virtual day of polls once a second takes minutes. No other process writes to the store.
    """
    for module in (queue_worker, dispatcher):
        monkeypatch.setattr(module, "MAX_SLEEP_SECONDS", HOUR)
