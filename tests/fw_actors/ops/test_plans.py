"""The queries of every request, attempt, claim and sweep use an index, on both stores.

A test explains each statement (O-21, B-237). The statements are those that the service runs,
recorded while it runs them (`tests.plans`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from fw_actors.access import attempts, known_origins, links, sessions
from fw_actors.access.accounts import Accounts
from fw_actors.access.links import LinkKind
from fw_actors.access.sessions import Sessions
from fw_actors.actors import sweeper
from fw_actors.documents.query import list_page
from fw_actors.errors import FwError
from fw_actors.ops.console_facts import ConsoleFacts, FirstDeliveries, locked_identifiers
from fw_actors.ops.doctor.delivery import receiver_backlogs, webhook_facts
from fw_actors.rules.delivery import Backoff, DeliveryStatus, OutcomeKind
from fw_actors.rules.findings import ServiceState
from fw_actors.rules.identifiers import parse_api_key
from fw_actors.rules.lockout import Budget
from fw_actors.store import Tx, jobs
from fw_actors.webhooks.attempts import (
    archive_before_replay,
    attempts_of,
    attempts_of_each,
    delete_attempts,
    keep_before_outcomes,
)
from fw_actors.webhooks.deliveries import AttemptOutcome, Deliveries
from fw_actors.webhooks.health import (
    add_tallies,
    counts_by_hour,
    counts_of_a_day,
    drop_old_hours,
    health_of,
    tallies_of,
)
from tests.fw_actors.virtual_site_kit import VirtualSite
from tests.fw_actors.webhooks.claim_kit import ClaimingProcess, UnlimitedSlots
from tests.plans import Access, accesses, unsought

pytestmark = pytest.mark.usefixtures("on_both_stores")

BUDGET = Budget(5, 900_000, locks=True)
KEY = b"a counter of 32 bytes, like all!"
Work = Callable[[Tx], object]


async def plans_of(site: VirtualSite, *works: Work) -> list[Access]:
    """Explain all that the functions run, one after the other in one transaction."""

    def explained(tx: Tx) -> list[Access]:
        found: list[Access] = []
        for work in works:
            found += accesses(tx, lambda work=work: _whatever_comes(work, tx))  # type: ignore[misc]
        return found

    return await site.site.store.write(explained)


def _whatever_comes(work: Work, tx: Tx) -> None:
    with suppress(FwError):  # an unknown session or link runs the same query as a known one
        work(tx)


async def test_sign_in_attempt_reads_its_own_counter_only(site: VirtualSite) -> None:
    found = await plans_of(
        site,
        lambda tx: attempts.wait_of(tx, KEY, BUDGET),
        lambda tx: attempts.charge(tx, "a charge", KEY, BUDGET),
        lambda tx: attempts.settle_failure(tx, "a charge", KEY, BUDGET),
        lambda tx: attempts.charge(tx, "another", KEY, Budget(0, 900_000, locks=True)),
        lambda tx: attempts.clear(tx, "a charge", KEY),
        lambda tx: attempts.release(tx, "a charge"),
        lambda tx: attempts.unlock(tx, KEY),
    )
    by_its_index = {"fw_login_attempt": "key id"}
    if any(each.table == "other" for each in found):  # SQLite shows the alias
        by_its_index["other"] = "key"
    assert unsought(found, **by_its_index) == []
    assert not any("TEMP B-TREE" in each.step for each in found), "the index has the order"


async def test_lockouts_are_found_among_the_locked_counters_only(site: VirtualSite) -> None:
    """However many attempts an attack has made (H-200)."""
    opened = site.site
    found = await plans_of(site, locked_identifiers, ConsoleFacts(opened.installation_key).read)
    assert unsought(found, fw_login_attempt="until") == []


@pytest.mark.parametrize("leased", [True, False])
async def test_first_deliveries_are_read_by_webhook(site: VirtualSite, leased: bool) -> None:
    """However many wait (C-118)."""
    await site.subscribe()
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    if leased:
        await ClaimingProcess(site).claim()
    found = await plans_of(site, FirstDeliveries(leased=leased).read)
    assert unsought(found, fw_job="queue", doc_webhook_delivery="name") == []
    *_, jobs_of_webhook = [each for each in found if each.table == "fw_job"]
    assert jobs_of_webhook.sought >= {"queue", "partition"}, jobs_of_webhook.step


async def test_network_attempts_are_counted_by_their_index(site: VirtualSite) -> None:
    networks = attempts.NetworkCounters(b"the /56", b"the /48")
    found = await plans_of(
        site,
        lambda tx: attempts.wait_of(tx, KEY, BUDGET, networks),
        lambda tx: attempts.charge(tx, "a charge", KEY, BUDGET, networks),
        lambda tx: known_origins.address_seen(tx, "wendy", b"an address"),
    )
    counters = {"fw_login_attempt": "key network_56 network_48"}
    if any(each.table == "other" for each in found):  # SQLite shows the alias
        counters["other"] = "key"
    assert unsought(found, **counters, fw_known_address="user") == []


async def test_account_is_found_by_identifier_and_rights_by_name(
    site: VirtualSite,
) -> None:
    accounts = Accounts()
    found = await plans_of(
        site,
        lambda tx: accounts.find(tx, "wendy"),
        lambda tx: accounts.roles(tx, "wendy"),
        lambda tx: accounts.rights(tx, "wendy"),
    )
    assert (
        unsought(
            found,
            fw_identifier="key",
            fw_password="user",
            doc_user="name",
            doc_has_role="parent",
            doc_user_permission="user",
        )
        == []
    )


async def test_session_is_found_by_sid_hash_or_handle(
    site: VirtualSite,
) -> None:
    live = Sessions(1)
    found = await plans_of(
        site,
        lambda tx: live.live(tx, "a sid"),
        lambda tx: sessions.end(tx, "a sid"),
        lambda tx: sessions.record_use(tx, "a handle"),
        lambda tx: sessions.of_user(tx, "wendy", 1),
        lambda tx: sessions.end_all(tx, "wendy", idle_days=0),
        lambda tx: sessions.revoke(tx, "wendy", "a handle", 1),
    )
    sought = {"fw_session": "sid_hash id user", "doc_user": "name", "doc_has_role": "parent"}
    assert unsought(found, **sought) == []


async def test_api_key_is_found_by_its_id(site: VirtualSite) -> None:
    keys = site.site.api_keys
    key = parse_api_key(f"fwk_{'a' * 12}_{'b' * 32}")
    assert key is not None
    found = await plans_of(
        site, lambda tx: keys.live(tx, key), lambda tx: keys.record_use(tx, "a key")
    )
    sought = {"doc_api_key": "name", "doc_user": "name", "doc_has_role": "parent"}
    assert unsought(found, fw_api_key="id", **sought) == []


async def test_link_is_found_by_the_hash_of_its_token(site: VirtualSite) -> None:
    found = await plans_of(
        site,
        lambda tx: links.spend(tx, LinkKind.RECOVERY, "a token"),
        lambda tx: links.end(tx, "wendy"),
    )
    assert unsought(found, fw_token="hash user") == []


async def test_jobs_are_claimed_by_queue_and_settled_by_number(
    site: VirtualSite,
) -> None:
    found = await plans_of(
        site,
        lambda tx: jobs.claim(tx, "mail", "", 5, 1000, "a token"),
        lambda tx: jobs.lease(tx, "mail", "", 5, 1000, "a token"),
        lambda tx: jobs.heads(tx, "mail"),
        lambda tx: jobs.next_due(tx, "mail", ""),
        lambda tx: jobs.finish(tx, 1, "a token"),
        lambda tx: jobs.finish_as(tx, 1, "a token"),
        lambda tx: jobs.retry(tx, 1, "a token", 0, ""),
        lambda tx: jobs.fail(tx, 1, "a token", ""),
        lambda tx: jobs.renew(tx, 1, "a token", 1000),
        lambda tx: jobs.release(tx, 1, "a token"),
        lambda tx: jobs.delete_held(tx, [1]),
        lambda tx: jobs.settle_all(tx, [jobs.Settlement(1, "a token", None, "")]),
    )
    assert unsought(found, fw_job="queue id rowid") == []


async def test_claim_and_outcomes_read_only_leased_deliveries(site: VirtualSite) -> None:
    """However many deliveries are finished or due."""
    deliveries = Deliveries(Backoff(30.0, 3600.0))
    await site.subscribe()
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    leased: list[Any] = []
    found = await plans_of(
        site,
        deliveries.warm_up_claims,
        lambda tx: leased.append(deliveries.claim(tx, UnlimitedSlots(), "a token")),
        lambda tx: deliveries.settle_all(
            tx,
            deliveries.outcome_batch(
                [
                    (due, AttemptOutcome(OutcomeKind.DELIVERED, tx.now))
                    for due in leased[0].deliveries
                ]
            ),
        ),
    )
    assert len(leased[0].deliveries) == 1
    assert (
        unsought(found, fw_job="queue id rowid", doc_webhook="name", doc_webhook_delivery="name")
        == []
    )


async def test_webhook_state_is_read_by_the_webhook_keys(site: VirtualSite) -> None:
    """However many deliveries there are (B-243)."""
    name = await site.subscribe()
    service = ServiceState(running=True)
    found = await plans_of(
        site,
        lambda tx: add_tallies(tx, tallies_of([(name, DeliveryStatus.SENT, tx.now, "")])),
        lambda tx: health_of(tx, [name], service),
        lambda tx: counts_by_hour(tx, name, 24),
        counts_of_a_day,
        lambda tx: drop_old_hours(tx, 10),
    )
    by_their_keys = {
        "fw_job": "partition id rowid", "doc_webhook": "name",
        "fw_webhook_hour": "webhook hour", "fw_webhook_health": "webhook",
    }  # fmt: skip
    assert unsought(found, **by_their_keys) == []


async def test_attempts_are_stored_read_and_deleted_by_delivery(site: VirtualSite) -> None:
    """However many deliveries have some (B-185)."""
    await site.subscribe()
    emitted = await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    delivery = emitted["deliveries"][0]
    found = await plans_of(
        site,
        lambda tx: keep_before_outcomes(tx, [(1, "a token")]),
        lambda tx: archive_before_replay(tx, delivery, 6),
        lambda tx: attempts_of(tx, delivery),
        lambda tx: attempts_of_each(tx, [delivery]),
        lambda tx: delete_attempts(tx, [delivery]),
    )
    by_their_keys = {
        "fw_job": "id rowid", "doc_webhook_delivery": "name", "fw_delivery_attempt": "delivery"
    }  # fmt: skip
    assert unsought(found, **by_their_keys) == []


async def test_replay_and_sweep_lock_only_their_deliveries_and_jobs(site: VirtualSite) -> None:
    """However many deliveries and jobs there are (B-430)."""
    opened = site.site
    await site.subscribe()
    emitted = await site.do(lambda fw: fw.webhooks.emit_many([{"name": "note.shared", "data": {}}]))
    names = emitted[0]["deliveries"]
    step = sweeper.webhook_batches(30, 0)[0]
    await site.sql("UPDATE doc_webhook_delivery SET status = 'Failed', last_attempt = 1")
    found = await plans_of(
        site, lambda tx: opened.replays.replay_many(opened.handle(tx, "Administrator"), names)
    )
    await site.sql("UPDATE doc_webhook_delivery SET status = 'Failed'")
    found += await plans_of(site, step)
    assert await site.deliveries() == []
    by_their_keys = {
        "fw_job": "id subject", "doc_webhook": "name", "doc_webhook_delivery": "name status",
    }  # fmt: skip
    assert unsought(found, **by_their_keys) == []


async def test_insert_of_webhook_reads_last_delivery_of_its_name(site: VirtualSite) -> None:
    """However many a deleted Webhook of this name has left (B-253): they are not sorted."""
    values = {
        "name": "erp", "url": "https://receiver.test/", "event_type": "Custom",
        "custom_event": "a.b", "secret": "a signing secret",
    }  # fmt: skip
    found = await plans_of(
        site,
        lambda tx: site.site.handle(tx, "Administrator").new_doc("Webhook", **values).insert(),
    )
    read = [each for each in found if each.table == "doc_webhook_delivery"]
    assert read, found
    assert all("webhook" in each.sought for each in read), read
    assert not any("FOR ORDER BY" in each.step for each in found), found


async def test_sweep_reads_only_rows_that_it_deletes(site: VirtualSite) -> None:
    found = await plans_of(site, *sweeper.auth_batches(15), *sweeper.webhook_batches(30, 0)[:1])
    assert (
        unsought(
            found,
            fw_session="expires id",
            fw_token="expires hash",
            fw_login_attempt="at id",
            doc_webhook_delivery="status",
        )
        == []
    )


async def test_doctor_counts_failed_deliveries_of_a_day_by_their_time(
    site: VirtualSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many have failed before (O-131, O-132)."""
    found: list[Access] = []

    async def explained(fn: Work) -> object:
        return await site.site.store.write(lambda tx: _explained(tx, fn, found))

    monkeypatch.setattr(site.site.store, "read", explained)
    await webhook_facts(site.site)
    sought = [each.sought for each in found if each.table == "doc_webhook_delivery"]
    by_time = {"status", "last_attempt"}  # their number, and those of each Webhook
    assert [{"status"}, by_time, by_time] == sorted(sought, key=len), found


