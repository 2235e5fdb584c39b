"""The suite `console`: the cost of watching a busy service, for the service and in the browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Final

from playwright.sync_api import Page

from benchmarks.console.page import open_console, watch_frames
from benchmarks.console.watched import BusyService, busy_service, watching
from benchmarks.delivery.latency import percentile
from benchmarks.nginx import running_nginx
from benchmarks.rows import BenchmarkRow, Comparison, Effort

CORE_PERCENT: Final = 5.0
PAGE_PERCENT: Final = 10.0
TURNS: Final = 4
TWO_FRAMES_MS: Final = 2 * 1000 / 60
_FOLDER: Final = Path(__file__).parents[2] / "build"


def rows(effort: Effort) -> Iterator[BenchmarkRow]:
    """Measure the suite."""
    _FOLDER.mkdir(exist_ok=True)
    with (
        TemporaryDirectory(dir=_FOLDER) as site,
        TemporaryDirectory(dir=_FOLDER) as folder,
        running_nginx(Path(folder)) as nginx,
        busy_service(Path(site), nginx) as busy,
    ):
        core = partial(added_percent, busy, effort)
        yield _aim("core", "% of a core", core, CORE_PERCENT).measure(effort)
        with open_console(busy) as page:
            frames = partial(_frame, page)
            yield _aim("frame_p99_ms", "ms", frames, TWO_FRAMES_MS).measure(effort)
            thread = partial(_busy, page)
            yield _aim("page", "% of a core", thread, PAGE_PERCENT).measure(effort)


def added_percent(busy: BusyService, effort: Effort) -> float:
    """Return what one open console adds to what the service takes of a core.

    Windows with it stand between such without, so that a drift of the machine cancels out.
    """
    without, watched = [busy.share()], []
    for _ in range(TURNS):
        with watching(busy):
            watched.append(busy.share())
        without.append(busy.share())
    usual, more = fmean(pairwise_means(without)), fmean(watched)
    effort.tell(f"console/core: {usual:.1f} % of a core, watched {more:.1f} %")
    return max(0.01, more - usual)


def pairwise_means(values: Sequence[float]) -> list[float]:
    """Return the mean of each value and the next: what lay between them, had nothing been done."""
    return [(one + other) / 2 for one, other in pairwise(values)]


def _frame(page: Page) -> float:
    return percentile(watch_frames(page).frames, 0.99)


def _busy(page: Page) -> float:
    return watch_frames(page).busy


def _aim(name: str, unit: str, ours: Callable[[], float], limit: float) -> Comparison:
    return Comparison(
        "console", name, unit, ours, lambda: limit, "the most it may be", less_is_better=True
    )
