"""The service's interface for the front end: messages to actors, transactions on the site."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from fw_actors.access import sessions
from fw_actors.access.administration import SelfService, UserAdministration
from fw_actors.access.api_keys import KeyUse
from fw_actors.access.passwords import FIELD as NEW_PASSWORD
from fw_actors.access.recovery import Invitation, Recovery
from fw_actors.access.sessions import SEEN_EVERY_MS, LiveSession, Sessions
from fw_actors.access.types import (
    Caller,
    LinkFacts,
    PasswordChange,
    PasswordChanged,
    Profile,
    Reading,
    SignedIn,
    SignInAttempt,
)
from fw_actors.actors.lockout import Lockouts
from fw_actors.actors.store_probe import read_with_deadline
from fw_actors.documents import rest
from fw_actors.documents.functions import Whitelisted
from fw_actors.documents.handle import Fw
from fw_actors.errors import (
    AuthenticationError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
)
from fw_actors.ops.site import Site
from fw_actors.runtime import Ref
from fw_actors.store import Tx, installation_key
from fw_actors.webhooks.diagnostics import Trial, TrialResult
from fw_actors.webhooks.replay import BulkReplays, Replayed

T = TypeVar("T")

READY_SECONDS: Final = 2.0
"""A store that takes longer counts as unavailable (H-102)."""


class Gateway:
    """The operations of the service for the front end; errors are those of `fw_actors.errors`."""

    def __init__(
        self,
        site: Site,
        lockouts: Lockouts,
        keys: KeyUse,
        recovery: Recovery,
        invitation: Invitation,
        users: UserAdministration,
        trial: Trial,
        readings: Callable[[], Awaitable[Sequence[Reading]]],
        probe: Ref,
    ) -> None:
        """`readings` returns the samples for `/metrics`; `probe` is a StoreProbe."""
        self._site, self._lockouts, self._keys = site, lockouts, keys
        self._recovery, self._invitation, self._trial = recovery, invitation, trial
        self._sessions = Sessions(site.registry, site.config.auth.session_idle_days)
        self._readings, self._probe = readings, probe
        self._ready = False
        self.own = SelfService(site.config.auth, site.accounts, site.api_keys, site.outbox)
        self.users = users

    async def admit_sign_in(self, address: str, request_id: str) -> None:
        """Check that an address may attempt to sign in. Raises: TooManyRequestsError."""
        await self._lockouts.admit_address(address, request_id)

    async def admit_link_use(self, address: str) -> None:
        """Check that an address may use a link. Raises: TooManyRequestsError."""
        await self._recovery.admit_address(address)

    async def sign_in(self, attempt: SignInAttempt) -> SignedIn:
        """Create a session, through the identifier's LockoutActor."""
        return await self._lockouts.sign_in(attempt)

    async def change_password(self, change: PasswordChange) -> PasswordChanged:
        """Change a password by the current one, through the LockoutActor of the account's name."""
        return await self._lockouts.change_password(change)

    async def sign_out(self, sid: str) -> None:
        """End a session; an unknown one is not an error."""
        await self._site.store.write(lambda tx: sessions.end(tx, sid))

    async def forgot_password(self, usr: str, address: str) -> None:
        """Queue a recovery mail if there is an account; the response never depends on it."""
        await self._recovery.ask(usr, address)

    async def look_at_link(self, token: str, address: str) -> LinkFacts:
        """Return the details of a link's token. InvalidTokenError, TooManyRequestsError."""
        return await self._recovery.link_facts(token, address)

    async def reset_password(
        self, token: str, password: str, address: str, request_id: str = ""
    ) -> None:
        """Redeem a recovery token for a new password. As above, and PasswordPolicyError."""
        await self._recovery.reset(token, password, address, request_id)

    async def accept_invite(
        self,
        token: str,
        password: str,
        full_name: str | None,
        address: str,
        request_id: str = "",
    ) -> None:
        """Redeem an invitation token for the first password. As above, and ValidationError."""
        await self._invitation.accept(token, password, full_name, address, request_id)

    async def authenticate(self, sid: str) -> Caller:
        """Return the user of a session with the current roles. Raises: AuthenticationError."""

        def work(tx: Tx) -> tuple[LiveSession, tuple[str, ...], int]:
            session = self._sessions.live(tx, sid)
            return session, self._site.accounts.roles(tx, session.user), tx.now

        session, roles, now = await self._site.store.read(work, reserved=True)
        if now - session.last_seen >= SEEN_EVERY_MS:
            with suppress(OverloadedError):  # recording the use is optional
                await self._site.store.write(lambda tx: sessions.seen(tx, session.id))
        return Caller(session.user, frozenset(roles), session=session.id)

    async def authenticate_key(self, key: str, address: str) -> Caller:
        """Return the user of an API key. Raises: AuthenticationError, TooManyRequestsError."""
        return await self._keys.caller(key, address)

    async def read(self, caller: Caller, fn: Callable[[Fw], T], request_id: str = "") -> T:
        """Run `fn` against one snapshot as the caller."""
        return await self._site.store.read(lambda tx: fn(self._handle(tx, caller, request_id)))

    async def profile(self, caller: Caller) -> Profile:
        """Return the caller's own account."""
        return await self._site.store.read(
            lambda tx: self.own.profile(self._handle(tx, caller, "")), reserved=True
        )

    async def write(self, caller: Caller, fn: Callable[[Fw], T], request_id: str = "") -> T:
        """Run `fn` in one transaction as the caller."""
        return await self._site.store.write(lambda tx: fn(self._handle(tx, caller, request_id)))

    async def prepare(
        self, caller: Caller, doctype: str, name: str | None, body: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the body of a write after its slow part: a new password is hashed."""
        if doctype != "User" or not isinstance(body.get(NEW_PASSWORD), str):
            return body

        def proposed(tx: Tx) -> dict[str, Any]:
            user = rest.proposed(self._handle(tx, caller, ""), doctype, name, body)
            return {field: user.__dict__[field] for field in ("name", "email")}

        account = await self._site.store.read(proposed)
        return await self._site.new_passwords.prepare(body, account)

    async def replay(self, caller: Caller, delivery: str, request_id: str) -> Replayed:
        """Replay a delivery. PermissionDeniedError, NotFoundError, ConflictError."""
        replayed = await self.write(
            caller, lambda fw: self._site.replays.replay(fw, delivery), request_id
        )
        if isinstance(replayed, PermissionDeniedError):
            raise replayed
        return replayed

    @property
    def bulk(self) -> BulkReplays:
        """Replays of all matching deliveries, for use inside `read` and `write`."""
        return self._site.bulk

    async def test_webhook(self, caller: Caller, webhook: str) -> TrialResult:
        """Send a test event to a Webhook. PermissionDeniedError, NotFoundError."""
        return await self._trial.send(webhook, lambda fn: self.read(caller, fn))

    def whitelisted(self, path: str) -> Whitelisted | None:
        """Return the app's function at `<module>.<function>`, or None."""
        return self._site.registry.functions.get(path)

    def note_defect(self, method: str, error: BaseException, request_id: str) -> None:
        """Queue an unhandled error for the Error Log."""
        self._site.errors.note(method, error, request_id)

    async def ready(self) -> bool:
        """Return whether requests can be served: started, not draining, store available."""
        if not self._ready:
            return False
        row = await read_with_deadline(
            self._probe, installation_key, READY_SECONDS
        )  # always exists
        return row is not None

    def open(self) -> None:
        """Start serving requests."""
        self._ready = True

    def drain(self) -> None:
        """Report not ready from now on, because the service is stopping."""
        self._ready = False

    async def snapshot(self) -> Sequence[Reading]:
        """Return the current samples."""
        return await self._readings()

    def _handle(self, tx: Tx, caller: Caller, request_id: str) -> Fw:
        """Return the caller's handle; a user disabled since is treated as unauthenticated."""
        try:
            return self._site.handle(tx, caller.user, request_id)
        except NotFoundError:
            raise AuthenticationError("Your session has ended. Sign in again.") from None
