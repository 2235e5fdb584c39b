"""Bulk replays: each delivery is replayed like a single one (B-257, B-251, O-80).

The module has more than 500 lines because replays of renamed documents use the same kit.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from fw_actors.errors import (
    BadRequestError,
    ConflictError,
    NotFoundError,
    PermissionDeniedError,
)
from fw_actors.webhooks import replay
from fw_actors.webhooks.replay import ReplayRun, RunOutcomes, outcomes_of
from tests.fw_actors.virtual_site_kit import VirtualSite
from tests.fw_actors.webhooks.claim_kit import ScriptedDeliveries
from tests.plans import accesses, unsought

FAILED = [["status", "=", "Failed"]]


class ScriptedBulkReplays(ScriptedDeliveries):
    """Scripted deliveries that bulk replays replay."""

    async def failed(self, count: int) -> list[str]:
        """Make one Webhook, and so many deliveries to it that failed; return their ids."""
        await self.site.subscribe()

        def emit(fw: Any) -> list[str]:
            emitted = [fw.webhooks.emit("note.shared", {"n": n}) for n in range(count)]
            return [name for each in emitted for name in each["deliveries"]]

        made = await self.site.do(emit)
        await self.attempt("REFUSED")
        return list(made)

    async def begin(self, filters: list[Any] = FAILED, user: str = "boss") -> Any:
        site = self.site.site
        return await site.write(user, lambda fw: site.bulk.begin(fw, filters), "r-9")

    async def step(self) -> int:
        """Carry out one batch; return its size."""
        site = self.site.site
        run = await site.store.read(site.bulk.running)
        assert run is not None
        names = await site.read(run.user, lambda fw: site.bulk.batch(fw, run))
        await site.write(run.user, lambda fw: site.bulk.carry_out(fw, run, names), run.request_id)
        return len(names)

    async def run(self) -> ReplayRun:
        site = self.site.site
        run = await site.read("boss", site.bulk.progress)
        assert run is not None
        return run

    async def states(self) -> list[str]:
        return [row["status"] for row in await self.site.deliveries()]


@pytest.fixture
async def bulk(site: VirtualSite) -> ScriptedBulkReplays:
    await site.add_account("boss", "System Manager", password=None)
    return ScriptedBulkReplays(site)


@pytest.mark.usefixtures("on_both_stores")
async def test_bulk_replay_restarts_matching_deliveries_in_audited_batches(
    bulk: ScriptedBulkReplays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each replay writes an Audit Event (O-80, B-257)."""
    monkeypatch.setattr(replay, "BATCH", 2)
    deliveries = await bulk.failed(5)
    begun = await bulk.begin()
    assert (begun.state, begun.total, begun.replayed) == ("running", 5, 0)
    assert [await bulk.step() for _ in range(4)] == [2, 2, 1, 0]
    assert await bulk.states() == ["Queued"] * 5
    run = await bulk.run()
    assert (run.state, run.replayed, run.refused, run.cursor) == ("done", 5, {}, max(deliveries))
    assert run.ended is not None
    audit = await bulk.audit()
    assert {(action, actor, request) for action, _, _, actor, request in audit} == {
        ("webhook.replay", "boss", "r-9")
    }
    assert sorted(target for _, target, *_ in audit) == sorted(deliveries)


async def test_bulk_replay_skips_unmatched_and_later_deliveries(bulk: ScriptedBulkReplays) -> None:
    (kept, *_) = await bulk.failed(3)
    await bulk.begin([["name", "!=", kept]])
    await bulk.site.do(lambda fw: fw.webhooks.emit("note.shared", {"n": "later"}))
    await bulk.attempt("REFUSED")
    assert [await bulk.step() for _ in range(2)] == [2, 0]
    rows = {row["name"]: row["status"] for row in await bulk.site.deliveries()}
    assert rows[kept] == "Failed"
    assert sorted(rows.values()) == ["Failed", "Failed", "Queued", "Queued"]


