"""The promises that must hold once a simulated site has come to rest: every promise, one by one."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tests.simulation.ledger import OPEN, Ledger
from tests.simulation.stored import Delivery
from tests.simulation.world import DELIVERED, PAYLOAD_SECONDS, World


def settled(world: World) -> bool:
    """Whether nothing waits in any queue any more."""
    ledger = _ledger(world)
    return not any(job.waits for job in ledger.state.jobs.values())


def check_end(world: World) -> None:
    """Check the promises; yield each broken one."""
    for rule in (
        _deliveries,
        _markers,
        _tickets,
        _references,
        _jobs,
        _mails,
        _redaction,
        _audit,
        _notices,
        _notice_mails,
        _device_mails,
        _erasures,
        _cancellations,
    ):
        for broken in rule(world):
            world.broke(broken)


def _deliveries(world: World) -> list[str]:
    """Every committed event is Sent or Failed in the end; Sent means accepted by a receiver."""
    ledger, found = _ledger(world), []
    for name, delivery in ledger.state.deliveries.items():
        if delivery.status in OPEN:
            found.append(f"{name} is {delivery.status} for ever, next {delivery.next_attempt}")
        took = set(world.answers.get(name, ())) & DELIVERED
        if delivery.status == "Sent" and not took:
            found.append(f"{name} is Sent, and nobody took it")
    found += [f"{n} was promised, and is gone" for n in world.promises.sent
              if n not in ledger.state.deliveries]  # fmt: skip
    return found


def _markers(world: World) -> list[str]:
    """No refused or rolled-back write is visible; a delivery holds what was promised."""
    ledger, found = _ledger(world), []
    for name in ledger.state.deliveries:
        data = json.loads(ledger.bodies[name])["data"]
        marker = data.get("marker") or data.get("doc", {}).get("title")
        if marker in world.promises.refused:
            found.append(f"{name} tells of {marker}, which was refused")
        promised = world.promises.sent.get(name)
        if promised is not None and promised != marker:
            found.append(f"{name} tells of {marker} instead of {promised}")
    titles = {row[0] for row in ledger.rows("SELECT title FROM doc_ticket")}
    return found + [f"the ticket {t} was refused" for t in titles & world.promises.refused]


def _tickets(world: World) -> list[str]:
    """Each change of a document is one event, none more and none less."""
    ledger = _ledger(world)
    counts: Counter[tuple[str, str]] = Counter(
        (_doc(ledger, name)["title"], d.event)
        for name, d in ledger.state.deliveries.items()
        if d.webhook == world.steady[1]
    )
    found = []
    disabled = world.steady[1] in ledger.switched_off  # by ops.disableAfterDays
    for (title, event), count in world.promises.events.items():
        limit = count + world.promises.perhaps[title, event]
        least = 0 if disabled else count
        if not least <= counts[title, event] <= limit:
            found.append(f"{counts[title, event]} events {event} of {title}; it should be {count}")
    return found


def _references(world: World) -> list[str]:
    """A delivery names its document as it is called now: a rename is followed (B-184)."""
    ledger, names = _ledger(world), dict[str, set[str | None]]()
    for title, name in ledger.rows("SELECT title, name FROM doc_ticket"):
        names[title] = {name}
    for name, delivery in ledger.state.deliveries.items():
        if delivery.webhook == world.steady[1]:
            names.setdefault(_doc(ledger, name)["title"], set()).add(delivery.reference)
    return [f"the ticket {t} goes by {sorted(map(str, n))}" for t, n in names.items() if len(n) > 1]


def _jobs(world: World) -> list[str]:
    """A job of an app is done once."""
    ledger = _ledger(world)
    done = Counter(row[0] for row in ledger.rows("SELECT title FROM doc_ticket"))
    failed = ledger.rows("SELECT arguments, error FROM fw_job WHERE queue = 'app'")
    found = [f"a job was given up: {row}" for row in failed if "worker_lost" not in str(row[1])
             and "InjectedDefect" not in str(row[1]) and "internal" not in str(row[1])]  # fmt: skip
    given_up = " ".join(str(row[0]) for row in failed)
    for title, certain in world.promises.jobs.items():
        if done[title] > 1 or (certain and not done[title] and title not in given_up):
            found.append(f"the job {title} was done {done[title]} times")
    return found


def _mails(world: World) -> list[str]:
    return [f"mail {name} is {s} for ever" for name, s in _ledger(world).state.mails.items()
            if s in OPEN]  # fmt: skip


def _redaction(world: World) -> list[str]:
    """No secret in an event (B-92), and no field above permission level 0 (B-90)."""
    found = []
    ledger = _ledger(world)
    for name in ledger.state.deliveries:
        doc: dict[str, Any] | None = json.loads(ledger.bodies[name])["data"].get("doc")
        if doc is None:
            continue
        right = doc["pin"] is None and doc["token"] in (None, {"configured": True})
        if not right or "margin" in doc or any("cost" in line for line in doc["lines"]):
            found.append(f"{name} shows what it must not: {sorted(doc)}")
    return found


def _audit(world: World) -> list[str]:
    """A replay that was done or denied is on record, and no other; without payload and secret."""
    rows = _ledger(world).rows(
        "SELECT action, target, actor, detail FROM doc_audit_event"
        " WHERE action IN ('webhook.replay', 'Denied')"
    )
    details = [json.loads(row[3] or "{}") for row in rows]
    done = Counter(row[1] for row in rows if row[0] == "webhook.replay")
    denied = Counter(row[1] for row in rows if row[0] == "Denied" and row[1] is not None)
    counted = sum(detail.get("more", 0) for detail in details)
    found = list(_ledger(world).replays.violations(done, denied, counted))
    for (action, target, actor, _), detail in zip(rows, details, strict=True):
        keys = set(detail)
        right = {"webhook", "previous_status"} if action == "webhook.replay" else set()
        right = {"more"} if target is None else right
        if keys != right or actor not in ("admin", "agent", "auditor", "Administrator"):
            found.append(f"the Audit Event {action} of {target} by {actor} holds {sorted(keys)}")
    return found


def _notices(world: World) -> list[str]:
    """A dead receiver and later its recovery are reported once, and it is disabled once (B-341)."""
    rows = _ledger(world).rows(
        "SELECT action, target, detail FROM doc_audit_event WHERE action IN"
        " ('webhook.rename', 'webhook.notice', 'webhook.notice_end', 'webhook.disable')"
        " ORDER BY creation, rowid"
    )
    first_names: dict[str, str] = {}
    counts: Counter[tuple[str, str, str]] = Counter()
    for action, target, detail in rows:
        given = json.loads(detail)
        if action == "webhook.rename":
            first_names[target] = first_names.get(given["old"], given["old"])
        else:
            counts[action, first_names.get(target, target), given["since"]] += 1
    found = [f"{act} of {hook} since {since}: {n} times" for (act, hook, since), n in counts.items()
             if n > 1]  # fmt: skip
    return found + [
        f"the end of {hook} since {since} was told, and not its beginning"
        for act, hook, since in counts
        if act == "webhook.notice_end" and not counts["webhook.notice", hook, since]
    ]


def _notice_mails(world: World) -> list[str]:
    """An unchanged manager account gets exactly one mail per outage of a receiver (B-340)."""
    found = []
    for action, template in (
        ("webhook.notice", "webhook_failing"),
        ("webhook.disable", "webhook_disabled"),
    ):
        ((acts,),) = _ledger(world).rows(
            "SELECT count(*) FROM doc_audit_event WHERE action = ? AND detail NOT LIKE '%refused%'",
            action,
        )
        ((mails,),) = _ledger(world).rows(
            "SELECT count(*) FROM doc_email_delivery"
            " WHERE template = ? AND recipient = 'admin@mail.example'",
            template,
        )
        if acts != mails:
            found.append(f"{acts} times {action}, and {mails} mails {template} to a manager")
    return found


def _device_mails(world: World) -> list[str]:
    """Each device of an account except the first was reported by one mail (A-363)."""
    if not world.config.auth.new_device_mail:
        return []
    rows = _ledger(world).rows(
        "SELECT u.name, (SELECT count(*) FROM fw_known_device k WHERE k.user = u.name),"
        " (SELECT count(*) FROM doc_email_delivery m"
        "   WHERE m.recipient = u.email AND m.template = 'new_device') FROM doc_user u"
    )
    return [f"{user} has {devices} devices, and {mails} mails about new ones"
            for user, devices, mails in rows if mails != max(0, devices - 1)]  # fmt: skip


def _erasures(world: World) -> list[str]:
    """Exactly the erasures are audited, each once (B-360); a sweep deletes old events."""
    ledger = _ledger(world)
    counts = Counter(
        row[0]
        for row in ledger.rows("SELECT target FROM doc_audit_event WHERE action = 'webhook.erase'")
    )
    erased = {name for name, d in ledger.state.deliveries.items() if d.erased is not None}
    by_age = {
        name
        for name in erased - counts.keys()
        if _age_at_erasure(ledger.state.deliveries[name]) >= PAYLOAD_SECONDS * 1000
    }
    swept = counts.keys() - ledger.state.deliveries.keys()
    found = [f"the erasure of {name} is on record {n} times" for name, n in counts.items() if n > 1]
    return found + [f"{name} is erased, or on record as erased, and not both"
                    for name in (erased - by_age) ^ (counts.keys() - swept)]  # fmt: skip


def _cancellations(world: World) -> list[str]:
    """Each cancellation has one Audit Event, and there is no other (B-365)."""
    ledger = _ledger(world)
    rows = ledger.rows("SELECT target FROM doc_audit_event WHERE action = 'webhook.cancel'")
    counts = Counter(row[0] for row in rows)
    return [
        f"{name} was cancelled {ledger.cancelled[name]} times, and {counts[name]} are on record"
        for name in counts.keys() | ledger.cancelled.keys()
        if counts[name] != ledger.cancelled[name]
    ]


def _age_at_erasure(delivery: Delivery) -> int:
    """Return the time between the last attempt of an erased delivery and its erasure, in ms."""
    return (delivery.erased or 0) - (delivery.last_attempt or 0)


def _doc(ledger: Ledger, delivery: str) -> dict[str, Any]:
    doc: dict[str, Any] = json.loads(ledger.bodies[delivery])["data"]["doc"]
    return doc


def _ledger(world: World) -> Ledger:
    assert world.ledger is not None
    return world.ledger