def _explained(tx: Tx, fn: Work, found: list[Access]) -> object:
    """Run a function in a transaction; add the accesses of its statements to `found`."""
    reported: list[object] = []
    found += accesses(tx, lambda: reported.append(fn(tx)))
    return reported[0]


async def test_doctor_reads_last_errors_of_receivers_from_their_webhooks(site: VirtualSite) -> None:
    """However many deliveries there are (O-142)."""
    await site.subscribe()
    await site.do(lambda fw: fw.webhooks.emit("note.shared", {}))
    found = await plans_of(site, receiver_backlogs)
    assert not [each for each in found if each.table == "doc_webhook_delivery"]
    assert unsought(found, fw_webhook_health="webhook") == []


async def test_rename_reads_only_deliveries_and_jobs_of_the_document(site: VirtualSite) -> None:
    """However many jobs wait (B-184): every other write waits for a rename."""
    await site.do(lambda fw: fw.new_doc("Notebook", title="ours").insert())

    def explained(fw: Any) -> list[Access]:
        return accesses(fw.tx, lambda: fw.get_doc("Notebook", "ours").rename("theirs"))

    found = await site.do(explained)
    locks_jobs = await site.site.store.read(lambda tx: tx.locks_rows)
    # PostgreSQL reads the all but empty table of jobs in their order, in which it locks them.
    by_their_keys = "subject ordering_key" + (" queue" if locks_jobs else "")
    assert unsought(found, fw_job=by_their_keys, doc_webhook_delivery="reference_name") == []