async def test_bulk_replay_does_not_repeat_delivery_failing_again(
    bulk: ScriptedBulkReplays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "BATCH", 1)
    await bulk.failed(2)
    await bulk.begin()
    for left in (1, 1, 0):
        assert await bulk.step() == left
        await bulk.attempt("REFUSED")
    assert await bulk.states() == ["Failed", "Failed"]
    assert (await bulk.run()).replayed == 2


async def test_bulk_replay_counts_refusals_by_reason_and_continues(
    bulk: ScriptedBulkReplays,
) -> None:
    """A delivery whose Webhook was deleted is refused, without an Audit Event (B-253, O-82)."""
    await bulk.failed(2)
    gone = await bulk.site.do(lambda fw: fw.get_all("Webhook")[0]["name"])
    await bulk.site.do(lambda fw: fw.get_doc("Webhook", gone).delete())
    await bulk.failed(1)
    await bulk.begin()
    await bulk.step()
    run = await bulk.run()
    assert (run.replayed, run.refused) == (1, {"The Webhook of this delivery was deleted.": 2})
    assert [action for action, *_ in await bulk.audit()] == ["webhook.replay"]


async def test_bulk_replay_counts_bodies_erased_at_any_time_together(
    bulk: ScriptedBulkReplays,
) -> None:
    """Of each erasure the time differs, and only a few reasons are counted (B-361, O-300)."""
    await bulk.failed(9)
    names = [row["name"] for row in await bulk.site.deliveries()]
    for seconds, name in enumerate(names):
        await bulk.site.sql(
            f"UPDATE doc_webhook_delivery SET erased = creation + {seconds * 1000}"
            f" WHERE name = '{name}'"
        )
    await bulk.begin()
    await bulk.step()
    erased = "The body of this delivery was erased; it cannot be sent again."
    assert (await bulk.run()).refused == {erased: 9}


async def test_bulk_replay_ignores_batch_carried_out_twice(bulk: ScriptedBulkReplays) -> None:
    await bulk.failed(2)
    run = await bulk.begin()
    site = bulk.site.site
    names = await site.read("boss", lambda fw: site.bulk.batch(fw, run))
    for _ in range(2):
        await site.write("boss", lambda fw: site.bulk.carry_out(fw, run, names))
    assert (await bulk.run()).replayed == 2
    assert len(await bulk.audit()) == 2


async def test_bulk_replay_stop_leaves_remaining_deliveries_failed(
    bulk: ScriptedBulkReplays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "BATCH", 1)
    await bulk.failed(3)
    run = await bulk.begin()
    await bulk.step()
    site = bulk.site.site
    stopped = await site.write("boss", site.bulk.stop)
    assert stopped is not None
    assert (stopped.state, stopped.replayed) == ("stopped", 1)
    await site.write("boss", lambda fw: site.bulk.carry_out(fw, run, ["msg_x"]))
    assert sorted(await bulk.states()) == ["Failed", "Failed", "Queued"]
    assert (await bulk.begin()).state == "running"  # the next one may begin
    assert await bulk.site.sql("SELECT count(*) FROM fw_bulk_replay") == [(2,)]


async def test_bulk_replay_ignores_batch_after_stop(bulk: ScriptedBulkReplays) -> None:
    """Decisions, Console, `stopReplay`: late results leave the run stopped."""
    await bulk.failed(2)
    run = await bulk.begin()
    site = bulk.site.site
    names = await site.read("boss", lambda fw: site.bulk.batch(fw, run))
    await site.write("boss", site.bulk.stop)
    for late in (names, []):
        await site.write("boss", partial(site.bulk.carry_out, run=run, deliveries=late))
    assert ((await bulk.run()).state, await bulk.states()) == ("stopped", ["Failed"] * 2)


@pytest.mark.parametrize("late", ["its end", "a defect"])
async def test_bulk_replay_late_result_does_not_end_next_run(
    bulk: ScriptedBulkReplays, late: str
) -> None:
    """A run sends again all deliveries that match (B-257)."""
    await bulk.failed(1)
    before = await bulk.begin()
    site = bulk.site.site
    await site.write("boss", site.bulk.stop)
    await bulk.begin()
    if late == "its end":
        await site.write("boss", lambda fw: site.bulk.carry_out(fw, before, []))
    else:
        await site.store.write(lambda tx: site.bulk.give_up(tx, before, "a defect"))
    assert (await bulk.run()).state == "running"
    assert await bulk.step() == 1


