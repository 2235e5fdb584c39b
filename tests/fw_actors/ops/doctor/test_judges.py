"""The findings of each part of the examination: plain functions over plain data.

The module has more than 500 lines because each finding has a test, and all share their facts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fw_actors.access.api_keys import KeyCounts
from fw_actors.access.hash_costs import StoredCosts
from fw_actors.config import Argon2, LoginPolicy, Mail
from fw_actors.documents.registry import DataMigration
from fw_actors.documents.vault import NOT_ENCRYPTED
from fw_actors.ops.data_migrations import PendingMigration
from fw_actors.ops.doctor.access import (
    DemoFacts,
    SignInFacts,
    evaluate_secrets,
    evaluate_sign_in,
)
from fw_actors.ops.doctor.delivery import (
    QueueFacts,
    ReceiverBacklog,
    WebhookFacts,
    WebhookSince,
    evaluate_queues,
    evaluate_webhooks,
)
from fw_actors.ops.doctor.system import (
    AppFacts,
    ClockFacts,
    DatabaseFacts,
    MailFacts,
    evaluate_apps,
    evaluate_clock,
    evaluate_database,
    evaluate_mail,
)
from fw_actors.ops.stored_secrets import SecretFacts
from fw_actors.rules.findings import Level, Section, ServiceState
from fw_actors.store import QueueStats

GIB = 1 << 30
DEFAULT = Argon2(19_456, 2, 1)
DEMO = LoginPolicy(None, "demo", "demo password")
NO_DEMO = LoginPolicy(None, None, None)
LOGGED = Mail("log", None, "fw@localhost", None, 587, None, None, "starttls")
SMTP = replace(LOGGED, transport="smtp", host="mail.example", sender="Desk <desk@x.example>")


def levels(section: Section) -> set[str]:
    return {finding.level.value for finding in section.findings}


def only(section: Section, level: Level) -> str:
    (text,) = section.texts(level)
    return text


def test_doctor_warns_of_enabled_webhooks_while_they_are_off() -> None:
    """Webhooks that are off while some are enabled are warned of, and so are failures (O-132)."""
    section = evaluate_webhooks(WebhookFacts(off=True, enabled=2, retrying=1, failed=0))
    assert "2 are enabled" in only(section, Level.WARNING)
    assert section.facts == {
        "off": True, "enabled": 2, "retrying": 1, "failed24h": 0, "paused": [], "failing": [],
        "disabled": [],
    }  # fmt: skip
    assert levels(evaluate_webhooks(WebhookFacts(True, 0, 0, 0))) == {"ok"}


@pytest.mark.parametrize("off", [True, False])
def test_doctor_shows_webhook_counts_on_and_off(off: bool) -> None:
    """The counts are shown whether webhooks are off or on (O-131)."""
    text = " ".join(evaluate_webhooks(WebhookFacts(off, 12, 34, 0)).texts(Level.OK))
    assert f"are {'off' if off else 'on'}; enabled Webhooks: 12, deliveries retrying: 34" in text


def test_doctor_warns_of_deliveries_failed_in_the_last_day() -> None:
    """Webhooks that are off while some are enabled are warned of, and so are failures (O-132)."""
    assert ": 3" in only(evaluate_webhooks(WebhookFacts(False, 1, 0, 3)), Level.WARNING)


def test_doctor_names_commands_that_resend_many_failed_deliveries() -> None:
    """The remedy of many failures resends all of a Webhook, from its first failed event (O-132)."""
    many = tuple(WebhookSince(name, 1000) for name in ("erp", "it's new", "c", "d"))
    section = evaluate_webhooks(WebhookFacts(False, 4, 0, 900, resendable=many))
    (remedy,) = [each.todo for each in section.findings if each.level == Level.WARNING]
    since = "--since 1970-01-01T00:00:01.000Z"
    assert f"again: fw webhooks replay --webhook erp {since}; " in remedy
    assert f"--webhook 'it'\"'\"'s new' {since}; fw webhooks replay --webhook c {since}," in remedy
    assert "--webhook d" not in remedy


@pytest.mark.parametrize("kind", ["paused", "failing", "disabled"])
def test_doctor_names_paused_failing_and_disabled_webhooks_with_start(kind: str) -> None:
    """Paused, failing and disabled Webhooks are a warning, with the time since when (B-400)."""
    facts: dict[str, Any] = {kind: (WebhookSince("a", 0), WebhookSince("b", 1000))}
    section = evaluate_webhooks(WebhookFacts(False, 1, 0, 0, **facts))
    finding = only(section, Level.WARNING)
    assert ": 2: Webhook a since 1970-01-01T00:00:00.000Z, b since 1970-01-01T00:00:01" in finding
    shown = section.facts[kind]
    if kind == "paused":
        assert shown == ["a", "b"]
    else:
        start = "1970-01-01T00:00:0"
        assert shown == [
            {"webhook": "a", "since": f"{start}0.000Z"},
            {"webhook": "b", "since": f"{start}1.000Z"},
        ]


@pytest.mark.parametrize("kind", ["odd_secrets", "refused_urls", "lost_doctypes", "child_doctypes"])
def test_doctor_names_up_to_five_misconfigured_webhooks(kind: str) -> None:
    facts: dict[str, Any] = {kind: tuple("abcdefg")}
    finding = only(evaluate_webhooks(WebhookFacts(False, 7, 0, 0, **facts)), Level.WARNING)
    assert finding.endswith("Webhook a, b, c, d, e and 2 more")
    facts[kind] = facts[kind][:5]
    finding = only(evaluate_webhooks(WebhookFacts(False, 7, 0, 0, **facts)), Level.WARNING)
    assert finding.endswith("Webhook a, b, c, d, e")


def test_doctor_names_client_certificates_that_end_and_webhooks_whose_is_lost() -> None:
    """A certificate is not named like a Webhook; one may serve several."""
    names = tuple("abcdefg")
    facts = WebhookFacts(False, 7, 0, 0, lost_certificates=names, ending_certificates=("ERP",))
    section = evaluate_webhooks(facts)
    assert only(section, Level.PROBLEM).endswith("cannot be used: a, b, c, d, e and 2 more")
    assert only(section, Level.WARNING) == (
        "client certificates that have expired or expire within 30 days: ERP"
    )


@pytest.mark.parametrize(
    ("mail", "facts", "host", "level", "word"),
    [
        (LOGGED, MailFacts("", 0), "localhost", "ok", "transport is log"),
        (LOGGED, MailFacts("", 0), "fw.example", "warning", "not to any mailbox"),
        (LOGGED, MailFacts("FW_LOG_LEVEL=error suppresses them", 0), None, "warning", "suppresses"),
        (LOGGED, MailFacts("", 2), None, "warning", "failed in the last 24 hours: 2"),
        (SMTP, MailFacts("", 0, 4, "451 later."), None, "warning", "4; the last attempt ended wi"),
        (SMTP, MailFacts("", 0), None, "ok", "transport is smtp (mail.example:587)"),
        (SMTP, MailFacts("auth: 535.", 0), None, "problem", "cannot be used: auth: 535."),
        (replace(SMTP, sender="fw@localhost"), MailFacts("", 0), None, "warning", "the sender"),
        (replace(SMTP, security="none"), MailFacts("", 0), None, "warning", "links are sent"),
        (
            replace(SMTP, security="none", user="u", password="p"),
            MailFacts("auth: not in clear text.", 0), None, "warning", "no mail can be sent",
        ),
        (
            replace(LOGGED, transport="method", method="shop.send", sender="a@x.example"),
            MailFacts("no such", 0), None, "problem", "method (shop.send) and cannot be used",
        ),
    ],
)  # fmt: skip
def test_doctor_shows_and_evaluates_the_mail_transport(
    mail: Mail, facts: MailFacts, host: str | None, level: str, word: str
) -> None:
    """The live mail transport is shown (O-133), and clear-text sign-in warned of (O-134)."""
    found = evaluate_mail(mail, facts, host).findings
    assert [finding.level.value for finding in found if word in finding.text] == [level]


@pytest.mark.parametrize(
    ("demo", "login", "level", "word"),
    [
        (DemoFacts(True, True, ("System Manager",)), DEMO, "warning", "can administer"),
        (DemoFacts(True, False, ()), DEMO, "warning", "is disabled"),
        (DemoFacts(False, False, ()), DEMO, "warning", "is missing"),
        (DemoFacts(True, True, ("Guest",)), DEMO, "ok", "roles: Guest"),
        (DemoFacts(True, True, ()), DEMO, "ok", "roles: none"),
        (DemoFacts(False, True, ()), DEMO, "warning", "is missing"),
        (None, LoginPolicy(None, "demo", None), "warning", "incompletely"),
        (None, LoginPolicy(None, None, "public"), "warning", "incompletely"),
    ],
)
def test_doctor_warns_of_a_demo_account_that_can_administer(
    demo: DemoFacts | None, login: LoginPolicy, level: str, word: str
) -> None:
    """The demo user's roles must not administer the site (O-136, A-344)."""
    section = evaluate_sign_in(SignInFacts(1, 0, 30.0, demo), login, DEFAULT)
    assert [each.level.value for each in section.findings if word in each.text] == [level]


