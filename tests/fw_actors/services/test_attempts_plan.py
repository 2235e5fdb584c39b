"""How SQLite looks a counter up."""

from __future__ import annotations

from tests.fw_actors.services.conftest import Office


async def test_a_charge_reads_its_own_counter_alone(office: Office) -> None:
    plan = await office.sql(
        "EXPLAIN QUERY PLAN SELECT count(*) FROM fw_login_attempt WHERE key = :key AND at > 0",
        key=b"a counter",
    )
    assert "fw_login_attempt_key" in str(plan)


async def test_a_full_region_is_found_without_reading_the_others(office: Office) -> None:
    plan = await office.sql(
        "EXPLAIN QUERY PLAN SELECT count(*) FROM (SELECT DISTINCT key FROM fw_login_attempt"
        " WHERE at > 0 AND key BETWEEN :first AND :last LIMIT 64)",
        first=b"a",
        last=b"b",
    )
    assert "SEARCH fw_login_attempt USING COVERING INDEX fw_login_attempt_key" in str(plan)
    assert "TEMP B-TREE" not in str(plan)