async def test_bulk_replay_refuses_second_run_in_progress(bulk: ScriptedBulkReplays) -> None:
    """B-258."""
    await bulk.failed(1)
    await bulk.begin()
    with pytest.raises(ConflictError, match="started by boss"):
        await bulk.begin()


@pytest.mark.parametrize("filters", [[], [["colour", "=", "red"]], [["status", "~", "x"]], [5]])
async def test_bulk_replay_refuses_missing_or_unknown_filters(
    bulk: ScriptedBulkReplays, filters: list[Any]
) -> None:
    with pytest.raises(BadRequestError):
        await bulk.begin(filters)
    assert await bulk.site.site.read("boss", bulk.site.site.bulk.progress) is None


@pytest.mark.parametrize("role", ["Event Publisher", "System Manager"])
@pytest.mark.usefixtures("on_both_stores")
async def test_bulk_replay_denies_unauthorized_user_on_record(
    bulk: ScriptedBulkReplays, role: str
) -> None:
    """A user without the role, or with access scopes, is Denied, without detail (O-81, B-255)."""
    site = bulk.site
    await site.add_account("other", role, password=None)
    if role == "System Manager":
        scope = {"user": "other", "allow": "User", "for_value": "boss"}
        await site.do(lambda fw: fw.new_doc("User Permission", **scope).insert())
    await bulk.failed(1)
    assert isinstance(await bulk.begin(user="other"), PermissionDeniedError)
    assert await bulk.audit() == [("Denied", "Webhook Delivery", None, "other", "r-9")]
    for operation in (site.site.bulk.progress, site.site.bulk.stop):
        with pytest.raises(PermissionDeniedError):
            await site.site.write("other", operation)
    assert await bulk.states() == ["Failed"]


async def test_bulk_replay_fails_once_its_user_loses_role(bulk: ScriptedBulkReplays) -> None:
    await bulk.site.add_account("second", "System Manager", password=None)
    await bulk.failed(1)
    await bulk.begin()

    def demote(fw: Any) -> None:
        boss = fw.get_doc("User", "boss")
        boss.roles = []
        boss.save()

    await bulk.site.do(demote)
    await bulk.step()
    site = bulk.site.site
    run = await site.read("second", site.bulk.progress)
    assert run is not None
    assert (run.state, run.replayed) == ("failed", 0)
    assert "System Manager" in run.error
    assert json.loads(run.filters) == FAILED
    assert [action for action, *_ in await bulk.audit()] == ["Denied"]


@pytest.mark.parametrize("field", ["status", "webhook", "event"])
async def test_bulk_replay_batch_reads_name_index_without_sorting(
    bulk: ScriptedBulkReplays, field: str
) -> None:
    """With an index of the filter each batch would sort all matching rows."""
    await bulk.failed(1)
    run = await bulk.begin([[field, "=", "Failed"]])
    site = bulk.site.site
    found = await site.read("boss", lambda fw: accesses(fw.tx, lambda: site.bulk.batch(fw, run)))
    assert [each.sought for each in found] == [{"name"}]  # a sort would be one more
    assert unsought(found, doc_webhook_delivery="name") == []


async def outcomes(bulk: ScriptedBulkReplays, run: str, limit: int = 4) -> RunOutcomes:
    site = bulk.site.site
    return await site.read("boss", lambda fw: outcomes_of(fw.tx, site.bulk.get(fw, run), limit))


@pytest.mark.usefixtures("on_both_stores")
async def test_run_outcomes_follow_states_of_deliveries(bulk: ScriptedBulkReplays) -> None:
    """A delivery arrived, failed again, is open, or was replayed again or deleted (O-300)."""
    first, *_ = await bulk.failed(4)
    run = await bulk.begin()
    assert await outcomes(bulk, run.id) == RunOutcomes(0, 0, 0, 0, more=False)
    await bulk.step()
    assert await outcomes(bulk, run.id) == RunOutcomes(0, 0, 4, 0, more=False)
    await bulk.attempt("REFUSED", limit=1)
    await bulk.attempt("DELIVERED", limit=1)
    assert await outcomes(bulk, run.id) == RunOutcomes(1, 1, 2, 0, more=False)
    await bulk.attempt("DELIVERED")
    assert (await outcomes(bulk, run.id)).arrived == 3
    await bulk.replay(first)
    assert await outcomes(bulk, run.id) == RunOutcomes(3, 0, 0, 1, more=False)


