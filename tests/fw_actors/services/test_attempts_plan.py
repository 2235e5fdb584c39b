"""How SQLite looks a counter up."""

from __future__ import annotations

from tests.fw_actors.services.conftest import Office


async def test_a_charge_reads_its_own_counter_alone(office: Office) -> None:
    plan = await office.sql(
        "EXPLAIN QUERY PLAN SELECT count(*) FROM fw_login_attempt WHERE key = :key AND at > 0",
        key=b"a counter",
    )
    assert "fw_login_attempt_key" in str(plan)
