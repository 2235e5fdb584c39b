"""What the front end calls: messages to the actors, transactions on the site."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from fw_actors.actors.counters import Counter
from fw_actors.actors.lockout import TrySignIn
from fw_actors.documents.handle import Fw
from fw_actors.documents.whitelisting import Whitelisted
from fw_actors.errors import (
    AuthenticationError,
    FwError,
    NotFoundError,
    OverloadedError,
    TooManyRequestsError,
)
from fw_actors.runtime import AskTimeout, KeyedPool, MailboxFull
from fw_actors.services import sessions
from fw_actors.services.access import Caller, LinkFacts, Profile, Reading, SignedIn, SignInAttempt
from fw_actors.services.invitation import Invitation
from fw_actors.services.new_passwords import FIELD as NEW_PASSWORD
from fw_actors.services.recovery import Recovery
from fw_actors.services.sessions import SEEN_EVERY_MS, LiveSession, Sessions
from fw_actors.services.sign_in import SignIn
from fw_actors.services.site import Site
from fw_actors.store import Tx

T = TypeVar("T")

SIGN_IN_SECONDS: Final = 60.0
_OUTCOMES: Final[Mapping[type, str]] = {
    SignedIn: "signed_in",
    AuthenticationError: "wrong",
    TooManyRequestsError: "throttled",
    OverloadedError: "overloaded",
}


class Gateway:
    """The service as the front end sees it; refusals are those of `fw_actors.errors`."""

    def __init__(
        self,
        site: Site,
        sign_in: SignIn,
        lockouts: KeyedPool,
        recovery: Recovery,
        invitation: Invitation,
        outcomes: Counter,
        readings: Callable[[], Sequence[Reading]],
    ) -> None:
        """`outcomes` counts sign-ins; `readings` gives the numbers for `/metrics`."""
        self._site, self._sign_in, self._lockouts = site, sign_in, lockouts
        self._recovery, self._invitation = recovery, invitation
        self._sessions = Sessions(site.registry)
        self._readings = readings
        self._ready = False
        self._outcomes = outcomes

    async def sign_in(self, attempt: SignInAttempt) -> SignedIn:
        """Make a session, by way of the identifier's LockoutActor."""
        identified = self._sign_in.identify(attempt.usr)
        try:
            answer = await self._lockouts[identified.key.hex()].ask(
                TrySignIn(attempt, identified), deadline=SIGN_IN_SECONDS
            )
        except (MailboxFull, AskTimeout):
            self._outcomes.add("overloaded")
            raise OverloadedError("Too many sign-ins at once. Try again in a moment.") from None
        self._count(answer)
        if isinstance(answer, FwError):
            raise answer
        return answer

    async def sign_out(self, sid: str) -> None:
        """End a session; one that is unknown is no error."""
        await self._site.store.write(lambda tx: sessions.end(tx, sid))

    async def forgot_password(self, usr: str, address: str) -> None:
        """Queue a recovery mail, or nothing; the caller is told the same in any case."""
        await self._recovery.ask(usr, address)

    async def look_at_link(self, token: str, address: str) -> LinkFacts:
        """Return what a link's token is good for. InvalidTokenError, TooManyRequestsError."""
        return await self._recovery.look(token, address)

    async def reset_password(self, token: str, password: str, address: str) -> None:
        """Spend a recovery token for a new password. As above, and PasswordPolicyError."""
        await self._recovery.reset(token, password, address)

    async def accept_invite(
        self, token: str, password: str, full_name: str | None, address: str
    ) -> None:
        """Spend an invitation token for the first password. As above, and ValidationError."""
        await self._invitation.accept(token, password, full_name, address)

    async def authenticate(self, sid: str) -> Caller:
        """Return whose session it is, with the roles of now. Raises: AuthenticationError."""

        def work(tx: Tx) -> tuple[LiveSession, tuple[str, ...], int]:
            session = self._sessions.live(tx, sid)
            return session, self._site.accounts.roles(tx, session.user), tx.now

        session, roles, now = await self._site.store.read(work)
        if now - session.last_seen >= SEEN_EVERY_MS:
            await self._site.store.write(lambda tx: sessions.seen(tx, session.id))
        return Caller(session.user, frozenset(roles), session=session.id)

    async def profile(self, caller: Caller) -> Profile:
        """Return the caller's own account."""

        def work(tx: Tx) -> Profile:
            row = self._site.registry.tables["User"].fetch(tx, caller.user)
            if row is None:
                raise AuthenticationError
            roles = self._site.accounts.roles(tx, caller.user)
            return Profile(
                row["name"], row["email"], row["fullName"] or "", row["language"] or "", roles
            )

        return await self._site.store.read(work)

    async def read(self, caller: Caller, fn: Callable[[Fw], T], request_id: str = "") -> T:
        """Run `fn` against one snapshot as the caller."""
        return await self._site.store.read(lambda tx: fn(self._handle(tx, caller, request_id)))

    async def write(self, caller: Caller, fn: Callable[[Fw], T], request_id: str = "") -> T:
        """Run `fn` in one transaction as the caller."""
        return await self._site.store.write(lambda tx: fn(self._handle(tx, caller, request_id)))

    async def prepare(
        self, caller: Caller, doctype: str, name: str | None, body: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the body of a write with what takes long done: a new password hashed."""
        if doctype != "User" or not isinstance(body.get(NEW_PASSWORD), str):
            return body

        def look(tx: Tx) -> dict[str, Any] | None:
            rights = self._handle(tx, caller, "").rights
            rights.require(self._site.registry.meta(doctype), "write" if name else "create")
            return self._site.registry.tables[doctype].fetch(tx, name) if name else {}

        stored = await self._site.store.read(look)
        if stored is None:
            return body  # the write finds that there is no such user
        return await self._site.new_passwords.prepare(body, stored)

    def whitelisted(self, path: str) -> Whitelisted | None:
        """Return the app's function under `<module>.<function>`, or None."""
        return self._site.registry.functions.get(path)

    def note_defect(self, method: str, error: BaseException, request_id: str) -> None:
        """Keep an unhandled error for the Error Log."""
        self._site.errors.note(method, error, request_id)

    def ready(self) -> bool:
        """Whether requests can be served."""
        return self._ready

    def open(self) -> None:
        """From here on the service is ready."""
        self._ready = True

    def drain(self) -> None:
        """From here on it is not: it stops."""
        self._ready = False

    def snapshot(self) -> Sequence[Reading]:
        """Return the numbers of this moment."""
        return self._readings()

    def _handle(self, tx: Tx, caller: Caller, request_id: str) -> Fw:
        """A caller who was disabled since is nobody any more."""
        try:
            return self._site.handle(tx, caller.user, request_id)
        except NotFoundError:
            raise AuthenticationError("Your session has ended. Sign in again.") from None

    def _count(self, answer: SignedIn | FwError) -> None:
        self._outcomes.add(_OUTCOMES.get(type(answer), "refused"))
