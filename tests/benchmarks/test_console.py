"""The suite `console` at little effort: the busy service, and its watchers."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.console import service, watched
from benchmarks.console.suite import pairwise_means
from benchmarks.console.watched import TooFewDeliveries, busy_service, watching
from benchmarks.nginx import running_nginx


def test_pairwise_means_averages_neighbours() -> None:
    assert pairwise_means([1.0, 3.0, 9.0]) == [2.0, 6.0]


@pytest.mark.timeout(300)
def test_busy_service_reaches_load_while_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "WINDOW_SECONDS", 2.0)
    monkeypatch.setattr(watched, "FEWEST", 0.0)  # however slow the machine is
    (tmp_path / "nginx").mkdir()
    with running_nginx(tmp_path / "nginx") as nginx, busy_service(tmp_path, nginx, 100) as busy:
        with watching(busy, fewest=0.0):
            assert busy.share() > 0
        assert nginx.requests() > 1
        monkeypatch.setattr(watched, "FEWEST", 2.0 * service.DELIVERIES_A_SECOND)
        with pytest.raises(TooFewDeliveries):
            busy.share()
