"""Work of clients with access scopes: a scoped System Manager attempts forbidden operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fw_actors.access.recovery import link_recipient
from fw_actors.access.sessions import Caller
from fw_actors.documents import rest
from fw_actors.documents.handle import Fw
from fw_actors.errors import PermissionDeniedError
from tests.simulation.clients import MANAGER, SimulatedClient, lost, refused
from tests.simulation.event_work import EVENT

AUDITOR = Caller("auditor", frozenset({"System Manager"}))
_SCOPE = "User Permission"


class ScopeWork:
    """A client that uses the auditor, an account that is temporarily scoped."""

    def __init__(self, client: SimulatedClient) -> None:
        self.client, self.world, self.rng = client, client.world, client.rng
        self.auditor = client.world.people.auditor
        hook = client.world.steady[0]
        # What a scoped user may never do, whatever is ignored: reach for
        # Webhooks and for what tells of them, or for an account that may.
        self._refused: tuple[Callable[[Fw], Any], ...] = (
            lambda fw: rest.list_documents(fw, "Webhook Delivery", {}),
            lambda fw: rest.read(fw, "Webhook", hook),
            lambda fw: fw.get_list("Webhook"),
            lambda fw: fw.new_doc("Webhook", url="https://x.test/").insert(ignore_permissions=True),
            lambda fw: fw.as_user("admin").get_doc("Webhook", hook),
            lambda fw: (rest.list_documents(fw, "Version", {}),),
            lambda fw: link_recipient(fw, "admin"),
        )
        self._empty: tuple[Callable[[Fw], Any], ...] = (
            lambda fw: fw.get_all("Webhook"),
            lambda fw: fw.get_list("Webhook", ignore_permissions=True),
            lambda fw: fw.get_value("Webhook", hook, "url"),
            lambda fw: fw.exists("Webhook", hook),
        )

    async def change(self) -> None:
        """Scope the auditor, or lift all his scopes."""
        scoped = self.rng.random() < 0.5
        with self.auditor.change() as version:
            outcome = await self.client.write(
                f"makes the auditor scoped: {scoped}", _scope if scoped else _lift, MANAGER
            )
            if not refused(outcome):
                certain = not lost(outcome) and self.auditor.alone(version)
                self.auditor.scoped = scoped if certain else None

    async def reach(self) -> None:
        """Read Webhooks: refused or empty for a scoped user, otherwise found."""
        may_fail = self.rng.random() < 0.5
        reach = self.rng.choice(self._refused if may_fail else self._empty)
        scoped, version = self.auditor.scoped, self.auditor.version
        outcome = await self.client.write(f"reaches for webhooks, scoped: {scoped}", reach, AUDITOR)
        if lost(outcome) or scoped is None or not self.auditor.same(version):
            return
        denied = isinstance(outcome, PermissionDeniedError)
        if denied and not (scoped and may_fail):
            self.world.broke(f"the auditor was denied; scoped: {scoped}")
        if not refused(outcome) and bool(outcome) == scoped:
            self.world.broke(f"the auditor found {outcome!r}; scoped: {scoped}")

    async def write(self) -> None:
        """Emit: a scoped user's own events are sent on his behalf."""
        marker = self.client.marker()
        outcome = await self.client.write(
            f"emits {marker} as the auditor",
            lambda fw: fw.webhooks.emit(EVENT, {"marker": marker}),
            AUDITOR,
        )
        if not refused(outcome) and not lost(outcome):
            ledger = self.world.ledger
            assert ledger is not None
            if not outcome["deliveries"] and self.world.steady[0] not in ledger.switched_off:
                self.world.broke(f"{marker} of the auditor has no delivery")
            for delivery in outcome["deliveries"]:
                self.world.promises.sent[delivery] = marker

    async def replay(self) -> None:
        """Request a replay: denied to a scoped user, and recorded."""
        ledger = self.world.ledger
        assert ledger is not None
        if not ledger.state.deliveries or self.auditor.scoped is not True:
            return
        delivery, version = self.rng.choice(list(ledger.state.deliveries)), self.auditor.version
        # It is unknown until the end whether the scopes apply: both outcomes are allowed.
        for may in (True, False):
            ledger.replays.ask(delivery, may=may)
        outcome = await self.client.ask(
            f"the auditor replays {delivery}",
            lambda up: up.gateway.replay(AUDITOR, delivery, ""),
        )
        if lost(outcome):
            return
        denied = isinstance(outcome, PermissionDeniedError)
        ledger.replays.refused(delivery, may=denied)
        if denied:
            ledger.replays.denied(delivery)
        elif refused(outcome):
            ledger.replays.refused(delivery, may=True)
        else:
            ledger.replays.answered(delivery)
            if self.auditor.same(version):
                self.world.broke(f"the auditor is scoped, and replayed {delivery}")


def _scope(fw: Fw) -> None:
    """Name the one role that there always is; a second row for it is a duplicate."""
    row = {"user": "auditor", "allow": "Role", "for_value": "System Manager"}
    if not fw.get_all(_SCOPE, {"user": "auditor"}):
        rest.insert(fw, _SCOPE, row)


def _lift(fw: Fw) -> None:
    for row in fw.get_all(_SCOPE, {"user": "auditor"}):
        rest.delete(fw, _SCOPE, row["name"])