@pytest.mark.parametrize(("exists", "remedy"), [(True, "Enable"), (False, "Create")])
def test_doctor_says_how_a_demo_account_becomes_usable(exists: bool, remedy: str) -> None:
    """O-130: an account that is disabled exists already."""
    section = evaluate_sign_in(SignInFacts(1, 0, 30.0, DemoFacts(exists, False, ())), DEMO, DEFAULT)
    (unusable,) = (each for each in section.findings if "cannot be used" in each.text)
    assert unusable.todo.startswith(remedy)


@pytest.mark.parametrize(
    ("cost", "milliseconds", "level"),
    [
        (DEFAULT, 30.0, "ok"), (Argon2(7168, 5, 1), 30.0, "ok"), (Argon2(8, 1, 1), 1.0, "warning"),
        (Argon2(19_456, 1, 1), 15.0, "warning"), (Argon2(1 << 20, 4, 1), 1500.0, "warning"),
    ],
)  # fmt: skip
def test_doctor_warns_of_a_cheap_or_slow_hash(
    cost: Argon2, milliseconds: float, level: str
) -> None:
    section = evaluate_sign_in(SignInFacts(1, 0, milliseconds), NO_DEMO, cost)
    assert [each.level.value for each in section.findings if "FW_ARGON2" in each.text] == [level]


