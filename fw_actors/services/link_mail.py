"""A link that a System Manager sends to somebody: by mail, or, where the log is the mail, at once.

Source: interface §2: `link` is handed back only to a System Manager's request, and only when the
transport is `log`; §8: such a request writes the `mail.sent` line itself and leaves no job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fw_actors.documents import manager_guard
from fw_actors.documents.handle import Fw
from fw_actors.errors import PermissionDeniedError
from fw_actors.mail import LogTransport, Template
from fw_actors.services.access import LinkKind
from fw_actors.services.account_hold import hold
from fw_actors.services.links import Links
from fw_actors.services.mail import Outbox


@dataclass(frozen=True, slots=True)
class SentLink:
    """What the request is told. `expires` in ms; `url` only where the link is handed back."""

    expires: int
    url: str | None = field(default=None, repr=False)


class LinkMail:
    """Sends links inside a transaction."""

    def __init__(self, links: Links, outbox: Outbox, log: LogTransport | None) -> None:
        """`log` is the transport where that is `log`, else None."""
        self._links, self._outbox, self._log = links, outbox, log

    def send(self, fw: Fw, kind: LinkKind, user: str) -> SentLink:
        """Send a link of a kind to a user; older ones of that kind end at the latest with it."""
        template = Template(kind.value)
        if self._log is None:
            self._outbox.to_user(fw.tx, template, user, owner=fw.user)
            return SentLink(self._links.expiry(kind, fw.tx.now))
        link = self._links.mint(fw.tx, kind, user)
        self._outbox.by_hand(fw.tx, self._log, template, user, link.url, owner=fw.user)
        return SentLink(link.expires, link.url)


def addressed(fw: Fw, user: str) -> Any:
    """Return the User document that a System Manager means to send a link to, held: what it is
    judged by stays so until the link is made.

    Raises: PermissionDeniedError; NotFoundError.
    """
    if not fw.rights.manages:
        raise PermissionDeniedError
    hold(fw.tx, user)
    account = fw.get_doc("User", user)
    manager_guard.require_account(fw, account)
    return account
