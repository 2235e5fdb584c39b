"""Work of clients with documents, events and webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from fw_actors.actors.sweeper import webhook_batches
from fw_actors.documents import rest
from fw_actors.documents.handle import Fw
from fw_actors.errors import DuplicateError, NotFoundError, ValidationError
from fw_actors.webhooks.erasure import PayloadSweep, payload_batches
from tests.simulation.clients import MANAGER, SimulatedClient, lost, refused
from tests.simulation.node import NodeProcess
from tests.simulation.world import PAYLOAD_SECONDS, RECEIVERS

EVENT = "sim.happened"
_NEXT = {"draft": ("update", "update", "rename", "submit", "trash"),
         "submitted": ("note", "rename", "cancel"),
         "cancelled": ("rename", "trash", "trash")}  # fmt: skip
_CHANGES = ("new", "enabled", "url", "secret", "numbers", "name", "gone")
_STATE_AFTER = {"submit": "submitted", "cancel": "cancelled", "trash": "gone"}
_EVENT_OF = {"note": "on_update"}


async def _write(step: PayloadSweep, up: NodeProcess) -> int:
    return await up.site.store.write(step)


@dataclass
class KnownTicket:
    """A ticket that was made; its constant title names the webhook of its events."""

    title: str
    state: str


class EventWork:
    """One client's tickets, events and webhooks."""

    def __init__(self, client: SimulatedClient) -> None:
        self.client, self.world, self.rng = client, client.world, client.rng
        self._tickets: dict[str, KnownTicket] = {}
        self._keys: list[str] = []

    async def emit(self) -> None:
        """Emit an event, with a key now and then; a key that was used is refused."""
        marker = self.client.marker()
        key = self._key(marker)
        fresh = key not in self._keys
        data = {"marker": marker}
        outcome = await self.client.write(
            f"emits {marker}", lambda fw: fw.webhooks.emit(EVENT, data, key=key), MANAGER
        )
        if refused(outcome):
            if isinstance(outcome, DuplicateError) and fresh:
                self.world.broke(f"{marker}: the key {key} is new, and was refused")
            self.world.promises.refused.add(marker)
        elif not lost(outcome):
            self._promise(outcome["deliveries"], marker)
        if key is not None:
            self._keys.append(key)

    async def emit_batch(self) -> None:
        """Emit a few events at once, one of them unusable; each has its own answer."""
        markers = [self.client.marker() for _ in range(self.rng.randint(1, 4))]
        events: list[dict[str, Any]] = [
            {"name": EVENT, "data": {"marker": marker}, "key": self._key(marker)}
            for marker in markers
        ]
        forged = self.client.marker()
        self.world.promises.refused.add(forged)
        events.insert(
            self.rng.randint(0, len(events)),
            {"name": "doc.forged", "data": {"marker": forged}, "key": None},
        )
        outcome = await self.client.write(
            f"emits {markers} at once", lambda fw: fw.webhooks.emit_many(events), MANAGER
        )
        if refused(outcome) or lost(outcome):
            return
        for event, result in zip(events, outcome, strict=True):
            marker = event["data"]["marker"]
            if "error" in result:
                self.world.promises.refused.add(marker)
            else:
                self._promise(result["deliveries"], marker)
            if event["key"] is not None:
                self._keys.append(event["key"])

    async def roll_back(self) -> None:
        """Emit and write, then raise: neither may remain."""
        marker = self.client.marker()
        self.world.promises.refused.add(marker)

        def work(fw: Fw) -> None:
            fw.webhooks.emit(EVENT, {"marker": marker})
            fw.new_doc("Ticket", title=marker).insert()
            fw.enqueue(self.world.job(), title=f"{marker} by a job")
            raise ValidationError("On second thoughts, no.")

        await self.client.write(f"takes {marker} back", work, MANAGER)

    async def caught(self) -> None:
        """Catch a refusal inside a transaction, which continues."""
        marker, refused_marker = self.client.marker(), self.client.marker()
        self.world.promises.refused.add(refused_marker)

        def work(fw: Fw) -> Any:
            try:
                fw.webhooks.emit("doc.forged", {"marker": refused_marker})
            except ValidationError:
                return fw.webhooks.emit(EVENT, {"marker": marker})

        outcome = await self.client.write(f"emits {marker} after a refusal", work, MANAGER)
        if not refused(outcome) and not lost(outcome):
            self._promise(outcome["deliveries"], marker)

    async def ticket(self) -> None:
        """Write a ticket, or go on with one."""
        if not self._tickets or self.rng.random() < 0.4:
            return await self._insert()
        name = self.rng.choice(list(self._tickets))
        verb = self.rng.choice(_NEXT[self._tickets[name].state])
        return await (self._rename(name) if verb == "rename" else self._change(name, verb))

    async def job(self) -> None:
        """Enqueue a function of the app."""
        title = f"{self.client.marker()} by a job"
        outcome = await self.client.write(
            f"enqueues {title}", lambda fw: fw.enqueue(self.world.job(), title=title), MANAGER
        )
        if not refused(outcome):
            self.world.promises.jobs[title] = not lost(outcome)

    async def hook(self) -> None:
        """Change a webhook that no check relies on."""
        number = self.rng.randrange(RECEIVERS)
        choice = self.rng.choice(_CHANGES)
        not_mine = {*self.world.steady, *self.world.not_to_pick}
        others = [name for name in self.world.secrets if name not in not_mine]
        if choice == "new" or not others:
            await self._new_hook(number)
            return None
        name = self.rng.choice(others)
        if choice == "name":
            return await self._rename_hook(name)
        bodies: dict[str, dict[str, Any]] = {
            "enabled": {"enabled": self.rng.choice((0, 1))},
            "url": {"url": self.world.url(number)},
            "secret": {"secret": self.client.secret()},
            "numbers": {"timeout": self.rng.choice((1, 2)), "max_attempts": self._attempts()},
        }
        body = bodies.get(choice, {})
        if "secret" in body:
            self.world.secrets[name].append(body["secret"])

        def work(fw: Fw) -> Any:
            if body:
                return rest.save(fw, "Webhook", name, body)
            return rest.delete(fw, "Webhook", name)

        outcome = await self.client.write(f"changes {choice} of {name}", work, MANAGER)
        if refused(outcome) and isinstance(outcome, NotFoundError):
            self.world.not_to_pick.add(name)  # gone; what was on its way still has its signature
        return None

    async def own_hook(self) -> None:
        """Make a webhook for an event of its own, and emit it; then switch it off.

        Where the processes are those of one service, each of them has to know (B-46).
        """
        event = f"own.{self.client.marker().replace('-', '_')}"
        made = await self._new_hook(self.rng.randrange(RECEIVERS), custom_event=event, mine=True)
        if made is None:
            return
        await self._emit_own(event, expected=1)
        off = await self.client.write(
            f"switches {made} off", lambda fw: rest.save(fw, "Webhook", made, {"enabled": 0}),
            MANAGER,
        )  # fmt: skip
        if not refused(off) and not lost(off):
            await self._emit_own(event, expected=0)

    async def _emit_own(self, event: str, *, expected: int) -> None:
        marker = self.client.marker()
        data = {"marker": marker}
        outcome = await self.client.write(
            f"emits {event}", lambda fw: fw.webhooks.emit(event, data), MANAGER
        )
        if refused(outcome) or lost(outcome) or not self.world.one_service:
            return
        if len(outcome["deliveries"]) != expected:
            self.world.broke(f"{event} has {outcome['deliveries']}, instead of {expected}")

    async def _rename_hook(self, name: str) -> None:
        """Its deliveries and their jobs follow; its secrets stay as they are."""
        new, secrets = f"hook {self.client.marker()}", self.world.secrets
        secrets[new] = secrets[name]
        self.world.not_to_pick.add(new)
        outcome = await self.client.write(
            f"renames {name}", lambda fw: rest.rename(fw, "Webhook", name, {"name": new}), MANAGER
        )
        self.world.not_to_pick.discard(new)
        if not lost(outcome):
            gone = not refused(outcome) or isinstance(outcome, NotFoundError)
            for each in ((new,) if refused(outcome) else ()) + ((name,) if gone else ()):
                secrets.pop(each, None)

    async def look_for_dead_receivers(self) -> None:
        """Take a step of the Sweeper's, often at the same time as another process (B-341)."""

        async def work(up: NodeProcess) -> Any:
            site = up.site
            return await site.store.write(
                lambda tx: site.notices.step(
                    tx, lambda tx: site.handle(tx, "Administrator"), lambda act, webhook: None
                )
            )

        await self.client.ask("looks for dead receivers", work)

    async def sweep(self) -> None:
        """Sweep what is old, as the command line does; bodies that are a few seconds old, too."""
        await self.client.ask(
            "sweeps",
            lambda up: up.site.store.write(webhook_batches(30, 0)[0]),
        )
        for step in payload_batches(PAYLOAD_SECONDS / 86_400, 3):
            await self.client.ask("sweeps bodies", partial(_write, step))

    def _key(self, marker: str) -> str | None:
        if self.rng.random() < 0.7:
            return None
        return self.rng.choice([marker, *self._keys[-2:]])

    def _attempts(self) -> int:
        return self.rng.randint(1, 5)

    def _promise(self, deliveries: list[str], marker: str) -> None:
        ledger = self.world.ledger
        assert ledger is not None
        if not deliveries and self.world.steady[0] not in ledger.switched_off:
            self.world.broke(f"{marker} has no delivery, and a webhook that wants it")
        for delivery in deliveries:
            self.world.promises.sent[delivery] = marker

    async def _new_hook(self, number: int, *, mine: bool = False, **fields: str) -> str | None:
        """Make a webhook; return its name, if known. No other client changes `mine`."""
        secret = self.client.secret()
        self.world.any_secret.append(secret)  # whatever its name will be
        body = hook_body(self.world.url(number), secret)
        body |= {"max_attempts": self._attempts(), "timeout": self.rng.choice((1, 2)), **fields}
        outcome = await self.client.write(
            "makes a webhook", lambda fw: rest.insert(fw, "Webhook", body), MANAGER
        )
        if refused(outcome) or lost(outcome):
            return None
        name: str = outcome["name"]
        if mine:
            self.world.not_to_pick.add(name)
        self.world.secrets[name] = [secret]
        return name

    async def _insert(self) -> None:
        title = self.client.marker()
        submit = self.rng.random() < 0.3
        body: dict[str, Any] = {
            "title": title, "pin": "1234", "token": "a vault's secret", "submit": submit,
            "lines": [{"item": "one"}, {"item": "two"}],
        }  # fmt: skip
        outcome = await self.client.write(
            f"inserts {title}", lambda fw: rest.insert(fw, "Ticket", body)
        )
        if refused(outcome):
            self.world.promises.refused.add(title)
        elif not lost(outcome):
            self._tickets[outcome["name"]] = KnownTicket(title, "submitted" if submit else "draft")
            self._count(title, "on_insert", certainly=True)
            if submit:
                self._count(title, "on_submit", certainly=True)

    async def _change(self, name: str, verb: str) -> None:
        text = self.client.marker()
        thrown = verb == "update" and self.rng.random() < 0.2

        def work(fw: Fw) -> Any:
            if verb == "trash":
                return rest.delete(fw, "Ticket", name)
            if verb in ("submit", "cancel"):
                return getattr(rest, verb)(fw, "Ticket", name)
            return rest.save(
                fw, "Ticket", name, {"title": "thrown away"} if thrown else {"text": text}
            )

        outcome = await self.client.write(f"{verb}s {name}", work)
        if refused(outcome):
            return
        ticket, event = self._tickets[name], _EVENT_OF.get(verb, f"on_{verb}")
        self._count(ticket.title, event, certainly=not lost(outcome))
        state = _STATE_AFTER.get(verb)
        if state == "gone" or (state is not None and lost(outcome)):
            del self._tickets[name]
        elif state is not None:
            ticket.state = state

    async def _rename(self, name: str) -> None:
        """A rename is no event; earlier deliveries about the ticket follow it."""
        new = f"ticket {self.client.marker()}"
        outcome = await self.client.write(
            f"renames {name}", lambda fw: rest.rename(fw, "Ticket", name, {"name": new})
        )
        if not refused(outcome):
            ticket = self._tickets.pop(name)
            if not lost(outcome):
                self._tickets[new] = ticket

    def _count(self, title: str, event: str, *, certainly: bool) -> None:
        counts = self.world.promises.events if certainly else self.world.promises.perhaps
        counts[title, f"doc.{event}"] += 1


def hook_body(url: str, secret: str) -> dict[str, Any]:
    """Return a Webhook for the custom event of the simulation."""
    return {
        "url": url, "event_type": "Custom", "custom_event": EVENT, "secret": secret, "timeout": 2,
    }  # fmt: skip
