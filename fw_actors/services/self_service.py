"""What users do with their own accounts: profile, sessions and API keys.

The only way to one's own User record, since nobody has write permission on it (spec,
Self-service operations). A request by an API key may see and name its user; passwords, sessions
and keys are for who is there in person (interface §1, API key).
"""

from __future__ import annotations

from fw_actors.config import AuthPolicy
from fw_actors.documents import rows
from fw_actors.documents.handle import Fw
from fw_actors.errors import AuthenticationError, PermissionDeniedError
from fw_actors.mail import NewKey, Notice, Template
from fw_actors.services import sessions
from fw_actors.services.access import Caller, Profile
from fw_actors.services.account_hold import hold
from fw_actors.services.accounts import Accounts
from fw_actors.services.api_keys import ApiKeys, KeyFacts, MadeKey
from fw_actors.services.mail import Outbox
from fw_actors.services.sessions import SessionFacts


class SelfService:
    """The operations, each inside a transaction of its caller."""

    def __init__(
        self, policy: AuthPolicy, accounts: Accounts, keys: ApiKeys, outbox: Outbox
    ) -> None:
        self._policy, self._accounts, self._keys = policy, accounts, keys
        self._outbox = outbox

    def profile(self, fw: Fw) -> Profile:
        """Return the own account."""
        row = fw.documents.registry.tables["User"].fetch(fw.tx, fw.user)
        if row is None:
            raise AuthenticationError
        roles = self._accounts.roles(fw.tx, fw.user)
        return Profile(
            row["name"], row["email"], row["fullName"] or "", row["language"] or "", roles
        )

    def update_profile(self, fw: Fw, full_name: str | None, language: str | None) -> Profile:
        """Write the two fields that users write, as far as they are given; "" empties one.

        Raises: ValidationError for a value that is too long.
        """
        given = {"fullName": full_name, "language": language}
        doc = rows.load(fw.documents, fw, "User", fw.user, lock=True)  # of two at once both win
        for name, value in given.items():
            if value is not None:
                setattr(doc, name, value.strip() or None)
        doc.save(ignore_permissions=True)
        return self.profile(fw)

    def sessions(self, fw: Fw, caller: Caller) -> list[SessionFacts]:
        """Return the own live sessions."""
        in_person(caller)
        return sessions.of_user(fw.tx, fw.user, self._policy.session_idle_days)

    def revoke_session(self, fw: Fw, caller: Caller, handle: str) -> None:
        """End one of the own sessions. Raises: NotFoundError."""
        in_person(caller)
        sessions.revoke(fw.tx, fw.user, handle, self._policy.session_idle_days)

    def revoke_other_sessions(self, fw: Fw, caller: Caller) -> int:
        """End the own sessions but for this one; return how many."""
        in_person(caller)
        return sessions.end_all(fw.tx, fw.user, spare=caller.session)

    def keys(self, fw: Fw, caller: Caller) -> list[KeyFacts]:
        """Return the own API keys."""
        in_person(caller)
        return self._keys.of_user(fw.tx, fw.user)

    def make_key(
        self, fw: Fw, caller: Caller, label: str, days: int | None, address: str = ""
    ) -> MadeKey:
        """Make an API key, and tell its owner by mail: a key outlives the session that made it.

        `address` is the client's, for that message.

        Raises: PermissionDeniedError when the policy lets no user make keys; and as
            `ApiKeys.make`; AuthenticationError when the session was ended just now, by a recovery
            say, which is to leave no key behind.
        """
        session = in_person(caller)
        if not self._policy.self_service_api_keys:
            raise PermissionDeniedError("This site's users do not make API keys themselves.")
        hold(fw.tx, fw.user)
        sessions.require_live(fw.tx, session)
        made = self._keys.make(fw, label, days, self._policy.api_key_days)
        new = NewKey(made.label, made.name, fw.tx.now, made.expires, address)
        self._outbox.to_user(
            fw.tx, Template.API_KEY_MADE, fw.user, owner=fw.user, notice=Notice(new_key=new)
        )
        return made

    def revoke_key(self, fw: Fw, caller: Caller, name: str) -> None:
        """End one of the own API keys. Raises: NotFoundError."""
        in_person(caller)
        self._keys.revoke(fw, name)

    def revoke_all_keys(self, fw: Fw, caller: Caller) -> int:
        """End all of the own API keys; return how many still worked."""
        in_person(caller)
        return self._keys.revoke_all(fw)


def in_person(caller: Caller) -> str:
    """Return the handle of the caller's session. Raises: PermissionDeniedError for an API key."""
    if caller.session is None:
        raise PermissionDeniedError("An API key can't do this; sign in.")
    return caller.session