async def test_run_outcomes_are_counted_up_to_limit(bulk: ScriptedBulkReplays) -> None:
    """Beyond the limit each number is a minimum (O-300)."""
    await bulk.failed(3)
    run = await bulk.begin()
    await bulk.step()
    assert await outcomes(bulk, run.id, 2) == RunOutcomes(0, 0, 3, 0, more=True)


@pytest.mark.usefixtures("on_both_stores")
async def test_run_outcomes_are_counted_by_run_index(bulk: ScriptedBulkReplays) -> None:
    """No table is scanned as a whole (O-300)."""
    await bulk.failed(1)
    run = await bulk.begin()
    found = await bulk.site.site.store.write(
        lambda tx: accesses(tx, lambda: outcomes_of(tx, run, 5))
    )
    assert unsought(found, doc_webhook_delivery="replay_run") == []


@pytest.mark.usefixtures("on_both_stores")
async def test_command_replay_run_is_kept_and_skipped_by_service(bulk: ScriptedBulkReplays) -> None:
    """A run of `fw webhooks replay` shows as stopped until it is done (O-301)."""
    names = await bulk.failed(3)
    site = bulk.site.site
    run = await site.write("boss", lambda fw: site.bulk.begin_foreground(fw, FAILED, 3))
    assert await site.store.read(site.bulk.running) is None, "the service leaves it alone"
    for part, state in ((names[:2], "stopped"), ([names[2], "msg_x"], "done")):
        await site.write("boss", partial(_replay_part, bulk, run, part, last=state == "done"), "r")
        assert (await bulk.run()).state == state
    kept = await bulk.run()
    assert (kept.id, kept.replayed, kept.refused) == (run.id, 3, {"It no longer exists.": 1})
    assert (await outcomes(bulk, run.id)).open == 3


def _replay_part(
    bulk: ScriptedBulkReplays, run: ReplayRun, names: list[str], fw: Any, *, last: bool
) -> None:
    bulk.site.site.bulk.replay_part(fw, run, names, last=last)


@pytest.mark.usefixtures("on_both_stores")
async def test_bulk_replay_keeps_20_newest_runs_and_running_run(bulk: ScriptedBulkReplays) -> None:
    """The last 20 runs and the run in progress are kept (O-301)."""
    running = await bulk.begin()
    site = bulk.site.site
    runs = []
    for _ in range(21):
        runs.append(await site.write("boss", lambda fw: site.bulk.begin_foreground(fw, FAILED, 0)))
        await bulk.site.sql("UPDATE fw_bulk_replay SET begun = begun - 1")
    kept = await site.read("boss", site.bulk.all)
    assert {each.id for each in kept} == {each.id for each in runs[1:]}
    assert (await bulk.run()).id == running.id
    with pytest.raises(NotFoundError, match="the last 20 are kept"):
        await outcomes(bulk, runs[0].id)


async def test_bulk_replay_list_requires_permission_to_replay(bulk: ScriptedBulkReplays) -> None:
    """Only System Managers without access scopes replay (B-255)."""
    await bulk.site.add_account("other", "Event Publisher", password=None)
    site = bulk.site.site
    for operation in (site.bulk.all, lambda fw: site.bulk.get(fw, "x")):
        with pytest.raises(PermissionDeniedError):
            await site.read("other", operation)


