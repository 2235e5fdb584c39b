"""Clients of the simulated site: their actions are random, and the responses are checked."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Final, TypeVar

import trio

from fw_actors.access.sessions import Caller
from fw_actors.documents.handle import Fw
from fw_actors.errors import FwError
from fw_actors.runtime import ActorError
from tests.simulation.faulty_store import InjectedDefect
from tests.simulation.node import NodeProcess, RequestLost
from tests.simulation.people import SimulatedAccount
from tests.simulation.world import World

T = TypeVar("T")
MANAGER: Final = Caller("admin", frozenset({"System Manager"}))
AGENT: Final = Caller("agent", frozenset({"Agent"}))
UNKNOWN: Final = "unknown"
"""Stands for an answer that never came."""


class SimulatedClient:
    """One client: sends one request after the other until it is stopped."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.rng = world.rng(name)
        self.address = f"192.0.2.{self.rng.randrange(1, 4)}"
        self._count = 0

    def marker(self) -> str:
        """Return a text that nothing else of the run holds."""
        self._count += 1
        return f"{self.name}-{self._count}"

    def account(self) -> SimulatedAccount:
        """Return some account."""
        return self.rng.choice(list(self.world.people.accounts.values()))

    def secret(self) -> str:
        """Return a signing secret."""
        return "whsec_" + base64.b64encode(self.rng.randbytes(32)).decode()

    async def ask(
        self, what: str, fn: Callable[[NodeProcess], Awaitable[T]], *, hasty: bool = True
    ) -> Any:
        """Make a request; the answer, a refusal as a value, or UNKNOWN.

        One in six clients is hasty, and goes away before the answer comes.
        """
        node = self.world.nodes[self.rng.random() < 0.2]
        if not node.accepting:
            node = self.world.nodes[0]
        patience = self.rng.choice((0.0, 0.01, 1.0)) if self._is_hasty(hasty) else inf
        outcome: Any = UNKNOWN
        try:
            with trio.move_on_after(patience):
                outcome = await node.request(fn)
        except FwError as refusal:
            outcome = refusal
        except (RequestLost, ActorError, InjectedDefect) as failure:
            outcome = UNKNOWN
            what += f" ({type(failure).__name__})"
        except Exception as error:  # an answer that the contract does not know
            self.world.broke(f"{self.name} {what}: {error!r}")
        self.world.trace(self.name, f"{what}: {_shown(outcome)}")
        return outcome

    async def write(self, what: str, fn: Callable[[Fw], T], caller: Caller = AGENT) -> Any:
        """Ask for one transaction."""
        return await self.ask(what, lambda up: up.gateway.write(caller, fn))

    def _is_hasty(self, may_be: bool) -> bool:
        return may_be and self.rng.random() < 1 / 6


def refused(outcome: Any) -> bool:
    """Whether an answer is a refusal: nothing was changed."""
    return isinstance(outcome, FwError)


def lost(outcome: Any) -> bool:
    """Whether the outcome is unknown."""
    return isinstance(outcome, str) and outcome == UNKNOWN


def _shown(outcome: Any) -> str:
    if isinstance(outcome, FwError):
        return type(outcome).__name__
    return UNKNOWN if lost(outcome) else "done"