@pytest.mark.parametrize(
    ("cost", "advice"), [(Argon2(1 << 20, 4, 1), "Lower"), (DEFAULT, "idle"),
                         (Argon2(7168, 5, 1), "idle")],
)  # fmt: skip
def test_doctor_advises_to_lower_only_a_cost_that_can_be_lower(cost: Argon2, advice: str) -> None:
    """O-145: the default is the lowest cost, also if a busy machine takes long for it."""
    section = evaluate_sign_in(SignInFacts(1, 0, 1500.0), NO_DEMO, cost)
    (slow,) = (each for each in section.findings if "less than one sign-in" in each.text)
    assert advice in slow.todo


def test_doctor_counts_outdated_password_hashes() -> None:
    """O-141."""
    costs = StoredCosts.of({DEFAULT: 3, Argon2(8, 1, 1): 2})
    section = evaluate_sign_in(SignInFacts(1, 0, 30.0, costs=costs), NO_DEMO, DEFAULT)
    assert [f.text for f in section.findings if "2 of 5" in f.text]
    assert (section.facts["passwordHashes"], section.facts["outdatedPasswordHashes"]) == (5, 2)


@pytest.mark.parametrize(
    ("without_end", "policy_days", "level"), [(2, 0, "ok"), (2, 90, "warning"), (0, 90, "ok")]
)
def test_doctor_warns_of_api_keys_without_expiry_against_the_policy(
    without_end: int, policy_days: int, level: str
) -> None:
    keys = KeyCounts(3, without_end)
    facts = SignInFacts(1, 0, 30.0, keys=keys, key_days=policy_days)
    section = evaluate_sign_in(facts, NO_DEMO, DEFAULT)
    findings = [f for f in section.findings if "API keys" in f.text]
    assert [each.level.value for each in findings] == [level]
    assert f"without expiry: {without_end}" in findings[0].text
    assert section.facts["apiKeysWithoutEnd"] == without_end


