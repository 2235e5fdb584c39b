"""The soak test itself: its measurements, limits and chart. The long run: scripts/soak."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from tests.live_site import LiveReceiver, LiveSite
from tests.soak.load import MAY_GROW, WARM_SECONDS, Soak
from tests.soak.picture import STRIP, WIDTH, png_of


def test_soak_answers_mixed_load_as_expected(tmp_path: Path) -> None:
    with LiveReceiver() as receiver, LiveSite(tmp_path) as site:
        site.add_manager()
        site.start(FW_MODE="development")
        soak = Soak(site, receiver)
        soak.run(2.0, every=0.5)
    assert soak.writes
    assert soak.strange == []
    assert set(soak.series) == set(MAY_GROW)


@pytest.mark.parametrize(("growth", "found"), [(0.0, 0), (5.0, len(MAY_GROW))])
def test_soak_judges_growth_after_first_minute(growth: float, found: int, tmp_path: Path) -> None:
    with LiveReceiver() as receiver:
        soak = Soak(LiveSite(tmp_path), receiver)
    soak.times = [float(second) for second in range(300)]
    late = [max(0.0, second - WARM_SECONDS) for second in soak.times]
    soak.series = {name: [100.0 + growth * seconds for seconds in late] for name in MAY_GROW}
    assert len(soak.violations()) == found


def test_picture_is_png_with_strip_per_series() -> None:
    drawn = png_of({"one": [0.0, 1.0, 2.0], "two": [5.0]})
    assert drawn.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", drawn[16:24]) == (WIDTH, 2 * STRIP)
    length = struct.unpack(">I", drawn[33:37])[0]
    assert len(zlib.decompress(drawn[41 : 41 + length])) == (WIDTH + 1) * 2 * STRIP
