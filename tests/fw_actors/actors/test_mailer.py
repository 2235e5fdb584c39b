"""The Mailer: attempts, outcomes and links of messages (O-51 to O-62)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from sqlalchemy import text
from trio.testing import MockClock

from fw_actors.access.links import LinkKind
from fw_actors.errors import InvalidTokenError, OverloadedError
from fw_actors.mail import FailingWebhook, MailNotSent, MailRefused, Notice, Template
from tests.mail_kit import ADDRESS, OTHER, MailSite, RecordingTransport, mail_site, token_of

BUSY = MailNotSent("smtp: the mail server answered 451 come back later.")
HOOK = {
    "url": "https://receiver.test/", "event_type": "Custom", "custom_event": "note.shared",
    "secret": "a signing secret",
}  # fmt: skip
NINE_WAITS = [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]


async def changed(site: MailSite, *users: str) -> None:
    """Queue a message without a link to each."""
    for user in users:
        await site.do(
            lambda fw, user=user: site.site.mail_queue.to_user(  # type: ignore[misc]
                fw.tx, Template.PASSWORD_CHANGED, user, owner="Administrator"
            )
        )


async def test_mailer_sends_message_once_and_records_delivery(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """An Email Delivery has its fields, and the job is gone (D-225)."""
    async with mail_site(tmp_path) as site:
        await site.add_account("anna")
        await site.recover("anna")
        await trio.sleep(2)
        (delivery,) = await site.deliveries()
        assert delivery["recipient"] == "anna@example.test"
        assert delivery["subject"] == "A new password for tests"
        assert (delivery["template"], delivery["status"]) == ("recovery", "Sent")
        assert (delivery["attempts"], delivery["error"]) == (1, None)
        assert delivery["sent"] == delivery["modified"]
        assert await site.jobs() == []
        assert len(site.transport.taken) == 1
        (line,) = site.log.of("mail.ended")
        assert (line["delivery"], line["template"], line["attempt"]) == (
            delivery["name"], "recovery", 1,
        )  # fmt: skip
        assert isinstance(line["duration_ms"], int)


async def test_mailer_sends_on_wake_up_without_delay(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with mail_site(tmp_path) as site:
        await site.add_account("anna")
        await trio.sleep(0.3)
        began = trio.current_time()
        await site.recover("anna")
        assert trio.current_time() == began


@pytest.mark.usefixtures("rare_polls")
async def test_mailer_makes_ten_attempts_with_delivery_backoff(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A mail has 10 attempts with the waits of deliveries (O-58)."""
    transport = RecordingTransport(outcomes=[BUSY] * 20)
    async with mail_site(tmp_path, transport) as site:
        await site.add_account("anna")
        await site.recovery.request_link("anna", ADDRESS)
        await trio.sleep(sum(NINE_WAITS) + 8000)
        waits = [b - a for a, b in zip(transport.times, transport.times[1:], strict=False)]
        assert [round(wait) for wait in waits] == pytest.approx(NINE_WAITS, abs=1)
        (delivery,), (job,) = await site.deliveries(), await site.jobs()
        assert (delivery["status"], delivery["attempts"]) == ("Failed", 10)
        assert delivery["error"] == str(BUSY)
        assert (job["next_at"], job["lease"]) == (None, None)