def test_doctor_shows_the_facts_of_sign_in() -> None:
    """The numbers of `fw doctor --json` (O-130)."""
    keys, costs = KeyCounts(3, 1), StoredCosts.of({DEFAULT: 4})
    facts = SignInFacts(2, 7, 30.07, keys=keys, costs=costs)
    section = evaluate_sign_in(facts, NO_DEMO, DEFAULT)
    assert section.facts == {
        "systemManagers": 2, "locked": 7, "hashMilliseconds": 30.1, "passwordHashes": 4,
        "outdatedPasswordHashes": 0, "apiKeys": 3, "apiKeysWithoutEnd": 1,
    }  # fmt: skip
    assert "password hashes stored with outdated parameters: 0 of 4" in section.texts(Level.OK)


def test_doctor_warns_of_a_site_without_a_manager() -> None:
    section = evaluate_sign_in(SignInFacts(0, 0, 30.0), NO_DEMO, DEFAULT)
    assert "cannot be administered" in only(section, Level.WARNING)


def test_doctor_reports_unreadable_secrets_by_doctype_and_field() -> None:
    section = evaluate_secrets(SecretFacts(9, {("Webhook", "secret", "another key"): 2}))
    assert only(section, Level.PROBLEM).startswith("2 of the values in Webhook, field secret")
    assert section.facts == {"stored": 9, "unreadable": 2}
    assert levels(evaluate_secrets(SecretFacts(9, {}))) == {"ok"}


def test_doctor_advises_to_set_texts_again_that_were_never_encrypted() -> None:
    """No key decrypts them (O-145)."""
    facts = SecretFacts(9, {("Line", "item", NOT_ENCRYPTED): 9})
    (finding,) = evaluate_secrets(facts).findings
    assert finding.text.endswith("is not encrypted")
    assert finding.todo == "Set them again, so that they are encrypted."


@pytest.mark.parametrize(
    ("mail", "fault", "words"),
    [
        (SMTP, "connect: refused.", "Check the variables FW_SMTP_*."),
        (replace(LOGGED, transport="method", method="a.b"), "no such", "Check FW_MAIL_METHOD."),
        (SMTP, "", "connecting succeeded"),
        (replace(SMTP, user="u", password="p"), "", "connecting and signing in succeeded"),
    ],
)  # fmt: skip
def test_doctor_states_what_of_the_mail_transport_was_tried(
    mail: Mail, fault: str, words: str
) -> None:
    finding, *_ = evaluate_mail(mail, MailFacts(fault, 0), None).findings
    assert (finding.todo if fault else finding.text).endswith(words)


@pytest.mark.parametrize(
    "mail", [SMTP, replace(SMTP, security="tls"), replace(SMTP, security="none", host="127.0.0.1")]
)
def test_doctor_accepts_mail_that_no_other_machine_can_read(mail: Mail) -> None:
    assert levels(evaluate_mail(mail, MailFacts("", 0), None)) == {"ok"}