async def test_rename_of_a_user_reads_no_jobs_of_deliveries(site: VirtualSite) -> None:
    """However many wait (D-103)."""
    user = {"name": "wendy", "email": "wendy@example.org"}
    await site.do(lambda fw: fw.new_doc("User", **user).insert())

    def explained(fw: Any) -> list[Access]:
        return accesses(fw.tx, lambda: fw.get_doc("User", "wendy").rename("gwendolyn"))

    found = await site.do(explained)
    assert unsought(found, fw_job="subject ordering_key queue") == []


async def test_document_is_read_by_name_and_its_links_by_index(
    site: VirtualSite,
) -> None:
    """Each Link field has an index: a delete searches each for links to the document."""
    await site.do(lambda fw: fw.new_doc("Notebook", title="ours").insert())

    def explained(fw: Any) -> list[Access]:
        return [
            *accesses(fw.tx, lambda: fw.get_doc("Notebook", "ours")),
            *accesses(fw.tx, lambda: fw.get_all("Note", [["notebook", "=", "ours"]])),
            *accesses(fw.tx, lambda: fw.get_doc("Notebook", "ours").delete()),
        ]

    found = await site.do(explained)
    assert unsought(found, doc_notebook="name", doc_note="notebook") == []


@pytest.mark.parametrize(
    "filters",
    [
        [],
        [["status", "=", "Sent"]],
        [["webhook", "=", "a name"]],
        [["webhook", "=", "a name"], ["status", "=", "Failed"], ["creation", ">=", "2026-01-01"]],
    ],
)
async def test_delivery_pages_are_read_in_index_order(
    site: VirtualSite, filters: list[Any]
) -> None:
    """However many there are: no sort of all that match (H-200)."""
    fields = ["name", "event", "status"]

    def explained(fw: Any) -> list[Access]:
        page = partial(list_page, fw, "Webhook Delivery", filters, fields)
        return accesses(fw.tx, lambda: page(order_by=None, limit=50, start=0))

    found = await site.do(explained)
    read = [each for each in found if each.table == "doc_webhook_delivery"]
    filtered = {name for name, *_ in filters}
    assert all(each.sought >= filtered for each in read), read
    steps = [each.step for each in found]
    assert not any("Seq Scan" in step or "FOR ORDER BY" in step for step in steps), steps
