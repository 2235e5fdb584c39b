"""The clock: whether rows are from the future, which says that it went back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from fw_actors.rules.findings import Section, ok, problem, warning
from fw_actors.services.site import Site
from fw_actors.store import Tx
from fw_actors.store.schema import JOB, SESSION

TOLERATED_MS: Final = 5_000
_OLDEST_MS: Final = 1_735_689_600_000  # 2025: before this program was


@dataclass(frozen=True)
class ClockFacts:
    """Milliseconds since the epoch; `latest` is the newest time of any row, 0 without one."""

    now: int
    latest: int


async def clock_facts(site: Site) -> ClockFacts:
    """Ask the store for the newest times in it."""

    def ask(tx: Tx) -> ClockFacts:
        deliveries = site.registry.tables["Webhook Delivery"].table.c.creation
        times = (SESSION.c.created, JOB.c.created, deliveries)
        found = [tx.scalar(sa.select(sa.func.max(time))) for time in times]
        return ClockFacts(tx.now, max(time or 0 for time in found))

    return await site.store.read(ask)


def judge_clock(facts: ClockFacts) -> Section:
    """Judge the facts; pure."""
    ahead = facts.latest - facts.now
    if facts.now < _OLDEST_MS:
        finding = problem("the clock is years behind", "Set the clock (timedatectl).")
    elif ahead > TOLERATED_MS:
        finding = warning(
            f"the newest row is {ahead / 1000:.0f} s in the future: the clock went back, or "
            "another machine's is ahead",
            "Keep all machines of the site in time (timedatectl status).",
        )
    else:
        finding = ok(f"no row is more than {TOLERATED_MS // 1000} s in the future")
    return Section("clock", "Clock", (finding,), {"now": facts.now, "newestRow": facts.latest})