def test_doctor_accepts_a_clear_text_password_that_works() -> None:
    """A name may lead to loopback: then signing in worked, and mail leaves."""
    mail = replace(SMTP, security="none", user="u", password="p")
    assert levels(evaluate_mail(mail, MailFacts("", 0), None)) == {"ok"}


def test_doctor_warns_of_webhook_changes_unused_by_the_service() -> None:
    """Named with the node (O-146)."""
    facts = WebhookFacts(off=False, enabled=2, retrying=0, failed=0)
    service = ServiceState(True, node="db7", stale_webhooks=["one", "two"])
    assert only(evaluate_webhooks(facts, service), Level.WARNING) == (
        "the service on db7 does not use 2 changed Webhooks: one, two"
    )
    assert levels(evaluate_webhooks(facts, RUNS)) == {"ok"}


STOPPED, RUNS = ServiceState(running=False), ServiceState(running=True)
LATE = QueueStats("webhook", ready=4, scheduled=0, leased=0, failed=9, oldest_seconds=301.0)
HOST = "https://receiver.test:443"
BEHIND = ReceiverBacklog(HOST, ("a", "b"), due=4, leased=1, last_error="timeout: no answer.")


def test_doctor_warns_of_late_jobs_and_expired_leases() -> None:
    failed = QueueStats("app", ready=0, scheduled=0, leased=0, failed=2, oldest_seconds=0.0)
    section = evaluate_queues(QueueFacts((LATE, failed), {"mail": 1}), STOPPED)
    words = section.texts(Level.WARNING)
    assert [word.partition(":")[0] for word in words] == [
        "queue webhook has 4 due jobs; the oldest has been due for 5 minutes",
        "jobs of apps that failed permanently",
        "queue mail",
    ]
    todo = section.findings[1].todo
    assert all(f"fw jobs {verb}" in todo for verb in ("list", "retry", "cancel"))
    assert section.facts["queues"]["webhook"] == {"ready": 4, "oldestSeconds": 301.0, "stuck": 0}
    assert levels(evaluate_queues(QueueFacts((), {}), RUNS)) == {"ok"}


START = "The service is not running on this machine. Run fw start, or fw worker."
OTHER = "The service is not running on this machine (fw start); another process serves the queue."
LINES = "The service runs; the lines below name the receivers with waiting deliveries."
LOG = (
    "The service runs; its log contains the result of each attempt (delivery.attempted, "
    "mail.ended, job.failed)."
)


@pytest.mark.parametrize(
    ("queue", "leased", "service", "todo"),
    [
        ("webhook", 0, STOPPED, START), ("mail", 0, STOPPED, START), ("app", 1, STOPPED, OTHER),
        ("webhook", 0, RUNS, LINES), ("webhook", 5, RUNS, LINES), ("webhook of none", 0, RUNS, LOG),
        ("mail", 0, RUNS, LOG), ("app", 1, RUNS, LOG),
    ],
)  # fmt: skip
def test_doctor_advises_to_start_a_stopped_service_only(
    queue: str, leased: int, service: ServiceState, todo: str
) -> None:
    """`webhook of none`: the Webhooks of the due jobs are deleted, so no receiver is named."""
    late = LATE._replace(queue=queue.split(maxsplit=1)[0], leased=leased, failed=0)
    receiver = "" if queue == "webhook of none" else HOST
    behind = (replace(BEHIND, receiver=receiver),) if late.queue == "webhook" else ()
    finding, *lines = evaluate_queues(QueueFacts((late,), {}, behind), service).findings
    assert finding.todo == todo
    assert bool(lines) == (bool(behind) and bool(receiver))


