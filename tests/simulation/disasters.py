"""Disasters of the simulated site: kills, storms, clocks that jump, keys that go, moods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from tests.simulation import post_office, receivers
from tests.simulation.node import SimulatedNode
from tests.simulation.world import OTHER_KEY, World
from tests.site_kit import SECRET_KEY

_JUMPS: Final = (-7200.0, -400.0, -61.0, -2.0, 1.5, 33.0, 61.0, 700.0, 7200.0, 90_000.0)


class Disasters:
    """Injects random faults until stopped; `repair` undoes them."""

    def __init__(self, world: World) -> None:
        self.world, self.dice = world, world.dice("disasters")
        # A seed has some of them only, so that what one hides another seed shows.
        everything: list[Callable[[], Awaitable[None]]] = [
            self._kill, self._kill, self._restart, self._second, self._storm, self._storm,
            self._moods, self._moods, self._mail_moods, self._jump, self._freeze, self._key,
        ]  # fmt: skip
        count = self.dice.randint(1, len(everything))
        self._some = self.dice.sample(everything, count)

    async def strike(self, until: float) -> None:
        """Go on until trio's clock shows `until`."""
        while True:
            await trio.sleep(self.dice.choice((0.01, 0.3, 1.0, 3.0, 8.0)))
            if trio.current_time() >= until:
                return
            await self.dice.choice(self._some)()

    async def repair(self) -> None:
        """End every disaster, and have both processes run."""
        self.world.weather.clear()
        self.world.post_office.mood = "well"
        for receiver in self.world.receivers:
            receiver.mood = "well"
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
        node = self.dice.choice(self.world.nodes)
        await node.kill()
        await trio.sleep(self.dice.choice((0.0, 0.5, 5.0, 40.0)))
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
        await self._bring_up(node, key=self.dice.choice(("", OTHER_KEY)))
        await trio.sleep(self.dice.choice((1.0, 5.0)))
        await node.stop()
        await self._bring_up(node, key=SECRET_KEY)

    async def _storm(self) -> None:
        weather = self.world.weather
        kind = self.dice.choice(("refused", "torn", "defect", "slow"))
        share = self.dice.choice((0.02, 0.3, 1.0)) if kind != "defect" else 0.02
        self.world.trace("machine", f"store: {kind} {share}")
        setattr(weather, kind, share)
        await trio.sleep(self.dice.choice((0.2, 2.0, 8.0)))
        setattr(weather, kind, 0.0)

    async def _moods(self) -> None:
        receiver = self.dice.choice(self.world.receivers)
        receiver.mood = self.dice.choice(list(receivers.MOODS))
        self.world.trace(receiver.name, f"is {receiver.mood}")

    async def _mail_moods(self) -> None:
        self.world.post_office.mood = self.dice.choice(list(post_office.MOODS))
        self.world.trace("post office", f"is {self.world.post_office.mood}")

    async def _jump(self) -> None:
        seconds = self.dice.choice(_JUMPS)
        self.world.trace("machine", f"the clock is set by {seconds} s")
        self.world.clock.jump(seconds)
        self.world.people.clock_was_set(self.world.clock.now())

    async def _freeze(self) -> None:
        incarnation = self.dice.choice(self.world.nodes).incarnation
        if incarnation is None or incarnation.dead:
            return
        self.world.trace(incarnation.label, "is frozen")
        self.world.disturbed_at = trio.current_time()
        incarnation.freeze()
        await trio.sleep(self.dice.choice((1.0, 35.0, 70.0)))
        incarnation.thaw()
        self.world.disturbed_at = trio.current_time()
        self.world.trace(incarnation.label, "goes on")
