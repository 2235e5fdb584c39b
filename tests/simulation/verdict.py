"""The promises that must hold once a simulated site has come to rest: every promise, one by one."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tests.simulation.ledger import OPEN, Ledger
from tests.simulation.stored import Delivery
from tests.simulation.world import DELIVERED, World


def settled(world: World) -> bool:
    """Whether nothing waits in any queue any more."""
    ledger = _ledger(world)
    return not any(job.next_at is not None for job in ledger.state.jobs.values())


def judge_end(world: World) -> None:
    """Go through the promises; each that is broken is told of."""
    for judge in (
        _deliveries,
        _markers,
        _tickets,
        _references,
        _jobs,
        _mails,
        _redaction,
        _audit,
        _notices,
    ):
        for broken in judge(world):
            world.broke(broken)


def _deliveries(world: World) -> list[str]:
    """Every committed event is Sent or Failed in the end; Sent means that somebody took it."""
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
    """What was refused or rolled back is nowhere; a delivery holds what was promised."""
    ledger, found = _ledger(world), []
    for name, delivery in ledger.state.deliveries.items():
        data = json.loads(delivery.payload)["data"]
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
    told: Counter[tuple[str, str]] = Counter(
        (_doc(d)["title"], d.event)
        for d in ledger.state.deliveries.values()
        if d.webhook == world.steady[1]
    )
    found = []
    for (title, event), count in world.promises.events.items():
        most = count + world.promises.perhaps[title, event]
        if not count <= told[title, event] <= most:
            found.append(f"{told[title, event]} events {event} of {title}; it should be {count}")
    return found


def _references(world: World) -> list[str]:
    """A delivery names its document as it is called now: a rename is followed (B-184)."""
    ledger, names = _ledger(world), dict[str, set[str | None]]()
    for title, name in ledger.rows("SELECT title, name FROM doc_ticket"):
        names[title] = {name}
    for delivery in ledger.state.deliveries.values():
        if delivery.webhook == world.steady[1]:
            names.setdefault(_doc(delivery)["title"], set()).add(delivery.reference)
    return [f"the ticket {t} goes by {sorted(map(str, n))}" for t, n in names.items() if len(n) > 1]


def _jobs(world: World) -> list[str]:
    """A job of an app is done once."""
    ledger = _ledger(world)
    done = Counter(row[0] for row in ledger.rows("SELECT title FROM doc_ticket"))
    failed = ledger.rows("SELECT arguments, error FROM fw_job WHERE queue = 'app'")
    found = [f"a job was given up: {row}" for row in failed if "worker_lost" not in str(row[1])
             and "InjectedDefect" not in str(row[1]) and "internal" not in str(row[1])]  # fmt: skip
    given_up = sum(1 for _ in failed)
    for title, certain in world.promises.jobs.items():
        if done[title] > 1 or (certain and not done[title] and not given_up):
            found.append(f"the job {title} was done {done[title]} times")
    return found


def _mails(world: World) -> list[str]:
    return [f"mail {name} is {s} for ever" for name, s in _ledger(world).state.mails.items()
            if s in OPEN]  # fmt: skip


def _redaction(world: World) -> list[str]:
    """No secret in an event (B-92), and no field above permission level 0 (B-90)."""
    found = []
    for name, delivery in _ledger(world).state.deliveries.items():
        doc: dict[str, Any] | None = json.loads(delivery.payload)["data"].get("doc")
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
    found = list(_ledger(world).replays.judge(done, denied, counted))
    for (action, target, actor, _), detail in zip(rows, details, strict=True):
        keys = set(detail)
        right = {"webhook", "previous_status"} if action == "webhook.replay" else set()
        right = {"more"} if target is None else right
        if keys != right or actor not in ("admin", "agent", "auditor", "Administrator"):
            found.append(f"the Audit Event {action} of {target} by {actor} holds {sorted(keys)}")
    return found


def _notices(world: World) -> list[str]:
    """A dead receiver is told once, its end once and later, and it is disabled once (B-341)."""
    rows = _ledger(world).rows(
        "SELECT action, target, detail FROM doc_audit_event WHERE action IN"
        " ('webhook.notice', 'webhook.notice_end', 'webhook.disable')"
    )
    told = Counter((action, target, json.loads(detail)["since"]) for action, target, detail in rows)
    found = [f"{act} of {hook} since {since}: {n} times" for (act, hook, since), n in told.items()
             if n > 1]  # fmt: skip
    return found + [
        f"the end of {hook} since {since} was told, and not its beginning"
        for act, hook, since in told
        if act == "webhook.notice_end" and not told["webhook.notice", hook, since]
    ]


def _doc(delivery: Delivery) -> dict[str, Any]:
    doc: dict[str, Any] = json.loads(delivery.payload)["data"]["doc"]
    return doc


def _ledger(world: World) -> Ledger:
    assert world.ledger is not None
    return world.ledger