def test_doctor_refers_to_the_lines_of_receivers_for_deliveries_only() -> None:
    """The mail queue waits for another reason. One of two receivers suffices for the lines."""
    mails = LATE._replace(queue="mail", failed=0)
    backlogs = (replace(BEHIND, receiver=""), BEHIND)
    deliveries, mail, receiver = evaluate_queues(
        QueueFacts((LATE, mails), {}, backlogs), RUNS
    ).findings
    assert (deliveries.todo, mail.todo) == (LINES, LOG)
    assert receiver.text.startswith(HOST)


SLOW = (
    "fw webhooks test a shows how long each step takes. While it is slow or silent it gets one "
    "attempt at a time; disable the Webhook when the receiver no longer exists."
)
BUSY = (
    "fw webhooks test a shows how long each step takes. If it answers quickly, raise "
    "ops.perReceiverConcurrency, or add a worker (fw worker), which has the same number of slots."
)


@pytest.mark.parametrize(
    ("last_error", "service", "ended", "todo"),
    [
        (
            "timeout: no answer.", RUNS, "the last attempt ended with timeout: no answer", SLOW,
        ),
        ("", ServiceState(True, {HOST: "slow"}), "the last attempt was answered 2xx", SLOW),
        ("", ServiceState(True, {HOST: "healthy"}), "the last attempt was answered 2xx", BUSY),
        ("", RUNS, "the last attempt was answered 2xx", BUSY),
        (None, RUNS, "no attempt was made yet", BUSY),
        (
            "status: the receiver answered 503.", ServiceState(True, {HOST: "paused"}),
            "the last attempt ended with status: the receiver answered 503",
            "The service has paused it; resume it in fw console or /app/console.",
        ),
        (
            None, STOPPED, "no attempt was made yet",
            "Due deliveries are sent when the service or a worker runs.",
        ),
    ],
)  # fmt: skip
def test_doctor_names_a_late_receiver_with_webhooks_and_cause(
    last_error: str | None, service: ServiceState, ended: str, todo: str
) -> None:
    behind = replace(BEHIND, last_error=last_error)
    section = evaluate_queues(QueueFacts((LATE,), {}, (behind,)), service)
    finding = section.findings[1]
    assert finding.text == (
        f"{HOST} (Webhook a, b): due deliveries: 4, leased for an attempt: 1; {ended}"
    )
    assert finding.todo == todo
    assert section.facts["receivers"] == [
        {
            "receiver": HOST, "webhooks": ["a", "b"], "due": 4, "leased": 1,
            "lastError": last_error or None,
        }
    ]  # fmt: skip


LIMITED = (
    "Its Webhooks send no more requests a second than their rate_limit. Raise the limits if the "
    "receiver takes more."
)
OF_B = BUSY.replace("test a", "test b")
WAIT = "The deliveries of paused Webhooks wait (fw webhooks resume): a."


@pytest.mark.parametrize(
    ("paused", "limited", "last_error", "todo"),
    [
        (("a", "b"), ("a",), "", "It is paused: fw webhooks resume a."),
        (("a",), (), "", f"{WAIT} {OF_B}"),
        (("a",), ("b",), "", f"{WAIT} {LIMITED}"),
        ((), ("a", "b"), "", LIMITED),
        ((), ("b",), "", BUSY),
        ((), ("a", "b"), "timeout: no answer.", SLOW),
    ],
)
def test_doctor_states_which_deliveries_a_pause_or_rate_limit_delays(
    paused: tuple[str, ...], limited: tuple[str, ...], last_error: str, todo: str
) -> None:
    """More slots would not help (O-142, O-145)."""
    behind = replace(BEHIND, last_error=last_error, paused=paused, limited=limited)
    section = evaluate_queues(QueueFacts((LATE,), {}, (behind,)), RUNS)
    assert section.findings[1].todo == todo


def test_doctor_names_up_to_five_receivers_and_webhooks() -> None:
    many = [
        replace(BEHIND, receiver=f"https://r{n}:443", webhooks=tuple("abcdefg")) for n in range(9)
    ]
    section = evaluate_queues(QueueFacts((LATE,), {}, tuple(many)), RUNS)
    assert len(section.findings) == 6
    assert "(Webhook a, b, c, d, e and 2 more)" in section.findings[1].text
    assert len(section.facts["receivers"]) == 9


