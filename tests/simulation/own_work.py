"""Work of clients with their own accounts, in a session: another password, an end to the others."""

from __future__ import annotations

from typing import Any

from fw_actors.access.passwords import PasswordChange
from tests.simulation.clients import SimulatedClient, lost, refused
from tests.simulation.node import NodeProcess
from tests.simulation.people import Guesses, KnownSession, SimulatedAccount


class OwnWork:
    """A client that is signed in."""

    def __init__(self, client: SimulatedClient) -> None:
        self.client, self.world, self.rng = client, client.world, client.rng
        self._guesses = 0

    async def change_password(self) -> None:
        """Change the own password; by a guess at the current one, now and then."""
        found = self._signed_in()
        if found is None or not found[0].passwords:
            return
        account, session = found
        current, guessed = self.rng.choice(account.passwords), self.rng.random() < 0.3
        if guessed:
            self._guesses += 1
            number = f"{self.client.name}-{self._guesses}"
            current = Guesses.password(account.name, number)
        password = f"the password {self.client.marker()} of {account.name}"

        async def work(up: NodeProcess) -> Any:
            caller = await up.gateway.authenticate(session.sid)
            assert caller.session is not None
            change = PasswordChange(caller.user, caller.session, current, password)
            return await up.gateway.change_password(change)

        with account.change() as version:
            account.passwords.append(password)
            outcome = await self.client.ask(f"changes the password of {account.name}", work)
            if refused(outcome):
                account.passwords.remove(password)
                return
            certainly = not lost(outcome) and account.alone(version)
            if not lost(outcome) and guessed:
                self.world.broke(f"a wrong password of {account.name} was taken for a new one")
            if certainly:
                account.passwords[:] = [password]
            self._others_end(account, session, certainly=certainly)

    async def end_others(self) -> None:
        """End the own other sessions."""
        found = self._signed_in()
        if found is None:
            return
        account, session = found

        async def work(up: NodeProcess) -> int:
            caller = await up.gateway.authenticate(session.sid)
            return await up.gateway.write(
                caller, lambda fw: up.gateway.own.revoke_other_sessions(fw, caller)
            )

        with account.change() as version:
            outcome = await self.client.ask(f"ends other sessions of {account.name}", work)
            if not refused(outcome):
                certainly = not lost(outcome) and account.alone(version)
                self._others_end(account, session, certainly=certainly)

    def _others_end(
        self, account: SimulatedAccount, spared: KnownSession, *, certainly: bool
    ) -> None:
        """Ended sessions stay ended; the current one stays valid."""
        state = spared.state
        ended = [one for one in account.sessions if one.state == "ended"]
        account.sessions_end(certainly=certainly)
        for one in ended:
            one.state = "ended"
        spared.state = state

    def _signed_in(self) -> tuple[SimulatedAccount, KnownSession] | None:
        accounts = [one for one in self.world.people.accounts.values() if one.sessions]
        if not accounts:
            return None
        account = self.rng.choice(accounts)
        return account, self.rng.choice(account.sessions)