async def test_bulk_replay_of_user_renamed_during_a_batch_continues(
    bulk: ScriptedBulkReplays,
) -> None:
    """Neither does the batch run as another user of the name, nor does the run fail (B-257)."""
    deliveries = await bulk.failed(1)
    await bulk.begin()
    site, run = bulk.site.site, await bulk.run()
    await bulk.site.do(lambda fw: fw.get_doc("User", "boss").rename("chief"))
    await bulk.site.add_account("boss", "System Manager", password=None, email="next@x.test")
    await site.write("boss", lambda fw: site.bulk.carry_out(fw, run, deliveries))
    await site.store.write(lambda tx: site.bulk.give_up(tx, run, "There is no enabled user boss."))
    assert await bulk.states() == ["Failed"]
    assert [await bulk.step(), await bulk.step()] == [1, 0]
    after = await bulk.run()
    assert (after.state, after.user, after.replayed) == ("done", "chief", 1)


@pytest.mark.usefixtures("on_both_stores")
@pytest.mark.parametrize("how", ["=", "in"])
async def test_bulk_replay_includes_all_deliveries_of_webhook_renamed_meanwhile(
    bulk: ScriptedBulkReplays, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Each delivery that matched at the start is replayed once (B-257)."""
    monkeypatch.setattr(replay, "BATCH", 2)
    await bulk.failed(3)
    webhook = await bulk.site.do(lambda fw: fw.get_all("Webhook")[0]["name"])
    await bulk.begin([["webhook", how, webhook if how == "=" else ["other", webhook]]])
    assert await bulk.step() == 2
    await bulk.site.do(lambda fw: fw.get_doc("Webhook", webhook).rename("billing"))
    assert [await bulk.step(), await bulk.step()] == [1, 0]
    run = await bulk.run()
    assert (run.state, run.replayed) == ("done", 3)
    assert "billing" in run.filters


@pytest.mark.parametrize(
    ("how", "value", "matching"),
    [("=", "erp", 2), ("in", ["other", "erp"], 2), ("!=", "note.shared", 2), ("!=", "new", 2)],
)
async def test_bulk_replay_by_several_fields_follows_rename_of_webhook(
    bulk: ScriptedBulkReplays, how: str, value: object, matching: int
) -> None:
    """A filter may compare the Webhook and other fields with one name (B-257)."""
    await bulk.failed(2)
    webhook = await bulk.site.do(lambda fw: fw.get_all("Webhook")[0]["name"])
    await bulk.site.do(lambda fw: fw.get_doc("Webhook", webhook).rename("erp"))
    await bulk.begin([["webhook", "=", "erp"], [["webhook", "event"], how, value]])
    await bulk.site.do(lambda fw: fw.get_doc("Webhook", "erp").rename("billing"))
    await bulk.site.do(lambda fw: fw.get_doc("Webhook", "billing").rename("note.shared"))
    assert await bulk.step() == matching
    assert (await bulk.run()).selection == [
        ["webhook", "=", "erp"], [["webhook", "event"], how, value],
    ]  # fmt: skip


async def test_bulk_replay_by_several_fields_follows_rename_of_document(
    bulk: ScriptedBulkReplays,
) -> None:
    """A filter may compare the document and other fields with one name (B-257)."""
    note = await bulk.site.do(lambda fw: fw.new_doc("Note", title="a").insert().name)
    await bulk.site.subscribe()
    await bulk.site.do(
        lambda fw: fw.webhooks.emit("note.shared", {}, reference={"doctype": "Note", "name": note})
    )
    await bulk.attempt("REFUSED")
    about = [["reference_name", "event"], "=", note]
    await bulk.begin([["reference_doctype", "=", "Note"], about])
    await bulk.site.do(lambda fw: fw.get_doc("Note", note).rename("second"))
    assert [await bulk.step(), await bulk.step()] == [1, 0]


async def test_bulk_replay_filters_of_other_forms_survive_rename(bulk: ScriptedBulkReplays) -> None:
    """A filter may name several fields, and may have no value (B-257)."""
    await bulk.failed(1)
    webhook = await bulk.site.do(lambda fw: fw.get_all("Webhook")[0]["name"])
    others = [["sent", "is null"], [["event", "error"], "like", "%e%"], ["event", "!=", webhook]]
    await bulk.begin([*others, ["webhook", "not in", ["other"]]])
    await bulk.site.do(lambda fw: fw.get_doc("Webhook", webhook).rename("billing"))
    assert json.loads((await bulk.run()).filters) == [*others, ["webhook", "not in", ["other"]]]
    assert [await bulk.step(), await bulk.step()] == [1, 0]


async def test_finished_bulk_replay_follows_rename_of_its_webhook(
    bulk: ScriptedBulkReplays,
) -> None:
    """The page of a Webhook shows the replays about it by their filters (O-301)."""
    await bulk.failed(1)
    webhook = await bulk.site.do(lambda fw: fw.get_all("Webhook")[0]["name"])
    await bulk.begin([["webhook", "=", webhook]])
    assert [await bulk.step(), await bulk.step()] == [1, 0]
    await bulk.site.do(lambda fw: fw.get_doc("Webhook", webhook).rename("billing"))
    assert json.loads((await bulk.run()).filters) == [["webhook", "=", "billing"]]


async def test_bulk_replay_leaves_out_excluded_webhook_after_its_rename(
    bulk: ScriptedBulkReplays,
) -> None:
    """Deliveries that did not match at the start are not replayed (B-257)."""
    await bulk.failed(1)
    webhook = await bulk.site.do(lambda fw: fw.get_all("Webhook")[0]["name"])
    await bulk.begin([["webhook", "!=", webhook]])
    await bulk.site.do(lambda fw: fw.get_doc("Webhook", webhook).rename("billing"))
    assert await bulk.step() == 0
    assert await bulk.states() == ["Failed"]


@pytest.mark.parametrize("about", [["=", "Note"], ["in", ["Note"]]])
async def test_bulk_replay_by_reference_includes_document_renamed_meanwhile(
    bulk: ScriptedBulkReplays, about: list[Any]
) -> None:
    """The deliveries follow the document (B-184), and so does the replay (B-257)."""
    note = await bulk.site.do(lambda fw: fw.new_doc("Note", title="first").insert().name)
    await bulk.site.subscribe()
    await bulk.site.do(
        lambda fw: fw.webhooks.emit("note.shared", {}, reference={"doctype": "Note", "name": note})
    )
    await bulk.attempt("REFUSED")
    await bulk.begin([["reference_doctype", *about], ["reference_name", "=", note]])
    await bulk.site.do(lambda fw: fw.get_doc("Note", note).rename("second"))
    assert [await bulk.step(), await bulk.step()] == [1, 0]


@pytest.mark.parametrize(
    ("how", "value", "matching"),
    [
        ("=", "first", 1), ("in", ["other", "first"], 1), ("!=", "first", 1), ("like", "fir%", 0),
    ],
)  # fmt: skip
async def test_bulk_replay_by_name_alone_follows_rename_of_document(
    bulk: ScriptedBulkReplays, how: str, value: object, matching: int
) -> None:
    """The name may be that of documents of several DocTypes; a pattern names none (B-257)."""
    note = await bulk.site.do(lambda fw: fw.new_doc("Note", title="a").insert().name)
    await bulk.site.do(lambda fw: fw.get_doc("Note", note).rename("first"))
    await bulk.site.subscribe()

    def share(fw: Any) -> None:
        for name in ("first", "another"):
            fw.webhooks.emit("note.shared", {}, reference={"doctype": "Note", "name": name})

    await bulk.site.do(share)
    await bulk.attempt("REFUSED")
    await bulk.begin([["reference_name", how, value]])
    await bulk.site.do(lambda fw: fw.get_doc("Note", "first").rename("second"))
    assert await bulk.step() == matching


async def replayed_documents(
    bulk: ScriptedBulkReplays, filters: list[Any], *renames: tuple[str, str, str]
) -> set[tuple[str, str]]:
    """Return what documents a replay is about that begins before renames; each Note and Role that
    these name has a delivery."""
    documents = {("Note", "first"), ("Role", "first"), ("Role", "second"), ("Note", "third"),
                 ("Role", "third")}  # fmt: skip

    def share(fw: Any) -> None:
        for doctype, name in sorted(documents):
            note = fw.new_doc("Note", title=name) if doctype == "Note" else None
            doc = (note or fw.new_doc("Role", name=name)).insert()
            if doc.name != name:
                doc.rename(name)
            fw.webhooks.emit("note.shared", {}, reference={"doctype": doctype, "name": name})

    await bulk.site.subscribe()
    await bulk.site.do(share)
    await bulk.attempt("REFUSED")
    before = {
        row["name"]: (row["reference_doctype"], row["reference_name"])
        for row in await bulk.site.deliveries()
    }
    await bulk.begin(filters)
    for doctype, old, new in renames:

        def rename(fw: Any, doctype: str = doctype, old: str = old, new: str = new) -> None:
            fw.get_doc(doctype, old).rename(new)

        await bulk.site.do(rename)
    await bulk.step()
    queued = {row["name"] for row in await bulk.site.deliveries() if row["status"] == "Queued"}
    return {before[name] for name in queued}


@pytest.mark.parametrize(
    ("renames", "how", "value", "replayed"),
    [
        # The new name is that of another DocType's document.
        ([("Note", "first", "second")], "=", "first", {"Note first", "Role first"}),
        ([("Note", "first", "second")], "in", ["first"], {"Note first", "Role first"}),
        ([("Note", "first", "second")], "!=", "first",
         {"Role second", "Note third", "Role third"}),
        ([("Note", "first", "second")], "not in", ["first"],
         {"Role second", "Note third", "Role third"}),
        # A document gets a name that selects others.
        ([("Note", "first", "new"), ("Role", "second", "new")], "=", "first",
         {"Note first", "Role first"}),
        ([("Note", "first", "new"), ("Note", "third", "first")], "=", "first",
         {"Note first", "Role first"}),
        # And back.
        ([("Note", "first", "new"), ("Note", "new", "first")], "=", "first",
         {"Note first", "Role first"}),
        ([("Note", "third", "new"), ("Note", "new", "newer")], "in", ["third"],
         {"Note third", "Role third"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("about", [[["reference_doctype", "in", ["Note", "Role"]]], []])
async def test_bulk_replay_of_several_doctypes_takes_the_documents_of_its_start(
    bulk: ScriptedBulkReplays,
    about: list[Any],
    renames: list[tuple[str, str, str]],
    how: str,
    value: object,
    replayed: set[str],
) -> None:
    """Names then, not names now, decide which deliveries match (B-257)."""
    filters = [*about, ["reference_name", how, value]]
    found = await replayed_documents(bulk, filters, *renames)
    assert {" ".join(each) for each in found} == replayed
    assert (await bulk.run()).selection == filters


async def test_batch_read_before_rename_of_webhook_does_not_end_the_replay(
    bulk: ScriptedBulkReplays,
) -> None:
    """The batch was selected by filters that no longer apply (B-257)."""
    await bulk.failed(1)
    webhook = await bulk.site.do(lambda fw: fw.get_all("Webhook")[0]["name"])
    run = await bulk.begin([["webhook", "=", webhook]])
    await bulk.site.do(lambda fw: fw.get_doc("Webhook", webhook).rename("billing"))
    site = bulk.site.site
    names = await site.read("boss", lambda fw: site.bulk.batch(fw, run))
    await site.write("boss", lambda fw: site.bulk.carry_out(fw, run, names))
    assert (await bulk.run()).state == "running"
    assert [await bulk.step(), await bulk.step()] == [1, 0]


@pytest.mark.usefixtures("on_both_stores")
async def test_bulk_replay_of_deleted_user_does_not_run_as_another_one_of_the_name(
    bulk: ScriptedBulkReplays,
) -> None:
    """It is resumed after a restart, which may be much later (A-21, B-257)."""
    await bulk.site.add_account("second", "System Manager", password=None)
    await bulk.failed(1)
    await bulk.begin()
    await bulk.site.do(lambda fw: fw.get_doc("User", "boss").delete())
    await bulk.site.add_account("boss", "System Manager", password=None)
    assert await bulk.site.site.store.read(bulk.site.site.bulk.running) is None
    run = await bulk.run()
    assert (run.state, run.user, run.error) == ("failed", "boss", "The user boss was deleted.")