@pytest.mark.parametrize(
    ("service", "word"), [(RUNS, "The service claims"), (STOPPED, "start one")]
)
def test_doctor_advises_how_expired_leases_are_taken_over(service: ServiceState, word: str) -> None:
    (finding,) = evaluate_queues(QueueFacts((), {"mail": 2}), service).findings
    assert "expired over a minute ago: 2" in finding.text
    assert word in finding.todo


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({}, "ok"), ({"free_disk": None}, "ok"), ({"faults": ("row 1 missing",)}, "problem"),
        ({"free_disk": 99 << 20}, "problem"), ({"free_disk": GIB - 1}, "warning"),
        ({"free_disk": 2 * GIB, "size": 3 * GIB}, "warning"),
    ],
)  # fmt: skip
def test_doctor_checks_database_integrity_and_disk_space(
    changes: dict[str, Any], level: str
) -> None:
    facts = DatabaseFacts("sqlite", "/srv/fw.db", 1 << 20, "wholly", free_disk=9 * GIB)
    found = levels(evaluate_database(replace(facts, **changes)))
    assert found - {"ok"} == {level} - {"ok"}


def test_doctor_shows_the_facts_of_database_clock_and_mail() -> None:
    """The numbers of `fw doctor --json` (O-130)."""
    database = DatabaseFacts("sqlite", "/srv/fw.db", 1 << 20, "wholly", ("a fault",), 9 * GIB)
    assert evaluate_database(database).facts == {
        "kind": "sqlite", "sizeBytes": 1 << 20, "freeDiskBytes": 9 * GIB, "intact": False,
    }  # fmt: skip
    assert evaluate_clock(ClockFacts(7, 5)).facts == {"now": 7, "newestRow": 5}
    facts = evaluate_mail(LOGGED, MailFacts("", 3, 2), None).facts
    assert facts == {"transport": "log", "retrying": 2, "failed24h": 3}


def test_doctor_names_pending_data_migrations() -> None:
    def first() -> None: ...
    def second() -> None: ...

    waiting = [
        PendingMigration("shop", DataMigration(1, first), begun=True),
        PendingMigration("shop", DataMigration(2, second), begun=False),
    ]
    section = evaluate_apps(AppFacts(waiting))
    assert section.texts(Level.WARNING) == [
        "the data migration shop 1 (first) has begun",
        "the data migration shop 2 (second) has not run",
    ]
    assert section.facts == {"pending": ["shop 1 (first)", "shop 2 (second)"]}
    assert only(evaluate_apps(AppFacts([])), Level.OK) == "no data migration is pending"


@pytest.mark.parametrize(
    ("now", "latest", "level"),
    [
        (1_800_000_000_000, 0, "ok"), (1_800_000_000_000, 1_800_000_005_000, "ok"),
        (1_800_000_000_000, 1_800_000_005_001, "warning"), (1_000, 0, "problem"),
    ],
)  # fmt: skip
def test_doctor_notices_a_clock_set_back(now: int, latest: int, level: str) -> None:
    assert levels(evaluate_clock(ClockFacts(now, latest))) == {level}


def test_doctor_says_when_the_warning_of_a_row_in_the_future_ends() -> None:
    """The row keeps its time after the clocks were synchronised."""
    (finding,) = evaluate_clock(ClockFacts(1_800_000_000_000, 1_800_000_060_000)).findings
    assert finding.todo.endswith("the warning ends at that time.")


def test_doctor_names_the_commands_for_failed_mails() -> None:
    (failed,) = [f for f in evaluate_mail(LOGGED, MailFacts("", 2), None).findings if f.todo]
    assert all(f"fw jobs {verb}" in failed.todo for verb in ("list", "retry"))
