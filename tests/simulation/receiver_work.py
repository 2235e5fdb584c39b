"""Work of clients that manage receivers: pause, limit, order, rotate secrets, cancel, erase."""

from __future__ import annotations

from typing import Any

from fw_actors.documents import rest
from fw_actors.errors import ConflictError, NotFoundError, PermissionDeniedError
from fw_actors.ops.audit import AuditLog
from fw_actors.webhooks.erasure import erasable, erase_many
from tests.simulation.clients import AGENT, MANAGER, SimulatedClient, lost, refused
from tests.simulation.ledger import FINAL, Ledger
from tests.simulation.node import NodeProcess
from tests.simulation.replay_work import RECENT

_PAUSES = (1, 2, 5, 20, None)  # seconds; None: until it is resumed
_RATES = (0, 0, 1, 2, 20)
_OVERLAPS = (0, 0, 1, 2)  # hours: a clock that is set forward ends them


class ReceiverWork:
    """A client that manages Webhooks, including those that checks rely on."""

    def __init__(self, client: SimulatedClient) -> None:
        self.client, self.world, self.rng = client, client.world, client.rng

    async def pause(self) -> None:
        """Pause a Webhook; sometimes as a user without permission."""
        hook, seconds = self._hook(), self.rng.choice(_PAUSES)
        caller = self.rng.choice((MANAGER, MANAGER, MANAGER, AGENT))
        denials = self._ledger.replays
        if caller is AGENT:
            denials.ask(hook, may=False)
        outcome = await self.client.ask(
            f"{caller.user} pauses {hook} for {seconds} s",
            lambda up: up.gateway.pause_webhook(caller, hook, seconds, ""),
        )
        self._judge_denial(caller is AGENT, hook, outcome)

    async def resume(self) -> None:
        """Resume a Webhook, paused or not."""
        hook = self._hook()
        await self.client.ask(
            f"resumes {hook}", lambda up: up.gateway.resume_webhook(MANAGER, hook, "")
        )

    async def limit(self) -> None:
        """Set the rate limit of a Webhook."""
        await self._save(self._hook(), {"rate_limit": self.rng.choice(_RATES)})

    async def order(self) -> None:
        """Have the deliveries of a document follow each other, or not any more."""
        ordering = self.rng.choice(("document", "document", "none"))
        await self._save(self._hook(), {"ordering": ordering})

    async def rotate(self) -> None:
        """Give a Webhook another secret, with an overlap or without."""
        hook, secret, overlap = self._hook(), self.client.secret(), self.rng.choice(_OVERLAPS)
        self.world.secrets[hook].append(secret)
        await self.client.ask(
            f"rotates the secret of {hook}, {overlap} h",
            lambda up: up.gateway.rotate(MANAGER, hook, secret, overlap, ""),
        )

    async def cancel(self) -> None:
        """Cancel a delivery: done if it waits, refused if it is being sent or final."""
        deliveries = self._ledger.state.deliveries
        if not deliveries:
            return
        delivery = self.rng.choice(list(deliveries)[-RECENT:])
        caller = self.rng.choice((MANAGER, MANAGER, MANAGER, AGENT))
        before, denials = self._ledger.cancelled[delivery], self._ledger.replays
        if caller is AGENT:
            denials.ask(delivery, may=False)
        outcome = await self.client.ask(
            f"{caller.user} cancels {delivery}",
            lambda up: up.gateway.cancel_delivery(caller, delivery, ""),
        )
        self._judge_denial(caller is AGENT, delivery, outcome)
        done = self._ledger.cancelled[delivery] > before
        if isinstance(outcome, str) and not lost(outcome) and not done:
            self.world.broke(f"{delivery} was cancelled, and is not")

    async def cancel_many(self) -> None:
        """Cancel what waits for one Webhook, as the command line does."""
        hook = self._hook()

        async def work(up: NodeProcess) -> Any:
            cancellations = up.site.cancellations
            return await up.site.write(
                "Administrator", lambda fw: cancellations.cancel_matching(fw, webhook=hook)
            )

        await self.client.ask(f"cancels what waits for {hook}", work)

    async def erase(self) -> None:
        """Erase a delivery: done if it is final, refused if it is not."""
        deliveries = self._ledger.state.deliveries
        if not deliveries:
            return
        delivery = self.rng.choice(list(deliveries)[-RECENT:])
        caller = self.rng.choice((MANAGER, MANAGER, MANAGER, AGENT))
        before, denials = deliveries[delivery], self._ledger.replays
        if caller is AGENT:
            denials.ask(delivery, may=False)
        outcome = await self.client.ask(
            f"{caller.user} erases {delivery}",
            lambda up: up.gateway.erase(caller, delivery, ""),
        )
        self._judge_denial(caller is AGENT, delivery, outcome)
        now = self._ledger.state.deliveries.get(delivery)
        if (
            isinstance(outcome, str)
            and not lost(outcome)
            and now is not None
            and now.erased is None
        ):
            self.world.broke(f"{delivery} was erased, and is not")
        untouched = now == before and before.status in FINAL
        if isinstance(outcome, ConflictError) and untouched:
            self.world.broke(f"{delivery} is final, and its erasure was refused")
        if isinstance(outcome, NotFoundError) and now is not None:
            self.world.broke(f"{delivery} is there, and its erasure was answered {outcome!r}")

    async def erase_many(self) -> None:
        """Erase the final deliveries of one Webhook, as the command line does."""
        hook = self._hook()

        def some(fw: Any, audit: AuditLog) -> list[str]:
            return erase_many(fw, audit, erasable(fw, webhook=hook))

        async def work(up: NodeProcess) -> Any:
            return await up.site.write("Administrator", lambda fw: some(fw, up.site.audit))

        await self.client.ask(f"erases what {hook} was sent", work)

    async def _save(self, hook: str, body: dict[str, Any]) -> None:
        await self.client.write(
            f"sets {body} of {hook}", lambda fw: rest.save(fw, "Webhook", hook, body), MANAGER
        )

    def _judge_denial(self, denied: bool, target: str, outcome: Any) -> None:
        """Only an unauthorised caller is denied, with an audit event; any caller may be refused."""
        if isinstance(outcome, PermissionDeniedError):
            self._ledger.replays.denied(target)
            if not denied:
                self.world.broke(f"a System Manager was denied {target}")
        elif denied and refused(outcome):
            self._ledger.replays.refused(target, may=False)
        elif denied and not lost(outcome):
            self.world.broke(f"{target} was changed by somebody who may not: {outcome!r}")

    def _hook(self) -> str:
        return self.rng.choice(list(self.world.secrets))

    @property
    def _ledger(self) -> Ledger:
        assert self.world.ledger is not None
        return self.world.ledger
