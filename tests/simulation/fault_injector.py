"""Faults of a simulated site: kills, failing stores, clock changes, lost keys, bad receivers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from tests.simulation import mail_server, receivers
from tests.simulation.node import SimulatedNode
from tests.simulation.world import OTHER_KEY, World
from tests.site_kit import SECRET_KEY

_JUMPS: Final = (-7200.0, -400.0, -61.0, -2.0, 1.5, 33.0, 61.0, 700.0, 7200.0, 90_000.0)


class FaultInjector:
    """Injects random faults until stopped; `repair` undoes them."""

    def __init__(self, world: World) -> None:
        self.world, self.rng = world, world.rng("disasters")
        # A seed has some of them only, so that what one hides another seed shows.
        everything: list[Callable[[], Awaitable[None]]] = [
            self._kill, self._kill, self._restart, self._second, self._fail_store, self._fail_store,
            self._change_receiver_mode, self._change_receiver_mode, self._change_mail_mode,
            self._jump, self._freeze, self._key,
        ]  # fmt: skip
        count = self.rng.randint(1, len(everything))
        self._some = self.rng.sample(everything, count)

    async def inject(self, until: float) -> None:
        """Inject faults until trio's clock shows `until`."""
        while True:
            await trio.sleep(self.rng.choice((0.01, 0.3, 1.0, 3.0, 8.0)))
            if trio.current_time() >= until:
                return
            await self.rng.choice(self._some)()

    async def repair(self) -> None:
        """End every fault, and have both processes run."""
        self.world.store_faults.clear()
        self.world.mail_server.mode = "healthy"
        for receiver in self.world.receivers:
            receiver.mode = "healthy"
        self.world.trace("machine", "is repaired")
        for node in self.world.nodes:
            if node.incarnation is not None:
                node.incarnation.thaw()
            if node.up is None:
                await self._bring_up(node)

    async def _bring_up(self, node: SimulatedNode, key: str | None = None) -> None:
        for _ in range(20):
            if await node.start(key=key):
                return
            await trio.sleep(0.5)
        self.world.broke(f"{node.name} does not start")

    async def _kill(self) -> None:
        node = self.rng.choice(self.world.nodes)
        await node.kill()
        await trio.sleep(self.rng.choice((0.0, 0.5, 5.0, 40.0)))
        await self._bring_up(node)

    async def _restart(self) -> None:
        node = self.world.nodes[0]
        await node.stop()
        await self._bring_up(node)

    async def _second(self) -> None:
        node = self.world.nodes[1]
        if node.up is not None:
            await node.stop()
        else:
            await self._bring_up(node)

    async def _key(self) -> None:
        """The key is gone, or another one, until the next start."""
        node = self.world.nodes[0]
        await node.stop()
        await self._bring_up(node, key=self.rng.choice(("", OTHER_KEY)))
        await trio.sleep(self.rng.choice((1.0, 5.0)))
        await node.stop()
        await self._bring_up(node, key=SECRET_KEY)

    async def _fail_store(self) -> None:
        store_faults = self.world.store_faults
        kind = self.rng.choice(("refused", "torn", "defect", "slow"))
        share = self.rng.choice((0.02, 0.3, 1.0)) if kind != "defect" else 0.02
        self.world.trace("machine", f"store: {kind} {share}")
        setattr(store_faults, kind, share)
        await trio.sleep(self.rng.choice((0.2, 2.0, 8.0)))
        setattr(store_faults, kind, 0.0)

    async def _change_receiver_mode(self) -> None:
        receiver = self.rng.choice(self.world.receivers)
        receiver.mode = self.rng.choice(list(receivers.MODES))
        self.world.trace(receiver.name, f"is {receiver.mode}")

    async def _change_mail_mode(self) -> None:
        self.world.mail_server.mode = self.rng.choice(list(mail_server.MODES))
        self.world.trace("mail server", f"is {self.world.mail_server.mode}")

    async def _jump(self) -> None:
        seconds = self.rng.choice(_JUMPS)
        self.world.trace("machine", f"the clock is set by {seconds} s")
        self.world.clock.jump(seconds)
        self.world.people.clock_was_set(self.world.clock.now())

    async def _freeze(self) -> None:
        incarnation = self.rng.choice(self.world.nodes).incarnation
        if incarnation is None or incarnation.dead:
            return
        self.world.trace(incarnation.label, "is frozen")
        self.world.disturbed_at = trio.current_time()
        incarnation.freeze()
        await trio.sleep(self.rng.choice((1.0, 35.0, 70.0)))
        incarnation.thaw()
        self.world.disturbed_at = trio.current_time()
        self.world.trace(incarnation.label, "goes on")
