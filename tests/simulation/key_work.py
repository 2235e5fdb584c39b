"""Work of clients with API keys: make them, use them, use them beyond their rights, end them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fw_actors.access.api_keys import MadeKey
from fw_actors.access.sessions import Caller
from fw_actors.documents.handle import Fw
from fw_actors.errors import AuthenticationError, NotFoundError, PermissionDeniedError
from tests.simulation.clients import SimulatedClient, lost, refused
from tests.simulation.node import NodeProcess
from tests.simulation.people import KnownKey, SimulatedAccount

WRONG_SECRET = "0" * 32
MOST = 6  # of a user; a few are as good as a hundred


class KeyWork:
    """One client with programs of its own."""

    def __init__(self, client: SimulatedClient) -> None:
        self.client, self.world, self.rng = client, client.world, client.rng

    async def make(self) -> None:
        """Make a key, in a session."""
        account = self._one(lambda account: bool(account.sessions) and len(account.keys) < MOST)
        if account is None:
            return
        sid, version = self.rng.choice(account.sessions).sid, account.version

        async def work(up: NodeProcess) -> MadeKey:
            caller = await up.gateway.authenticate(sid)
            return await up.gateway.write(
                caller, lambda fw: up.gateway.own.make_key(fw, caller, "a program", None)
            )

        outcome = await self.client.ask(f"makes a key of {account.name}", work)
        if isinstance(outcome, MadeKey):
            state = "live" if account.same(version) else "unknown"
            account.keys.append(KnownKey(outcome.name, outcome.key, state))

    async def use(self) -> None:
        """Use a key: one that was ended is refused, one that was not is its user's."""
        account = self._one(lambda account: bool(account.keys))
        if account is None:
            return
        key = self.rng.choice(account.keys)
        state, version = key.state, account.version

        async def work(up: NodeProcess) -> Caller:
            caller = await up.gateway.keys.caller(key.text, self.client.address)
            await self._reach_too_far(up, caller)
            return caller

        outcome = await self.client.ask(f"uses a {state} key", work)
        same = account.same(version) and key.state == state
        if isinstance(outcome, Caller):
            if outcome.user != account.name or outcome.session is not None:
                self.world.broke(f"a key of {account.name} is one of {outcome.user}")
            if state == "ended":
                self.world.broke(f"a key of {account.name} lives on after it was ended")
        elif isinstance(outcome, AuthenticationError) and state == "live" and same:
            self.world.broke(f"a key of {account.name} is lost")

    async def _reach_too_far(self, up: NodeProcess, caller: Caller) -> None:
        """A key cannot make keys (A-264)."""

        def work(fw: Fw) -> Any:
            return up.gateway.own.make_key(fw, caller, "a key by a key", None)

        try:
            await up.gateway.write(caller, work)
        except PermissionDeniedError:
            return
        self.world.broke(f"a key of {caller.user} made a key")

    async def guess(self) -> None:
        """Show a key that is wrong, in its secret or altogether."""
        owner = self._one(lambda account: bool(account.keys))
        id = "0" * 12 if owner is None else self.rng.choice(owner.keys).name
        wrong = self.rng.choice((f"fwk_{id}_{WRONG_SECRET}", f"fwk_{id}", "Bearer"))
        outcome = await self.client.ask(
            "shows a wrong key", lambda up: up.gateway.keys.caller(wrong, self.client.address)
        )
        if isinstance(outcome, Caller):
            self.world.broke(f"a wrong key was taken as one of {outcome.user}")

    async def revoke(self) -> None:
        """Revoke a key, in a session; that of another user is not found."""
        owner = self._one(lambda account: bool(account.keys))
        account = self._one(lambda account: bool(account.sessions))
        if owner is None or account is None:
            return
        key = self.rng.choice(owner.keys)
        sid = self.rng.choice(account.sessions).sid
        was, key.state = key.state, "unknown" if owner is account else key.state

        async def work(up: NodeProcess) -> None:
            caller = await up.gateway.authenticate(sid)
            await up.gateway.write(
                caller, lambda fw: up.gateway.own.revoke_key(fw, caller, key.name)
            )

        outcome = await self.client.ask(f"ends a key of {owner.name}", work, hasty=False)
        if refused(outcome):
            if owner is account:
                key.state = "ended" if isinstance(outcome, NotFoundError) else "unknown"
        elif not lost(outcome):
            if owner is not account:
                self.world.broke(f"{account.name} ended a key of {owner.name}")
            key.state = "ended"
        self.world.trace(self.client.name, f"a key that was {was} is {key.state}")

    def _one(self, fits: Callable[[SimulatedAccount], bool]) -> SimulatedAccount | None:
        found = [account for account in self.world.people.accounts.values() if fits(account)]
        return self.rng.choice(found) if found else None