async def test_mail_status_is_retrying_between_attempts(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with mail_site(tmp_path, RecordingTransport(outcomes=[BUSY])) as site:
        await site.add_account("anna")
        await site.recover("anna")
        await trio.sleep(1)
        (delivery,) = await site.deliveries()
        assert (delivery["status"], delivery["attempts"]) == ("Retrying", 1)
        assert [each["error"] for each in site.log.of("job.failed")] == [str(BUSY)]
        assert site.log.of("job.lease_lost") == []
        await trio.sleep(32)
        (delivery,) = await site.deliveries()
        assert (delivery["status"], delivery["attempts"]) == ("Sent", 2)
        assert delivery["error"] is None


async def test_mail_attempt_has_new_link_replacing_older_link(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """An attempt creates its token, which replaces the older one (O-62, A-193)."""
    async with mail_site(tmp_path, RecordingTransport(outcomes=[BUSY])) as site:
        await site.add_account("anna")
        await site.recovery.request_link("anna", ADDRESS)
        await site.transport.wait(2)
        first, second = (token_of(link) for link in site.transport.links())
        assert first != second
        assert len(await site.rows("SELECT * FROM fw_token")) == 1
        await site.recovery.reset(second, OTHER, ADDRESS)


async def test_mail_refusal_is_final(tmp_path: Path, autojump_clock: MockClock) -> None:
    """A 5xx answer to the recipient is final (O-59)."""
    refused = MailRefused("recipient: the mail server answered 550 no such mailbox.")
    async with mail_site(tmp_path, RecordingTransport(outcomes=[refused])) as site:
        await site.add_account("anna")
        await site.recover("anna")
        await trio.sleep(4000)
        (delivery,) = await site.deliveries()
        assert (delivery["status"], delivery["attempts"]) == ("Failed", 1)
        assert delivery["error"] == str(refused)
        assert len(site.transport.taken) == 1


async def test_final_refusal_of_a_mail_ends_its_link(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A-197: a refused mail may be seen by others, such as the operator of a filter."""
    refused = MailRefused("message: the mail server answered 550.")
    async with mail_site(tmp_path, RecordingTransport(outcomes=[BUSY, refused])) as site:
        await site.add_account("anna")
        await site.recovery.request_link("anna", ADDRESS)
        await site.transport.wait(1)
        assert len(await site.rows("SELECT * FROM fw_token")) == 1
        await site.transport.wait(2)
        await trio.sleep(1)
        assert await site.rows("SELECT * FROM fw_token") == []
        with pytest.raises(InvalidTokenError):
            await site.recovery.reset(token_of(site.transport.links()[1]), OTHER, ADDRESS)


async def test_mail_transport_defect_reveals_no_secret(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with mail_site(
        tmp_path, RecordingTransport(outcomes=[RuntimeError("token=secret")])
    ) as site:
        await site.add_account("anna")
        await site.recovery.request_link("anna", ADDRESS)
        await site.transport.wait(2)
        (delivery,) = await site.deliveries()
        assert "secret" not in str(delivery)
        assert "secret" not in str(site.log.entries)
        assert site.log.of("job.defect")


async def test_mail_attempt_times_out_on_slow_transport(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with mail_site(tmp_path, RecordingTransport(outcomes=[1000.0])) as site:
        await site.add_account("anna")
        await site.recovery.request_link("anna", ADDRESS)
        await trio.sleep(35)
        (delivery,) = await site.deliveries()
        assert delivery["status"] == "Retrying"
        assert delivery["error"].startswith("timeout: ")


async def test_mailer_sends_four_messages_concurrently_at_most(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with mail_site(tmp_path, RecordingTransport(outcomes=[5.0] * 9)) as site:
        await site.add_account("anna")
        await changed(site, *["anna"] * 9)
        began = trio.current_time()
        await site.transport.wait(9)
        assert site.transport.peak == 4
        assert trio.current_time() - began == pytest.approx(15, abs=1)


async def test_mail_attempt_uses_current_address_of_user(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Mail goes to the stored address (A-217), which may change between attempts."""
    async with mail_site(tmp_path, RecordingTransport(outcomes=[BUSY])) as site:
        await site.add_account("anna")
        await site.recover("anna")
        await site.rows("UPDATE doc_user SET email = 'new@example.test'")
        await site.transport.wait(2)
        assert site.transport.taken[1][1].recipient == "new@example.test"
        await trio.sleep(1)
        assert (await site.deliveries())[0]["recipient"] == "new@example.test"


async def test_mail_in_progress_is_recorded_after_deletion_of_user(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """It was attempted again, and recorded as failed although it had been sent (O-51)."""
    async with mail_site(tmp_path, RecordingTransport(outcomes=[5.0])) as site:
        await site.add_account("anna")
        await changed(site, "anna")
        await trio.sleep(1)
        await site.do(lambda fw: fw.get_doc("User", "anna").delete())
        await trio.sleep(200)
        (delivery,) = await site.deliveries()
        assert (delivery["status"], delivery["attempts"]) == ("Sent", 1)
        assert len(site.transport.taken) == 1


@pytest.mark.parametrize("is_requested", [True, False])
async def test_mail_to_disabled_user_is_withdrawn(
    is_requested: bool, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A disabled account's links end (A-20), and its messages are withdrawn (O-61)."""
    async with mail_site(tmp_path, RecordingTransport(outcomes=[BUSY])) as site:
        await site.add_account("anna")
        if is_requested:
            await site.recover("anna")
        else:
            await site.do(lambda fw: site.link_mail.send(fw, LinkKind.RECOVERY, "anna"))
            await trio.sleep(1)
        await site.do(lambda fw: fw.get_doc("User", "anna").db_set("enabled", 0))
        await trio.sleep(40)
        (delivery,) = await site.deliveries()
        assert (delivery["status"], len(site.transport.taken)) == ("Failed", 1)
        assert delivery["error"].startswith("withdrawn: ")


def _scope(fw: Any) -> None:
    values = {"user": "anna", "allow": "User", "for_value": "anna"}
    fw.new_doc("User Permission", **values).insert()


def _take_role(fw: Any) -> None:
    user = fw.get_doc("User", "anna")
    user.roles = []
    user.save()


def _change_nothing(_fw: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("change", "owns", "status"),
    [
        (_scope, False, "Failed"), (_scope, True, "Failed"),
        (_take_role, False, "Failed"), (_take_role, True, "Sent"), (_change_nothing, False, "Sent"),
    ],
)  # fmt: skip
async def test_mail_about_webhook_is_withdrawn_from_those_who_may_not_know_it(
    change: Callable[[Any], None],
    owns: bool,
    status: str,
    tmp_path: Path,
    autojump_clock: MockClock,
) -> None:
    """Accounts with access scopes, and former System Managers but an owner (O-61, B-340)."""
    about = FailingWebhook("receiver.test", "erp", 0, 3, "timeout: no answer.")
    async with mail_site(tmp_path, RecordingTransport(outcomes=[BUSY])) as site:
        for user in ("anna", "boss"):
            await site.add_account(user, "System Manager")
        if owns:
            await site.do(lambda fw: fw.new_doc("Webhook", **HOOK).insert(), "anna")
        await site.do(
            lambda fw: site.site.mail_queue.to_user(
                fw.tx,
                Template.WEBHOOK_FAILING,
                "anna",
                owner="Administrator",
                notice=Notice(failing_webhook=about),
            )
        )
        await trio.sleep(1)
        await site.do(change)
        await trio.sleep(40)
        (delivery,) = await site.deliveries()
        assert delivery["status"] == status
        assert str(delivery["error"]).startswith("withdrawn: ") == (status == "Failed")


async def test_mail_to_an_unusable_stored_address_fails_without_a_link(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A header must not hold a second recipient, whatever an older version has stored."""
    async with mail_site(tmp_path) as site:
        await site.add_account("anna")
        await site.rows("UPDATE doc_user SET email = 'a@x.test, b@x.test'")
        await site.do(lambda fw: site.link_mail.send(fw, LinkKind.RECOVERY, "anna"))
        await trio.sleep(1)
        (delivery,) = await site.deliveries()
        assert (delivery["status"], delivery["attempts"]) == ("Failed", 1)
        assert delivery["error"] == (
            "recipient: the account's address is not a valid mail address."
        )
        assert await site.rows("SELECT * FROM fw_token") == []
        assert site.transport.taken == []


async def test_invitation_is_not_sent_to_user_with_password(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with mail_site(tmp_path) as site:
        await site.add_account("anna")
        await site.do(lambda fw: site.link_mail.send(fw, LinkKind.INVITATION, "anna"))
        await trio.sleep(1)
        assert ((await site.deliveries())[0]["status"], site.transport.taken) == ("Failed", [])


async def test_mailer_drain_finishes_or_returns_messages_and_leases_none(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """After 10 s a message is returned to the queue, and not counted (O-31)."""
    async with mail_site(tmp_path, RecordingTransport(outcomes=[2.0, 25.0])) as site:
        await site.add_account("anna")
        await changed(site, "anna", "anna")
        await trio.sleep(1)
        site.drain(10.0)
        await changed(site, "anna")
        await trio.sleep(12)
        assert len(site.transport.taken) == 1
        jobs = await site.jobs()
        assert [(job["attempts"], job["deaths"], job["lease"]) for job in jobs] == [
            (0, 0, None)
        ] * 2
        assert all(job["next_at"] <= site.site.clock.now() for job in jobs)


async def test_mailer_stop_returns_message_held_by_transport(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with mail_site(tmp_path, RecordingTransport(outcomes=[25.0])) as site:
        await site.add_account("anna")
        await changed(site, "anna")
        await trio.sleep(1)
        site.drain(3.0)
    async with mail_site(tmp_path) as site:
        await site.transport.wait(1)
        await trio.sleep(1)
        assert [d["status"] for d in await site.deliveries()] == ["Sent"]


async def test_mailer_stop_returns_message_waiting_for_overloaded_store(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """An unsent mail is returned before its lease ends, and is not counted as a crash."""
    async with mail_site(
        tmp_path, RecordingTransport(outcomes=[OverloadedError("no room")])
    ) as site:
        await site.add_account("anna")
        await changed(site, "anna")
        await site.transport.wait(1)
        site.runtime.ref("mailer").stop(trio.current_time())
        await site.transport.wait(2)
        (first, _), (second, _) = site.transport.taken
        assert second - first < 5


async def test_mailer_writes_no_outcome_of_lost_lease(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with mail_site(tmp_path, RecordingTransport(outcomes=[5.0])) as site:
        await site.add_account("anna")
        await changed(site, "anna")
        await trio.sleep(1)
        await site.rows("UPDATE fw_job SET lease = 'another worker'")
        await trio.sleep(6)
        (delivery,) = await site.deliveries()
        assert (delivery["status"], delivery["sent"]) == ("Queued", None)
        assert site.log.of("job.lease_lost")


async def test_mail_job_of_dead_workers_fails_beyond_five_deaths(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """After five deaths in a row the next one counts as failed (B-195)."""
    async with mail_site(tmp_path) as site:
        await site.add_account("anna")
        site.drain(0)
        await trio.sleep(1)
        await changed(site, "anna", "anna")
        first, second = (job["id"] for job in await site.jobs())
        dead = "UPDATE fw_job SET lease = 'dead', deaths = :deaths WHERE id = :id"
        await site.rows(dead, deaths=4, id=first)
        await site.rows(dead, deaths=5, id=second)
    async with mail_site(tmp_path) as site:
        await trio.sleep(2)
        assert len(site.transport.taken) == 1
        (job,) = await site.jobs()
        assert (job["id"], job["deaths"], job["attempts"]) == (second, 0, 1)
        assert job["error"].startswith("worker_lost: ")
        await trio.sleep(32)
        assert len(site.transport.taken) == 2


async def test_mailer_without_lease_creates_no_link_and_sends_nothing(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A new link ends older ones: a link of the former holder would end that of the new one."""
    steal = """CREATE TRIGGER steal AFTER UPDATE OF lease ON fw_job
        WHEN NEW.lease IS NOT NULL AND NEW.lease <> 'another'
        BEGIN UPDATE fw_job SET lease = 'another' WHERE id = NEW.id; END"""
    async with mail_site(tmp_path) as site:
        await site.add_account("anna")
        await site.site.store.write(lambda tx: tx.run(text(steal)))
        await site.recovery.request_link("anna", ADDRESS)
        await trio.sleep(2)
        assert site.transport.taken == []
        assert await site.rows("SELECT 1 AS one FROM fw_token") == []
        (job,) = await site.jobs()
        assert (job["lease"], job["attempts"]) == ("another", 0)
        assert site.log.of("job.lease_lost")
