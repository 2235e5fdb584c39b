"""The operations that the front end asks of the service behind it, as protocols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from fw_actors.access.administration import SelfService, UserAdministration
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
from fw_actors.actors.console import ConsoleView

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw
    from fw_actors.documents.rest import Described
    from fw_actors.webhooks.diagnostics import TrialResult
    from fw_actors.webhooks.replay import BulkReplays, Replayed

T = TypeVar("T")


class WhitelistedFunction(Protocol):
    """A function of an app that HTTP may call; `roles` empty means every signed-in user."""

    @property
    def roles(self) -> Sequence[str]: ...

    def validate(self, arguments: Mapping[str, Any]) -> None:
        """Raise BadRequestError for arguments that the function does not take."""

    def __call__(self, fw: Fw, /, **arguments: Any) -> Any:
        """Run in a write transaction; the value is the answer, as JSON."""


class Gateway(Protocol):
    """The service as the front end sees it.

    Refusals are the errors of `fw_actors.errors`. Every call may be cancelled, since Quart-Trio
    cancels a route whose client goes away: what must not be lost is the gateway's to settle.
    """

    async def admit_sign_in(self, address: str, request_id: str) -> None:
        """Let an address try to sign in. TooManyRequestsError."""

    async def admit_link_use(self, address: str) -> None:
        """Let an address use a link. TooManyRequestsError."""

    async def sign_in(self, attempt: SignInAttempt) -> SignedIn:
        """Make a session. AuthenticationError, TooManyRequestsError, OverloadedError."""

    async def sign_out(self, sid: str) -> None:
        """End a session; one that is unknown is no error."""

    async def forgot_password(self, usr: str, address: str) -> None:
        """Queue a recovery mail, or nothing; the caller is told the same in any case."""

    async def look_at_link(self, token: str, address: str) -> LinkFacts:
        """Return what a link's token is good for. InvalidTokenError, TooManyRequestsError."""

    async def reset_password(
        self, token: str, password: str, address: str, request_id: str
    ) -> None:
        """Spend a recovery token for a new password. As above, and PasswordPolicyError."""

    async def accept_invite(
        self, token: str, password: str, full_name: str | None, address: str, request_id: str
    ) -> None:
        """Spend an invitation token for the first password. As above, and ValidationError."""

    async def authenticate(self, sid: str) -> Caller:
        """Return whose session it is. AuthenticationError when unknown, expired or disabled."""

    async def authenticate_key(self, key: str, address: str) -> Caller:
        """Return whose API key it is. AuthenticationError, TooManyRequestsError."""

    async def change_password(self, change: PasswordChange) -> PasswordChanged:
        """Set a new password by the current one. As `sign_in`, and PasswordPolicyError."""

    @property
    def own(self) -> SelfService:
        """What users do with their own accounts, inside `read` and `write`."""

    @property
    def users(self) -> UserAdministration:
        """What System Managers do with accounts, inside `write`."""

    async def read(self, caller: Caller, fn: Callable[[Fw], T], request_id: str = "") -> T:
        """Run `fn` with a handle (D-190) that reads one snapshot as the caller."""

    async def profile(self, caller: Caller) -> Profile:
        """Return what the caller may see of the own account; waits behind no search."""

    async def write(self, caller: Caller, fn: Callable[[Fw], T], request_id: str = "") -> T:
        """Run `fn` with a handle (D-190) in one transaction as the caller."""

    async def prepare(
        self, caller: Caller, doctype: str, name: str | None, body: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the body of a write (`name` None: an insert) with what takes long done before the
        transaction. PermissionDeniedError, PasswordPolicyError, OverloadedError."""

    async def replay(self, caller: Caller, delivery: str, request_id: str) -> Replayed:
        """Send a delivery again. PermissionDeniedError (kept as an Audit Event), NotFoundError,
        ConflictError."""

    @property
    def bulk(self) -> BulkReplays:
        """Replays of all deliveries that match, inside `read` and `write`."""

    async def test_webhook(self, caller: Caller, webhook: str) -> TrialResult:
        """Send a Webhook a test event. PermissionDeniedError, NotFoundError."""

    def whitelisted(self, path: str) -> WhitelistedFunction | None:
        """Return the app's function under `<module>.<function>`, or None."""

    def note_defect(self, method: str, error: BaseException, request_id: str) -> None:
        """Keep an unhandled error for the Error Log; never fails."""

    async def ready(self) -> bool:
        """Say whether requests can be served: not while starting, draining or without a store."""

    async def snapshot(self) -> Sequence[Reading]:
        """Return the numbers of this moment, for `/metrics`."""


class Console(Protocol):
    """The running process, to look into and to act upon; every act leaves an Audit Event."""

    async def view(self, after: int = 0) -> ConsoleView:
        """Return the view that follows number `after`, as soon as it may be made."""

    async def pause(self, user: str, receiver: str, request_id: str = "") -> None:
        """Start no attempt at a receiver until it is resumed. NotFoundError."""

    async def resume(self, user: str, receiver: str, request_id: str = "") -> None:
        """Go on with a receiver. NotFoundError."""

    async def restart(self, user: str, actor: str, request_id: str = "") -> None:
        """Restart a single actor. NotFoundError."""

    async def unlock(self, user: str, identifier: str, request_id: str = "") -> None:
        """Lift a lockout early. NotFoundError."""

    async def trace(self, user: str, actor: str, request_id: str = "") -> None:
        """Trace a single actor for a minute. NotFoundError, OverloadedError."""


class Documents(Protocol):
    """Documents as JSON (D-10 to D-16): plain functions over the handle, in a transaction.

    The module `fw_actors.documents.rest` is one.
    """

    def list_documents(self, fw: Fw, doctype: str, listing: Mapping[str, Any]) -> dict[str, Any]:
        """Return `{data: […], total}`; `listing`: filters, fields, order_by, limit, start."""

    def insert(self, fw: Fw, doctype: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Insert, and submit where the body says so; return the document."""

    def read(self, fw: Fw, doctype: str, name: str) -> dict[str, Any]:
        """Return the document."""

    def save(self, fw: Fw, doctype: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Save the changed fields; return the document."""

    def delete(self, fw: Fw, doctype: str, name: str) -> dict[str, Any]:
        """Delete the document; return `{ok: true}`."""

    def submit(self, fw: Fw, doctype: str, name: str) -> dict[str, Any]:
        """Submit; return the document."""

    def cancel(self, fw: Fw, doctype: str, name: str) -> dict[str, Any]:
        """Cancel; return the document."""

    def rename(self, fw: Fw, doctype: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Give the document the name that the body says; return it."""

    def export(self, fw: Fw, doctype: str, name: str) -> dict[str, Any]:
        """Return the document without secrets."""

    def described(self, fw: Fw) -> Sequence[Described]:
        """Return what each DocType takes and shows, as far as the user may use it."""
