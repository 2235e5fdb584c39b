"""The one way to a new password: stored, what it makes invalid ended, the owner told.

Source: spec, Authentication 5; interface §8: `password_changed` is sent whenever a password is
set on an account that had one.
"""

from __future__ import annotations

from fw_actors.mail import Template
from fw_actors.services.accounts import set_password
from fw_actors.services.mail import Outbox
from fw_actors.store import Tx


class Passwords:
    """Sets passwords whose hashes were made before. Plain, inside a transaction."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def set(self, tx: Tx, user: str, password_hash: str, *, owner: str) -> None:
        """Store the hash; sessions and open links end, and a message goes to the account.

        `owner` is whose request it is, for the message's record.
        """
        if set_password(tx, user, password_hash):
            self._outbox.to_user(tx, Template.PASSWORD_CHANGED, user, owner=owner)
