"""The service for the front end: its parts, and operations that need several of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from fw_actors.access import sessions
from fw_actors.access.administration import AccountStates, Profile, SelfService, UserAdministration
from fw_actors.access.api_keys import KeyUse
from fw_actors.access.attempts import shown_key
from fw_actors.access.passwords import FIELD as NEW_PASSWORD
from fw_actors.access.passwords import PasswordChange, PasswordChanged, PasswordChanges
from fw_actors.access.recovery import Invitation, Recovery
from fw_actors.access.sessions import SEEN_EVERY_MS, Caller, Sessions
from fw_actors.access.sign_in import SignedIn, SignIn, SignInAttempt
from fw_actors.actors.background import read_with_deadline
from fw_actors.actors.dispatcher import receiver_health
from fw_actors.actors.lockout import AttemptLog, AttemptPasswordChange, AttemptSignIn
from fw_actors.actors.metrics import MetricSample
from fw_actors.documents import rest
from fw_actors.documents.handle import Fw
from fw_actors.documents.registry import Whitelisted
from fw_actors.errors import (
    FwError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    TooManyRequestsError,
    session_ended,
)
from fw_actors.hashing import too_many
from fw_actors.ops.error_log import ErrorRecorder
from fw_actors.ops.queued_jobs import JobControl
from fw_actors.ops.site import Site
from fw_actors.rules.delivery import DeliveryStatus
from fw_actors.rules.findings import ServiceState
from fw_actors.rules.lockout import BUSY_RETRY_SECONDS
from fw_actors.runtime import AskTimeout, KeyedPool, MailboxFull, Ref, Request
from fw_actors.store import Tx, UserShares, installation_key
from fw_actors.webhooks.diagnostics import TestEventResult, TestEventSender
from fw_actors.webhooks.erasure import erase
from fw_actors.webhooks.pacing import WebhookPause
from fw_actors.webhooks.replay import BulkReplays, Replayed
from fw_actors.webhooks.signing_keys import SecretRotation, new_secret, rotate
from fw_actors.webhooks.subscriptions import stale_webhooks

T = TypeVar("T")

ATTEMPT_SECONDS: Final = 60.0
HEALTH_SECONDS: Final = 0.5
"""The time for which a page waits for the health of receivers from the Dispatcher."""
READY_SECONDS: Final = 2.0
"""The deadline of the store for a readiness check (H-102)."""
SLOW_READ_SECONDS: Final = 0.5
SLOW_READER_SECONDS: Final = 60.0
"""The time after a slow read for which the reads of its user are limited."""
SLOW_WRITE_SECONDS: Final = 0.1
SLOW_WRITER_SECONDS: Final = 2.0
"""The time after a slow write for which the writes of its user are limited; short, because writes
that wait for each other cannot share a commit."""
WRITE_SHARE_SECONDS: Final = 30.0
"""The time for which a write waits for the slow writes of its user."""


class Gateway:
    """The service for the front end: its parts, and operations that need several of them.

    Refusals are those of `fw_actors.errors`. Every call may be cancelled, since a request ends
    when its client goes away.
    """

    def __init__(
        self,
        *,
        site: Site,
        sign_in: SignIn,
        changes: PasswordChanges,
        lockouts: KeyedPool,
        attempts: AttemptLog,
        keys: KeyUse,
        recovery: Recovery,
        invitation: Invitation,
        users: UserAdministration,
        test_events: TestEventSender,
        samples: Callable[[], Awaitable[Sequence[MetricSample]]],
        probe: Ref,
        dispatcher: Ref,
    ) -> None:
        """Args:
        site: the open site.
        sign_in, changes: the steps of sign-ins and password changes.
        lockouts: the pool with a LockoutActor for each identifier.
        attempts: logs attempts that are refused before they reach their LockoutActor.
        keys, recovery, invitation, users, test_events: operations that need more than one
            transaction, or parts beside the site.
        samples: returns the samples for `/metrics`.
        probe: a StoreProbe.
        dispatcher: the Dispatcher, which knows the receivers.
        """
        self._sign_in, self._changes = sign_in, changes
        self._lockouts, self._attempts = lockouts, attempts
        self._site, self._test_events, self._probe = site, test_events, probe
        self._dispatcher = dispatcher
        self._sessions = Sessions(site.config.auth.session_idle_days)
        self._reads = UserShares(
            site.store.readers,
            SLOW_READ_SECONDS,
            SLOW_READER_SECONDS,
            site.config.ops.query_timeout_seconds,
            "Too many of your queries are running. Try again later.",
        )
        self._writes = UserShares(
            site.store.writers,
            SLOW_WRITE_SECONDS,
            SLOW_WRITER_SECONDS,
            WRITE_SHARE_SECONDS,
            "Too many of your changes are waiting. Try again later.",
        )
        self._ready = False
        self.keys = keys
        self.recovery, self.invitation = recovery, invitation
        self.own = SelfService(site.config.auth, site.accounts, site.api_keys, site.mail_queue)
        """Operations of users on their own accounts, inside `read` and `write`."""
        self.users = users
        """Operations of System Managers on accounts, inside `write`."""
        self.account_states = AccountStates(
            site.installation_key, site.config.auth.session_idle_days
        )
        self.bulk: BulkReplays = site.bulk
        """Replays of all deliveries that match, inside `read` and `write`."""
        self.jobs: JobControl = site.jobs
        """Jobs of apps and mails, inside `read` and `write`."""
        self.functions: Mapping[str, Whitelisted] = site.registry.functions
        """The functions of apps that HTTP may call, by `<module>.<function>`."""
        self.errors: ErrorRecorder = site.errors
        self.samples = samples

    async def check_address(self, address: str, request_id: str) -> None:
        """Reject an address that has exhausted its limit, without counting an attempt.

        For requests that fail anyway; the charge of an attempt checks the same limit.

        Raises: TooManyRequestsError.
        """
        wait = await self._sign_in.address_wait(address)
        if wait is not None:
            error = TooManyRequestsError(wait)
            self._attempts.address_refused(error, address, request_id)
            raise error

    async def sign_in(self, attempt: SignInAttempt) -> SignedIn:
        """Sign in. Raises: AuthenticationError, TooManyRequestsError, OverloadedError."""
        identified = self._sign_in.identify(attempt)
        wait = await self._sign_in.cached_refusal_wait(attempt, identified)
        error: FwError
        if wait is not None:
            error = TooManyRequestsError(wait)
        else:
            try:
                return await self._ask(identified.key, AttemptSignIn(attempt, identified))
            except MailboxFull as full:
                error = self._beyond(full)
        self._attempts.sign_in(error, attempt, shown_key(identified.key))
        raise error

    async def change_password(self, change: PasswordChange) -> PasswordChanged:
        """Change a password. Raises: as `sign_in`, and PasswordPolicyError."""
        counter = self._changes.counter(change.user)
        try:
            return await self._ask(counter, AttemptPasswordChange(change, counter))
        except MailboxFull as full:
            error = self._beyond(full)
        self._attempts.change(error, change)
        raise error

    async def sign_out(self, sid: str) -> None:
        """End a session; an unknown one is not an error."""
        await self._site.store.write(lambda tx: sessions.end(tx, sid))

    async def authenticate(self, sid: str) -> Caller:
        """Return the caller of a session, with the current roles. Raises: AuthenticationError."""
        session, now = await self._site.store.read(
            lambda tx: (self._sessions.live(tx, sid), tx.now), reserved=True
        )
        if not 0 <= now - session.last_seen < SEEN_EVERY_MS:  # ahead if the clock was set back
            with suppress(OverloadedError):  # a read must not fail because a note cannot be written
                await self._site.store.write(lambda tx: sessions.record_use(tx, session.id))
        return Caller(session.user, session.roles, session=session.id)

    async def read(self, caller: Caller, fn: Callable[[Fw], T], request_id: str = "") -> T:
        """Run `fn` against one snapshot as the caller, within the share of the caller's user."""
        return await self._reads.run(
            self._site.store.read, caller.user, lambda tx: fn(self._handle(tx, caller, request_id))
        )

    async def profile(self, caller: Caller) -> Profile:
        """Return the caller's own account; does not queue behind searches."""
        return await self._site.store.read(
            lambda tx: self.own.profile(self._handle(tx, caller, "")), reserved=True
        )

    async def write(self, caller: Caller, fn: Callable[[Fw], T], request_id: str = "") -> T:
        """Run `fn` in one transaction as the caller, within the share of the caller's user."""
        return await self._writes.run(
            self._site.store.write, caller.user, lambda tx: fn(self._handle(tx, caller, request_id))
        )

    async def write_while_live(
        self, caller: Caller, fn: Callable[[Fw], T], request_id: str = ""
    ) -> T:
        """Run `fn` as `write` does, unless the caller's session or API key has ended (A-300).

        A request may wait for seconds between its authentication and its transaction, in the queue
        for hashes or for writes.
        Raises: AuthenticationError if the session or API key has ended meanwhile, or its user was
            renamed.
        """

        def work(tx: Tx) -> T:
            if caller.session is not None:
                sessions.require_live(tx, caller.session, caller.user)
            if caller.api_key is not None:
                self._site.api_keys.require_live(tx, caller.api_key, caller.user)
            return fn(self._handle(tx, caller, request_id))

        return await self._writes.run(self._site.store.write, caller.user, work)

    async def prepare(
        self, caller: Caller, doctype: str, name: str | None, body: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the body of a write with a new password hashed; `name` is None for an insert.

        Hashing takes too long for a transaction.
        Raises: PermissionDeniedError, PasswordPolicyError, OverloadedError.
        """
        if doctype != "User" or not isinstance(body.get(NEW_PASSWORD), str):
            return body

        def read(tx: Tx) -> dict[str, Any]:
            user = rest.proposed_document(self._handle(tx, caller, ""), doctype, name, body)
            return {field: user.__dict__[field] for field in ("name", "email")}

        account = await self._site.store.read(read)
        return await self._site.new_passwords.prepare(body, account)

    async def replay(self, caller: Caller, delivery: str, request_id: str) -> Replayed:
        """Send a delivery again.

        Raises: PermissionDeniedError, which is kept as an Audit Event; NotFoundError,
            ConflictError.
        """
        return _allowed(
            await self.write(caller, lambda fw: self._site.replays.replay(fw, delivery), request_id)
        )

    async def pause_webhook(
        self, caller: Caller, webhook: str, seconds: int | None, request_id: str
    ) -> WebhookPause:
        """Pause a Webhook for a time, or until it is resumed.

        Raises: PermissionDeniedError, which is kept as an Audit Event; ValidationError,
            NotFoundError.
        """
        return _allowed(
            await self.write(
                caller, lambda fw: self._site.pauses.pause(fw, webhook, seconds), request_id
            )
        )

    async def resume_webhook(self, caller: Caller, webhook: str, request_id: str) -> WebhookPause:
        """End the pause of a Webhook. Raises: as `pause_webhook`."""
        return _allowed(
            await self.write(caller, lambda fw: self._site.pauses.resume(fw, webhook), request_id)
        )

    async def rotate(
        self,
        caller: Caller,
        webhook: str,
        secret: str,
        overlap_hours: int,
        request_id: str,
        version: int | None = None,
    ) -> SecretRotation:
        """Replace the secret of a Webhook.

        Raises: as `write_while_live` and `fw_actors.webhooks.signing_keys.rotate`; a
            PermissionDeniedError is kept as an Audit Event.
        """
        try:
            return await self.write_while_live(
                caller,
                lambda fw: rotate(fw, self._site.audit, webhook, secret, overlap_hours, version),
                request_id,
            )
        except PermissionDeniedError:
            await self._record_denial(caller, webhook, request_id)
            raise

    async def erase(self, caller: Caller, delivery: str, request_id: str) -> str:
        """Erase a delivery's body; return when.

        Raises: PermissionDeniedError, which is kept as an Audit Event; NotFoundError,
            ConflictError.
        """
        return _allowed(
            await self.write(caller, lambda fw: erase(fw, self._site.audit, delivery), request_id)
        )

    async def cancel_delivery(
        self, caller: Caller, delivery: str, request_id: str
    ) -> DeliveryStatus:
        """Cancel a waiting delivery; return its new status. Raises: as `erase`."""
        return _allowed(
            await self.write(
                caller, lambda fw: self._site.cancellations.cancel(fw, delivery), request_id
            )
        )

    def new_secret(self) -> str:
        """Return a new signing secret."""
        return new_secret(self._site.entropy)

    async def test_webhook(self, caller: Caller, webhook: str, request_id: str) -> TestEventResult:
        """Send a Webhook a test event.

        Raises: PermissionDeniedError, which is kept as an Audit Event; NotFoundError.
        """
        try:
            return await self._test_events.send(webhook, lambda fn: self.read(caller, fn))
        except PermissionDeniedError:
            await self._record_denial(caller, webhook, request_id)
            raise

    async def service_state(self) -> ServiceState:
        """Return the health of the receivers that this process has sent to."""
        health = await receiver_health(self._dispatcher, HEALTH_SECONDS)
        return ServiceState(running=True, health=health)

    async def stale_webhooks(self) -> tuple[str, ...]:
        """Return the Webhooks that were changed elsewhere and whose change is not in use here."""
        return await stale_webhooks(self._site.store, self._site.subscriptions)

    async def ready(self) -> bool:
        """Return whether requests can be served. False while the service starts or drains, and
        while the store does not answer."""
        if not self._ready:
            return False
        key = await read_with_deadline(self._probe, installation_key, READY_SECONDS)
        return key is not None  # every store has one

    def open(self) -> None:
        """Report readiness from now on."""
        self._ready = True

    def drain(self) -> None:
        """Report no readiness any more: the service stops."""
        self._ready = False

    async def _ask(self, counter: bytes, request: Request[T | FwError]) -> T:
        """Ask a LockoutActor; a late one still settles.

        Raises: the error that it answers with; MailboxFull if it was never reached.
        """
        try:
            answer = await self._lockouts[counter.hex()].ask(request, deadline=ATTEMPT_SECONDS)
        except AskTimeout:
            raise OverloadedError("The check of the password took too long. Try again.") from None
        if isinstance(answer, FwError):
            raise answer
        return answer

    async def _record_denial(self, caller: Caller, target: str, request_id: str) -> None:
        """Record a denial whose own transaction wrote nothing or was rolled back (O-81)."""
        await self.write(caller, lambda fw: self._site.audit.deny(fw, target), request_id)

    def _beyond(self, full: MailboxFull) -> FwError:
        """Return the error for an attempt that was not accepted.

        It is 429 beyond the attempts in flight at one identifier (A-68), and 503 beyond the number
        of identifiers with attempts in flight.
        """
        if full.actor == self._lockouts.name:
            return too_many()
        return TooManyRequestsError(BUSY_RETRY_SECONDS)

    def _handle(self, tx: Tx, caller: Caller, request_id: str) -> Fw:
        """Return the caller's handle; a caller disabled meanwhile counts as unauthenticated."""
        try:
            return self._site.context.handle(tx, caller.user, request_id)
        except NotFoundError:
            raise session_ended() from None


def _allowed(result: T | PermissionDeniedError) -> T:
    """Return a result, or raise the refusal whose Audit Event is committed by now."""
    if isinstance(result, PermissionDeniedError):
        raise result
    return result
