"""kill -9 at random under load: spec, What the service does; interface §7, §8 Operating."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.rounds import crash
from tests.live_site import LiveSite


@pytest.mark.timeout(600)
def test_kills_at_random_lose_no_event_forgive_no_failure_and_spend_no_token_twice(
    tmp_path: Path,
) -> None:
    """Five rounds of server and worker; scripts/crash --rounds 200 for more."""
    with LiveSite(tmp_path) as site:
        assert crash(site, rounds=5, seed=1) == []
