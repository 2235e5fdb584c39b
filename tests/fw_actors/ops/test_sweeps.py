"""Housekeeping: sweeps in small batches (O-70 to O-74)."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from fw_actors.actors import sweeper
from tests.fw_actors.virtual_site_kit import VirtualSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

NOW = 1_800_000_000_000
DAY = 86_400_000
MINUTE = 60_000


async def sweep(site: VirtualSite, steps: tuple[sweeper.Batch, ...]) -> list[int]:
    """Run each step once; how many rows each deleted."""
    return [await site.site.store.write(step) for step in steps]


async def put(site: VirtualSite, table: str, rows: list[dict[str, Any]]) -> None:
    def work(fw: Any) -> None:
        for row in rows:
            columns = ", ".join(f'"{name}"' for name in row)
            values = ", ".join(f":{name}" for name in row)
            fw.db.sql(f"INSERT INTO {table} ({columns}) VALUES ({values})", row)

    await site.do(work)


async def left(site: VirtualSite, column: str, table: str) -> list[Any]:
    return [row[0] for row in await site.sql(f"SELECT {column} FROM {table} ORDER BY 1")]


async def test_sweep_deletes_expired_sessions_only(site: VirtualSite) -> None:
    """Expired sessions, old tokens and old login attempts are deleted (O-70)."""
    rows = [
        {"id": name, "sid_hash": name.encode(), "user": "ada", "created": 0, "last_seen": 0,
         "expires": expires}
        for name, expires in (("old", NOW - DAY), ("now", NOW), ("live", NOW + 1))
    ]  # fmt: skip
    await put(site, "fw_session", rows)
    assert await sweep(site, sweeper.auth_batches(15)) == [2, 0, 0, 0, 0]
    assert await left(site, "id", "fw_session") == ["live"]


async def test_sweep_deletes_known_addresses_after_30_days(site: VirtualSite) -> None:
    rows = [
        {"user": user, "key": key, "seen": seen}
        for user, key, seen in (
            ("ada", b"old", NOW - 30 * DAY), ("ada", b"new", NOW - 30 * DAY + 1),
            ("bob", b"old", NOW - 1),
        )
    ]  # fmt: skip
    await put(site, "fw_known_address", rows)
    assert (await sweep(site, sweeper.auth_batches(15)))[3] == 1
    assert await left(site, "seen", "fw_known_address") == [NOW - 30 * DAY + 1, NOW - 1]


async def test_sweep_deletes_known_devices_after_400_days(site: VirtualSite) -> None:
    """A device is forgotten when it counts as new again (A-363)."""
    ages = {b"old": 400 * DAY, b"new": 400 * DAY - 1}
    rows = [{"user": "ada", "key": key, "seen": NOW - age} for key, age in ages.items()]
    await put(site, "fw_known_device", rows)
    assert (await sweep(site, sweeper.auth_batches(15)))[4] == 1
    assert await left(site, "seen", "fw_known_device") == [NOW - 400 * DAY + 1]


async def test_sweep_deletes_expired_tokens(site: VirtualSite) -> None:
    rows = [
        {"hash": bytes([n]), "kind": "recovery", "user": "ada", "created": 0, "expires": expires}
        for n, expires in enumerate((NOW, NOW + 1))
    ]
    await put(site, "fw_token", rows)
    assert (await sweep(site, sweeper.auth_batches(15)))[1] == 1
    assert await left(site, "expires", "fw_token") == [NOW + 1]


async def test_sweep_keeps_attempts_that_may_count_or_lock(site: VirtualSite) -> None:
    """An attempt that may still count is not swept (O-73): two windows of the lockout, 15 minutes
    of an address."""
    ages = {"counts": 14, "locks": 29, "address": 10}
    for minutes, kept in ((15, {"address", "counts", "locks"}), (1, {"address", "counts"})):
        await site.sql("DELETE FROM fw_login_attempt")
        rows = [
            {"id": name, "key": b"k", "at": NOW - age * MINUTE, "state": 1}
            for name, age in {**ages, "ancient": 24 * 60}.items()
        ]
        await put(site, "fw_login_attempt", rows)
        await sweep(site, sweeper.auth_batches(minutes))
        assert kept <= set(await left(site, "id", "fw_login_attempt")), minutes
        assert "ancient" not in await left(site, "id", "fw_login_attempt")


async def test_sweep_keeps_locks_until_their_end(
    site: VirtualSite,
) -> None:
    """A sweep lifts no lock (O-73): one of a longer policy holds to the end it was given."""
    rows = [
        {"id": name, "key": b"k", "at": NOW - DAY, "state": 1, "until": until}
        for name, until in (("locks", NOW + 1), ("is over", NOW))
    ]
    await put(site, "fw_login_attempt", rows)
    assert (await sweep(site, sweeper.auth_batches(15)))[2] == 1
    assert await left(site, "id", "fw_login_attempt") == ["locks"]


async def test_sweep_deletes_up_to_a_thousand_rows_oldest_first(
    site: VirtualSite,
) -> None:
    """A sweep deletes at most 1,000 rows at once (O-74)."""
    rows = [
        {"id": f"{n:05}", "sid_hash": f"{n}".encode(), "user": "ada", "created": 0, "last_seen": 0,
         "expires": 2000 - n}
        for n in range(1100)
    ]  # fmt: skip
    await put(site, "fw_session", rows)
    step = sweeper.auth_batches(15)[0]
    assert await sweep(site, (step,)) == [1000]
    assert (await left(site, "expires", "fw_session"))[0] == 1901
    assert await sweep(site, (step, step)) == [100, 0]


@pytest.mark.parametrize(("table", "step"), [("fw_known_address", 3), ("fw_known_device", 4)])
async def test_sweep_deletes_up_to_a_thousand_rows_of_one_key(
    site: VirtualSite, table: str, step: int
) -> None:
    """A sweep deletes at most 1,000 records at once (O-74): many users may share an address."""
    age = {"fw_known_address": 30, "fw_known_device": 400}[table]
    rows = [
        {"user": f"user{n}", "key": b"a network", "seen": NOW - age * DAY - n} for n in range(1100)
    ]
    await put(site, table, rows)
    batch = sweeper.auth_batches(15)[step]
    assert await sweep(site, (batch,)) == [1000]
    assert (await left(site, "seen", table))[0] == NOW - age * DAY - 99
    assert await sweep(site, (batch, batch)) == [100, 0]


def delivery(name: str, status: str, age_days: float, **values: Any) -> dict[str, Any]:
    return {
        "name": name, "status": status, "last_attempt": int(NOW - age_days * DAY), "webhook": "w",
        "payload": "{}", **values,
    }  # fmt: skip


async def test_sweep_deletes_old_final_deliveries_with_their_jobs(site: VirtualSite) -> None:
    """30 days by default, zero keeps for ever; Sent and Failed are deleted (B-280, B-281)."""
    rows = [
        delivery("old sent", "Sent", 30), delivery("old failed", "Failed", 31),
        delivery("old queued", "Queued", 99), delivery("old retrying", "Retrying", 99),
        delivery("young sent", "Sent", 29.9), delivery("young failed", "Failed", 29.9),
    ]  # fmt: skip
    await put(site, "doc_webhook_delivery", rows)
    jobs = [
        {"queue": queue, "subject": row["name"], "created": 0}
        for queue in ("webhook", "other") for row in rows if "sent" not in row["name"]
    ]  # fmt: skip
    await put(site, "fw_job", jobs)
    steps = sweeper.webhook_batches(30, 0)[:1]
    assert await sweep(site, steps) == [2]
    assert await left(site, "name", "doc_webhook_delivery") == [
        "old queued", "old retrying", "young failed", "young sent",
    ]  # fmt: skip
    assert await site.sql("SELECT queue FROM fw_job WHERE subject = 'old failed'") == [("other",)]
    assert await left(site, "subject", "fw_job WHERE queue = 'webhook'") == [
        "old queued", "old retrying", "young failed",
    ]  # fmt: skip


async def test_zero_retention_keeps_deliveries_for_ever(site: VirtualSite) -> None:
    assert sweeper.webhook_batches(0, 0)[:-2] == ()


async def test_retention_of_deliveries_counts_from_the_last_attempt(site: VirtualSite) -> None:
    """Retention counts from the last attempt (B-280)."""
    row = delivery("replayed", "Failed", 1, creation=NOW - 90 * DAY)
    await put(site, "doc_webhook_delivery", [row])
    steps = sweeper.webhook_batches(30, 0)[:1]
    assert await sweep(site, steps) == [0]
    await trio.sleep(29 * 86_400)
    assert await sweep(site, steps) == [1]


async def test_sweep_frees_the_key_of_an_emit(site: VirtualSite) -> None:
    """Sweeping frees the key (B-81)."""
    await site.subscribe()

    def emit(fw: Any) -> int:
        return len(fw.webhooks.emit("note.shared", {}, key="k")["deliveries"])

    assert await site.do(emit) == 1
    await site.sql(
        "UPDATE doc_webhook_delivery SET status = 'Sent', last_attempt = :old", old=NOW - 31 * DAY
    )
    await sweep(site, sweeper.webhook_batches(30, 0)[:1])
    assert await site.do(emit) == 1


async def test_webhook_batches_delete_up_to_a_thousand_rows(site: VirtualSite) -> None:
    rows = [delivery(f"{n:05}", "Sent", 99) for n in range(1001)]
    await put(site, "doc_webhook_delivery", rows)
    step = sweeper.webhook_batches(30, 0)[0]
    assert await sweep(site, (step, step)) == [1000, 1]


def audit_event(name: str, age_days: float) -> dict[str, Any]:
    return {"name": name, "action": "Denied", "creation": int(NOW - age_days * DAY)}


async def test_sweep_deletes_audit_events_older_than_the_retention(site: VirtualSite) -> None:
    """docs/configuration.md: ops.auditRetentionDays."""
    rows = [audit_event("old", 365), audit_event("older", 400), audit_event("young", 364.9)]
    await put(site, "doc_audit_event", rows)
    assert await sweep(site, sweeper.audit_batches(365)) == [2]
    assert await left(site, "name", "doc_audit_event") == ["young"]


async def test_zero_retention_keeps_audit_events_for_ever(site: VirtualSite) -> None:
    assert sweeper.audit_batches(0) == ()


async def test_audit_batches_delete_a_thousand_rows_oldest_first(site: VirtualSite) -> None:
    rows = [audit_event(f"{n:05}", 400 + n) for n in range(1001)]
    await put(site, "doc_audit_event", rows)
    (step,) = sweeper.audit_batches(365)
    assert await sweep(site, (step,)) == [1000]
    assert await left(site, "name", "doc_audit_event") == ["00000"]
    assert await sweep(site, (step,)) == [1]


@pytest.mark.parametrize("minutes", [1, 15, 10_080])
async def test_sweep_repeated_at_once_deletes_nothing_more(site: VirtualSite, minutes: int) -> None:
    """Two sweepers do no harm (O-74)."""
    steps = sweeper.auth_batches(minutes)
    assert await sweep(site, steps + steps) == [0] * 10
