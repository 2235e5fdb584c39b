"""Work of clients with deliveries: send them again, one or many, with the right to it or not."""

from __future__ import annotations

from typing import Any

from fw_actors.access.sessions import Caller
from fw_actors.errors import ConflictError, NotFoundError, PermissionDeniedError
from fw_actors.webhooks.replay import Replayed
from tests.simulation.clients import AGENT, MANAGER, SimulatedClient, refused
from tests.simulation.ledger import FINAL, Ledger
from tests.simulation.node import NodeProcess
from tests.simulation.stored import Delivery

MISSING = "msg_000000000000000000000000000"
A_FEW = 3
RECENT = 40


class ReplayWork:
    """A client that replays deliveries."""

    def __init__(self, client: SimulatedClient) -> None:
        self.client, self.world, self.rng = client, client.world, client.rng

    async def replay(self) -> None:
        """Replay a delivery in any state; sometimes as a user without permission."""
        delivery = self.rng.choice([*list(self._ledger.state.deliveries)[-RECENT:], MISSING])
        caller = self.rng.choice((MANAGER, MANAGER, MANAGER, AGENT))
        before = self._could_begin(delivery)
        self._ledger.replays.ask(delivery, may=caller is MANAGER)
        outcome = await self.client.ask(
            f"{caller.user} replays {delivery}",
            lambda up: up.gateway.replay(caller, delivery, ""),
        )
        self._judge(caller, delivery, outcome)
        untouched = before is not None and before == self._could_begin(delivery)
        if isinstance(outcome, ConflictError) and untouched:
            self.world.broke(f"{delivery} is final, and its replay was refused")

    async def replay_many(self) -> None:
        """Send a few again, as the command line does; one that cannot be holds up no other."""
        status = self.rng.choice(FINAL)
        names: list[str] = []

        async def work(up: NodeProcess) -> Any:
            replays = up.site.replays
            found = await up.site.read(
                "Administrator",
                lambda fw: [*replays.find(fw, [["status", "=", status]], A_FEW)],
            )
            names.extend([*found, MISSING])
            for name in names:
                self._ledger.replays.ask(name, may=True)
            return await up.site.write("Administrator", lambda fw: replays.replay_many(fw, names))

        outcome = await self.client.ask(f"replays a few that are {status}", work)
        # A refusal of the whole counts for each: none was done.
        each = outcome if isinstance(outcome, list) else [outcome] * len(names)
        for name, one in zip(names, each, strict=True):
            self._judge(MANAGER, name, one)

    def _judge(self, caller: Caller, delivery: str, outcome: Any) -> None:
        replays, may = self._ledger.replays, caller is MANAGER
        if isinstance(outcome, Replayed):
            replays.answered(delivery)
            if not may or delivery == MISSING:
                self.world.broke(f"{caller.user} replayed {delivery}")
        elif isinstance(outcome, PermissionDeniedError):
            replays.denied(delivery)
            if may:
                self.world.broke(f"a System Manager may not replay {delivery}")
        elif refused(outcome):
            replays.refused(delivery, may=may)
            if isinstance(outcome, NotFoundError) and delivery != MISSING:
                self.world.broke(f"{delivery} is there, and its replay was answered {outcome!r}")

    def _could_begin(self, delivery: str) -> tuple[Delivery, int] | None:
        """Return a delivery that may be sent again, and how often it was; None for another."""
        state = self._ledger.state
        row = state.deliveries.get(delivery)
        if row is None or row.status not in FINAL or row.webhook not in state.hooks:
            return None
        if row.erased is not None:
            return None
        return row, self._ledger.replays.begun[delivery]

    @property
    def _ledger(self) -> Ledger:
        assert self.world.ledger is not None
        return self.world.ledger
