"""The client against a running service (H-221 to H-227)."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
import trio

from fw_client import (
    AsyncFwClient,
    BadCall,
    Conflict,
    Event,
    EventEmitted,
    EventRefused,
    Forbidden,
    FwClient,
    Invalid,
    NotFound,
    NotReached,
    RetryPolicy,
    Unauthenticated,
)
from tests.live_site import PASSWORD, SECRET, LiveReceiver, LiveSite, eventually

AT_ONCE = RetryPolicy(attempts=3, first_seconds=0)


class LosingAnswers(httpx.HTTPTransport):
    """A connection whose first answers are lost: the service has carried out the requests."""

    def __init__(self, lost: int = 1) -> None:
        super().__init__()
        self.left = lost

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        if self.left > 0:
            self.left -= 1
            response.read()
            raise httpx.ReadTimeout("the answer was lost", request=request)
        return response


@pytest.fixture(scope="module")
def receiver() -> Iterator[LiveReceiver]:
    with LiveReceiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def key(site: LiveSite, receiver: LiveReceiver) -> str:
    """A key of the manager, and a Webhook for `order.paid`."""
    with FwClient(site.url, user="admin", password=PASSWORD) as admin:
        webhook = {
            "url": receiver.url, "event_type": "Custom", "custom_event": "order.paid",
            "secret": SECRET,
        }  # fmt: skip
        assert admin.documents.insert("Webhook", webhook)["url"] == receiver.url
        return admin.api_keys.create("tests", days=1).key


@pytest.fixture
def admin(site: LiveSite, key: str) -> Iterator[FwClient]:
    with FwClient(site.url, key=key, retries=AT_ONCE) as client:
        yield client


def test_api_keys_are_created_listed_and_revoked(site: LiveSite) -> None:
    with FwClient(site.url, user="admin", password=PASSWORD) as ada:
        assert ada.profile().roles == ("System Manager",)
        made = ada.api_keys.create("mine")
        assert made.expires is None
        with FwClient(site.url, key=made.key) as program:
            assert program.profile() == ada.profile()
            with pytest.raises(Forbidden):
                program.api_keys.list()
            assert made.name in {each.name for each in ada.api_keys.list()}
            ada.api_keys.revoke(made.name)
            with pytest.raises(Unauthenticated):
                program.profile()


def test_sessions_and_profile_are_managed_by_their_user(site: LiveSite) -> None:
    with (
        FwClient(site.url, user="admin", password=PASSWORD) as ada,
        FwClient(site.url, user="admin", password=PASSWORD) as other,
    ):
        other.profile()
        changed = ada.update_profile(full_name="Ada", language="de")
        assert (changed.full_name, changed.language) == ("Ada", "de")
        assert ada.update_profile(language="").full_name == "Ada"
        (own,) = (each for each in ada.sessions.list() if each.current)
        (foreign,) = (each for each in other.sessions.list() if each.current)
        assert own.id != foreign.id
        assert foreign.created <= foreign.last_seen < foreign.expires
        ada.sessions.revoke(foreign.id)
        with pytest.raises(NotFound):
            ada.sessions.revoke(foreign.id)
        other.profile()
        assert ada.sessions.revoke_others() == len(ada.sessions.list()) == 1


def test_changed_password_is_used_for_next_sign_in(site: LiveSite, admin: FwClient) -> None:
    admin.users.invite("dan@example.test", name="dan")
    site.prepare("user", "passwd", "dan", "--password-stdin", stdin=PASSWORD)
    with FwClient(site.url, user="dan", password=PASSWORD) as dan:
        with pytest.raises(Unauthenticated):
            dan.change_password("wrong", "another decent passphrase")
        assert dan.change_password(PASSWORD, "another decent passphrase").sessions_ended == 0
        dan.api_keys.create("one")
        assert (dan.api_keys.revoke_all(), dan.api_keys.revoke_all()) == (1, 0)
        admin.users.revoke_sessions("dan")
        assert dan.profile().name == "dan"
    with pytest.raises(Forbidden):
        admin.change_password(PASSWORD, "another decent passphrase")


def test_ended_session_is_renewed(site: LiveSite, admin: FwClient) -> None:
    admin.users.invite("eve@example.test", name="eve", roles=["System Manager"])
    site.prepare("user", "passwd", "eve", "--password-stdin", stdin=PASSWORD)
    with FwClient(site.url, user="eve", password=PASSWORD) as eve:
        assert eve.profile().name == "eve"
        assert admin.users.revoke_sessions("eve").sessions_ended == 1
        assert eve.profile().name == "eve"


def test_documents_are_written_and_read(admin: FwClient) -> None:
    note = admin.documents.insert("Note", {"title": "Hello"})
    name = note["name"]
    saved = admin.documents.save("Note", name, {"title": "Bye", "modified": note["modified"]})
    assert admin.documents.get("Note", name) == saved
    with pytest.raises(Conflict):
        admin.documents.save("Note", name, {"title": "Late", "modified": note["modified"]})
    with pytest.raises(Invalid) as refused:
        admin.documents.insert("Note", {})
    assert refused.value.field == "title"
    assert admin.documents.export("Note", name)["title"] == "Bye"
    with pytest.raises(Conflict, match="changed meanwhile"):
        admin.documents.rename("Note", name, "late", modified=note["modified"])
    with pytest.raises(Conflict, match="changed meanwhile"):
        admin.documents.delete("Note", name, modified=note["modified"])
    renamed = admin.documents.rename("Note", name, f"{name}-2", modified=saved["modified"])
    name = renamed["name"]
    admin.documents.delete("Note", name, modified=renamed["modified"])
    with pytest.raises(NotFound):
        admin.documents.get("Note", name)


def test_documents_are_iterated_by_pages(admin: FwClient) -> None:
    made = {admin.documents.insert("Role", {"name": f"Clerk {n}"})["name"] for n in range(5)}
    mine = [("name", "like", "Clerk%")]
    assert admin.documents.list("Role", mine, limit=2).total == 5
    by_name = [row["name"] for row in admin.documents.iterate("Role", mine, page=2)]
    assert by_name == sorted(made)
    newest = admin.documents.iterate(
        "Role", mine, fields=["creation"], order_by="creation desc", page=2
    )
    times = [row["creation"] for row in newest]
    assert len(times) == 5
    assert times == sorted(times, reverse=True)


def test_iteration_skips_no_row_during_deletions(admin: FwClient) -> None:
    for n in range(4):
        admin.documents.insert("Role", {"name": f"Guard {n}"})
    seen = []
    for row in admin.documents.iterate("Role", [("name", "like", "Guard%")], page=2):
        seen.append(row["name"])
        admin.documents.delete("Role", row["name"])
    assert seen == [f"Guard {n}" for n in range(4)]


def test_emit_repeated_after_lost_response_delivers_once(
    site: LiveSite, key: str, receiver: LiveReceiver
) -> None:
    """H-225."""
    before = len(receiver.got)
    with (
        httpx.Client(transport=LosingAnswers()) as http,
        FwClient(site.url, key=key, retries=AT_ONCE, http=http) as client,
    ):
        emitted = client.webhooks.emit("order.paid", {"order": "SO-1"})
        assert emitted == EventEmitted(emitted.key, (), repeated=True)
        marker = client.webhooks.emit("order.paid", {"order": "marker"})
        eventually(lambda: marker.deliveries[0] in receiver.ids)
        deliveries = client.documents.list("Webhook Delivery", {"key": emitted.key})
    assert deliveries.total == 1
    eventually(lambda: len(receiver.got) == before + 2)


def test_deletion_repeated_after_lost_response_succeeds(site: LiveSite, key: str) -> None:
    transport = LosingAnswers(0)
    with (
        httpx.Client(transport=transport) as http,
        FwClient(site.url, key=key, retries=AT_ONCE, http=http) as client,
    ):
        name = client.documents.insert("Note", {"title": "x"})["name"]
        transport.left = 1
        client.documents.delete("Note", name)


def test_emit_many_returns_result_per_event(admin: FwClient) -> None:
    first = Event("order.paid", {"order": "SO-2"}, key="SO-2")
    events = [first, Event("doc.on_insert", {}), first, Event("nobody.listens", {})]
    taken, refused, known, unheard = admin.webhooks.emit_many(events)
    assert isinstance(taken, EventEmitted)
    assert len(taken.deliveries) == 1
    assert isinstance(refused, EventRefused)
    assert isinstance(refused.error, Invalid)
    assert known == EventEmitted("SO-2", (), repeated=True)
    assert isinstance(unheard, EventEmitted)
    assert (unheard.deliveries, unheard.repeated) == ((), False)


def test_delivery_is_explained_and_replayed(admin: FwClient, receiver: LiveReceiver) -> None:
    (delivery,) = admin.webhooks.emit("order.paid", {"order": "SO-3"}).deliveries
    eventually(lambda: admin.webhooks.explain(delivery)["status"] == "Sent")
    assert admin.webhooks.replay(delivery).status == "Queued"
    eventually(lambda: receiver.ids.count(delivery) == 2)
    with pytest.raises(NotFound):
        admin.webhooks.replay("msg_missing")


def test_replay_many_reports_progress_and_runs(admin: FwClient, receiver: LiveReceiver) -> None:
    (delivery,) = admin.webhooks.emit("order.paid", {"order": "SO-4"}).deliveries
    eventually(lambda: admin.webhooks.explain(delivery)["status"] == "Sent")
    run = admin.webhooks.replay_many({"name": delivery})
    assert run.total == 1

    def progress() -> tuple[int, bool]:
        now = admin.webhooks.replay_progress()
        assert now is not None
        return now.replayed, now.ended is not None

    eventually(lambda: progress() == (1, True))
    eventually(lambda: receiver.ids.count(delivery) == 2)
    assert admin.webhooks.stop_replay() is not None
    assert admin.webhooks.replay_runs()[0].id == run.id
    again = admin.webhooks.replay_progress(run.id)
    assert again is not None
    assert (again.id, again.total) == (run.id, 1)
    with pytest.raises(NotFound):
        admin.webhooks.replay_progress("missing")


def test_attempts_are_listed_by_pages(admin: FwClient) -> None:
    deliveries = set()
    for order in ("SO-7", "SO-8", "SO-9"):
        (delivery,) = admin.webhooks.emit("order.paid", {"order": order}).deliveries
        deliveries.add(delivery)
    eventually(lambda: all(admin.webhooks.explain(d)["status"] == "Sent" for d in deliveries))
    first = admin.webhooks.attempts(limit=2, result="sent")
    assert (len(first.attempts), first.newest_only) == (2, False)
    assert {each.response_status for each in first.attempts} == {204}
    gone_through = list(admin.webhooks.iterate_attempts(page=2, since=first.attempts[1].ended))
    assert gone_through[: len(first.attempts)] == list(first.attempts)
    everything = list(admin.webhooks.iterate_attempts(page=2))
    assert deliveries <= {each.delivery for each in everything}
    assert len({(each.delivery, each.ended) for each in everything}) == len(everything)
    with pytest.raises(BadCall):
        admin.webhooks.attempts(result="other")


def test_test_event_is_sent_to_webhook(admin: FwClient) -> None:
    webhook = admin.documents.list("Webhook").rows[0]["name"]
    outcome = admin.webhooks.test(webhook)
    assert (outcome.status, outcome.error) == (204, None)


def test_lost_rotation_to_a_given_secret_is_repeated_without_harm(
    site: LiveSite, key: str, admin: FwClient, receiver: LiveReceiver
) -> None:
    """B-350: a second rotation would end the secret that the receiver still has."""
    hook = admin.documents.insert("Webhook", {
        "url": receiver.url, "event_type": "Custom", "custom_event": "lost.rotation",
        "secret": SECRET,
    })  # fmt: skip
    given = "whsec_" + "A" * 32
    losing = httpx.Client(transport=LosingAnswers())
    with losing, FwClient(site.url, key=key, http=losing) as caller:
        with pytest.raises(NotReached) as lost:
            caller.webhooks.rotate(hook["name"], secret=given, overlap=1)
        assert lost.value.sent
        with pytest.raises(Invalid, match="must differ") as done:
            caller.webhooks.rotate(hook["name"], secret=given, overlap=1)
        assert done.value.field == "secret"
    stored = admin.documents.get("Webhook", hook["name"])
    assert stored["old_secret_until"] is not None
    (sent,) = admin.webhooks.emit("lost.rotation", {}).deliveries
    eventually(lambda: sent in receiver.ids)
    post = receiver.got[receiver.ids.index(sent)]
    assert len(post.headers["webhook-signature"].split()) == 2


def test_webhook_is_paused_rotated_and_delivery_erased(admin: FwClient) -> None:
    hook = admin.documents.insert("Webhook", {
        "url": "http://127.0.0.1:9/", "event_type": "Custom", "custom_event": "never.sent",
        "secret": "s" * 32, "enabled": 1,
    })["name"]  # fmt: skip
    paused = admin.webhooks.pause(hook, seconds=3600)
    assert paused.paused
    assert paused.until is not None
    (delivery,) = admin.webhooks.emit("never.sent", {}).deliveries
    with pytest.raises(Conflict):
        admin.webhooks.erase(delivery)
    admin.webhooks.cancel(delivery)
    assert admin.webhooks.explain(delivery)["status"] == "Failed"
    with pytest.raises(Conflict, match="can be cancelled"):
        admin.webhooks.cancel(delivery)
    rotated = admin.webhooks.rotate(hook, overlap=1)
    assert rotated.secret is not None
    assert rotated.old_until is not None
    assert rotated.secret not in repr(rotated)
    assert rotated.modified == admin.documents.get("Webhook", hook)["modified"]
    with pytest.raises(Conflict, match="changed meanwhile"):
        admin.webhooks.rotate(hook, modified="2026-01-01T00:00:00Z")
    with pytest.raises(Invalid) as refused:
        admin.webhooks.rotate(hook, overlap=721)
    assert refused.value.field == "overlap"
    assert not admin.webhooks.resume(hook).paused
    (sent,) = admin.webhooks.emit("order.paid", {"order": "SO-6"}).deliveries
    eventually(lambda: admin.webhooks.explain(sent)["status"] == "Sent")
    assert admin.webhooks.erase(sent) == admin.webhooks.erase(sent)
    admin.documents.delete("Webhook", hook)


def test_job_operations_raise_not_found_for_unknown_ids(admin: FwClient) -> None:
    assert all(each.state == "failed" for each in admin.jobs.list(state="failed"))
    for act in (admin.jobs.retry, admin.jobs.cancel):
        with pytest.raises(NotFound):
            act(2**40)
    nothing = {"queue": "app", "state": "failed", "function": "no.such", "user": "eve"}
    assert list(admin.jobs.iterate(queue="app", function="no.such")) == []
    assert admin.jobs.retry_matching(**nothing) == admin.jobs.cancel_matching(**nothing) == 0
    with pytest.raises(BadCall):
        admin.jobs.cancel_matching(state="other")


def test_user_is_invited_and_unlocked(admin: FwClient) -> None:
    invited = admin.users.invite("ida@example.test", full_name="Ida")
    assert invited.link is not None
    assert "#token=" not in repr(invited)
    assert admin.users.resend_invite(invited.user).expires > invited.expires
    admin.users.unlock(invited.user)
    with pytest.raises(Conflict):
        admin.users.send_password_reset(invited.user)


async def test_async_client_iterates_documents_and_repeats_emit(site: LiveSite, key: str) -> None:
    async with AsyncFwClient(site.url, key=key) as client:
        async with trio.open_nursery() as nursery:
            for n in range(3):
                nursery.start_soon(client.documents.insert, "Note", {"title": f"async {n}"})
        mine = [("title", "like", "async%")]
        rows = [row async for row in client.documents.iterate("Note", mine, page=2)]
        assert len(rows) == 3
        emitted = await client.webhooks.emit("order.paid", {"order": "SO-5"}, key="SO-5")
        again = await client.webhooks.emit("order.paid", {"order": "SO-5"}, key="SO-5")
        assert (emitted.repeated, again.repeated) == (False, True)
