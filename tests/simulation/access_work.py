"""Work of clients with accounts: sign in right and wrong, recover, invite, end sessions."""

from __future__ import annotations

from typing import Any

import trio

from fw_actors.access.links import LinkKind, Links
from fw_actors.access.recovery import LinkMail, invite
from fw_actors.access.sign_in import SignedIn, SignInAttempt
from fw_actors.documents import rest
from fw_actors.errors import AuthenticationError
from tests.simulation.clients import MANAGER, SimulatedClient, lost, refused
from tests.simulation.mail_server import ReceivedMail
from tests.simulation.node import NodeProcess
from tests.simulation.people import SESSION_MS, Guesses, KnownSession, SimulatedAccount

TEMPLATES = {"recovery": LinkKind.RECOVERY, "invitation": LinkKind.INVITATION}


class AccessWork:
    """One client at the doors of the site."""

    def __init__(self, client: SimulatedClient) -> None:
        self.client, self.world, self.rng = client, client.world, client.rng
        self._guesses = 0

    async def sign_in(self) -> None:
        """Sign in with a password that is right as far as the model knows."""
        account = self.client.account()
        if account.passwords:
            usr = self.rng.choice((account.name, account.email, account.name.upper()))
            await self._try(account, usr, self.rng.choice(account.passwords))

    async def guess(self) -> None:
        """Guess, sometimes many times at once, and also at unknown names."""
        account = self.client.account()
        usr = self.rng.choice((account.name, account.email, "nobody", "nobody@mail.example"))
        times = self.rng.choice((1, 1, 2, 5, 9))
        async with trio.open_nursery() as nursery:
            for _ in range(times):
                self._guesses += 1
                password = Guesses.password(usr, self._guesses)
                nursery.start_soon(self._try, None, usr, password)

    async def use_session(self) -> None:
        """Use a session: one that has ended is refused, one that has not is not."""
        account = self.client.account()
        if not account.sessions:
            return
        session = self.rng.choice(account.sessions)
        state, version = session.state, account.version
        expired, jumps = self.world.clock.now() >= session.expires, self.world.clock.jumps
        outcome = await self.client.ask(
            f"uses a {state} session", lambda up: up.gateway.authenticate(session.sid)
        )
        alive = not refused(outcome) and not lost(outcome)
        changed = account.changing or version != account.version or session.state != state
        if alive and state == "ended":
            self.world.broke(f"a session of {account.name} lives on after it was ended")
        if alive and expired and jumps == self.world.clock.jumps:
            self.world.broke(f"a session of {account.name} is used after its expiry")
        certain = state == "live" and not changed and account.certain
        young = self.world.clock.now() < session.certain_until
        if isinstance(outcome, AuthenticationError) and certain and young:
            self.world.broke(f"a session of {account.name} is lost")

    async def sign_out(self) -> None:
        """End a session."""
        account = self.client.account()
        if account.sessions:
            session = account.sessions.pop()
            session.state = "unknown"
            outcome = await self.client.ask(
                "signs out", lambda up: up.gateway.sign_out(session.sid), hasty=False
            )
            if not refused(outcome) and not lost(outcome):
                session.state = "ended"
                account.sessions.insert(0, session)

    async def forget(self) -> None:
        """Ask for a recovery link."""
        account = self.client.account()
        usr = self.rng.choice((account.name, account.email, "nobody"))
        await self.client.ask(
            f"forgot the password of {usr}",
            lambda up: up.gateway.recovery.request_link(usr, self.client.address),
        )

    async def invite(self) -> None:
        """Make an account, and have its invitation mailed."""
        name = f"guest-{self.client.marker()}"
        email = f"{name}@mail.example"

        async def work(up: NodeProcess) -> Any:
            links = Links(up.site.config.auth, up.site.entropy, "https://s.test")
            mail = LinkMail(links, up.site.mail_queue, None)
            return await up.gateway.write(MANAGER, lambda fw: invite(fw, mail, email, name))

        outcome = await self.client.ask(f"invites {name}", work)
        if not refused(outcome):
            account = self.world.people.add(name)
            account.enabled = None if lost(outcome) else True

    async def use_link(self) -> None:
        """Set a password by a link that came by mail, by two hands at once now and then."""
        mails = [one for one in self.world.mail_server.mails if one.message.link]
        if not mails:
            return
        mail = self.rng.choice(mails[-4:])
        account = self.world.people.of_email(mail.message.recipient)
        if account is None:
            return
        kind = TEMPLATES[mail.message.template]
        if self.rng.random() < 0.1:
            kind = LinkKind.INVITATION if kind is LinkKind.RECOVERY else LinkKind.RECOVERY
        async with trio.open_nursery() as nursery:
            for _ in range(self.rng.choice((1, 1, 2))):
                nursery.start_soon(self._spend, mail, account, kind)

    async def set_password(self) -> None:
        """Set another user's password as a System Manager."""
        account = self.client.account()
        password = f"the password {self.client.marker()} of {account.name}"
        with account.change() as version:
            account.passwords.append(password)
            outcome = await self.client.write(
                f"sets the password of {account.name}",
                lambda fw: rest.save(fw, "User", account.name, {"new_password": password}),
                MANAGER,
            )
            if refused(outcome):
                account.passwords.remove(password)
            else:
                certainly = not lost(outcome) and account.alone(version)
                self._was_set(account, password, certainly=certainly)

    def _was_set(self, account: SimulatedAccount, password: str, *, certainly: bool) -> None:
        """A password was set, or may have been; all sessions and API keys ended with it."""
        if certainly:
            account.passwords[:] = [password]
            account.invited = False
        account.sessions_end(certainly=certainly)
        account.keys_end(certainly=certainly)

    async def switch(self) -> None:
        """Disable an account, or enable it."""
        account = self.client.account()
        enabled = self.rng.choice((0, 1, 1))
        with account.change() as version:
            outcome = await self.client.write(
                f"sets enabled={enabled} of {account.name}",
                lambda fw: rest.save(fw, "User", account.name, {"enabled": enabled}),
                MANAGER,
            )
            if lost(outcome) or (not refused(outcome) and not account.alone(version)):
                account.enabled = None
                account.sessions_end(certainly=False)
                account.keys_end(certainly=False)
            elif not refused(outcome):
                account.enabled = bool(enabled)
                if not enabled:
                    account.sessions_end(certainly=True)
                    account.keys_end(certainly=True)

    async def _try(self, account: SimulatedAccount | None, usr: str, password: str) -> None:
        agent = self.rng.choice(("a phone", "a laptop/1.2", "a laptop/1.3"))
        attempt = SignInAttempt(usr, password, self.client.address, agent, None, "")
        version = account.version if account is not None else 0
        certain = account is not None and account.certain
        outcome = await self.client.ask(
            f"signs in as {usr}", lambda up: up.gateway.sign_in(attempt)
        )
        if account is None:
            if isinstance(outcome, SignedIn):
                self.world.broke(f"a wrong password of {usr} was taken")
            return
        same = certain and not account.changing and version == account.version
        if isinstance(outcome, SignedIn):
            if same and not account.enabled:
                self.world.broke(f"{usr} is disabled, and signed in")
            state = "live" if same else "unknown"
            until = min(outcome.expires, self.world.clock.now() + SESSION_MS)
            account.sessions.append(KnownSession(outcome.sid, outcome.expires, until, state))
        elif isinstance(outcome, AuthenticationError) and same and account.enabled:
            self.world.broke(f"the right password of {usr} was refused as wrong")

    async def _spend(self, mail: ReceivedMail, account: SimulatedAccount, kind: LinkKind) -> None:
        password = f"the password {self.client.marker()} of {account.name}"
        promises, clock = self.world.promises, self.world.clock
        newer = self._newer(mail)
        right_kind = TEMPLATES[mail.message.template] is kind
        late = clock.now() > mail.wall + self._minutes(kind) * 60_000
        late = late and clock.jumps == mail.jumps

        async def work(up: NodeProcess) -> None:
            if kind is LinkKind.RECOVERY:
                await up.gateway.recovery.reset(mail.token, password, self.client.address)
            else:
                await up.gateway.invitation.accept(mail.token, password, None, self.client.address)

        with account.change() as version:
            account.passwords.append(password)
            outcome = await self.client.ask(f"spends a link of {account.name}", work)
            if refused(outcome):
                account.passwords.remove(password)
                return
            if lost(outcome):
                self._was_set(account, password, certainly=False)
                return
            promises.spent[mail.token] += 1
            if promises.spent[mail.token] > 1:
                self.world.broke(f"a link of {account.name} was spent twice")
            if not right_kind or newer or late:
                why = f"kind {right_kind}, newer {newer}, late {late}"
                self.world.broke(f"a link of {account.name} that was no good was taken: {why}")
            self._was_set(account, password, certainly=account.alone(version))

    def _newer(self, mail: ReceivedMail) -> bool:
        """Whether a later link of this user and kind was made: that ended this one."""
        assert self.world.ledger is not None
        minted = self.world.ledger.minted
        made = minted.get(mail.link, 0)
        return any(
            minted.get(one.link, 0) > made
            for one in self.world.mail_server.mails
            if one.message.template == mail.message.template
            and one.message.recipient == mail.message.recipient
        )

    def _minutes(self, kind: LinkKind) -> int:
        auth = self.world.config.auth
        return auth.reset_minutes if kind is LinkKind.RECOVERY else auth.invite_hours * 60
