"""Audit Events: who did what, or was refused it. Source: spec, Audit events."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from fw_actors.documents.handle import Fw
from fw_actors.documents.records import Records
from fw_actors.documents.registry import Registry
from fw_actors.runtime import Entropy

TARGET_CHARACTERS: Final = 140


class Action(StrEnum):
    """What an Audit Event tells of."""

    REPLAY = "webhook.replay"
    DENIED = "Denied"
    CONSOLE_PAUSE = "console.pause"
    CONSOLE_RESUME = "console.resume"
    CONSOLE_RESTART = "console.restart"
    CONSOLE_TRACE = "console.trace"
    CONSOLE_UNLOCK = "console.unlock"
    INVITE = "user.invite"
    RESEND_INVITE = "user.resend_invite"
    SEND_RESET = "user.send_password_reset"
    REVOKE_SESSIONS = "user.revoke_sessions"
    UNLOCK = "user.unlock"


class AuditLog:
    """Writes Audit Events in the transaction of what they tell of.

    One that tells of a refusal is written by a transaction of its own, since that of the refusal
    rolls back.
    """

    def __init__(self, registry: Registry, entropy: Entropy) -> None:
        self._records = Records(registry, "Audit Event", entropy)

    def record(
        self, fw: Fw, action: str, target: str, detail: Mapping[str, object] | None = None
    ) -> str:
        """Write one event, with the handle's user as actor and its request id.

        `target` is kept as it was asked for, cut to 140 characters; `detail` is JSON, and holds
        neither payload nor secret. Returns: the event's name.
        """
        return self._records.add(
            fw.tx,
            fw.user,
            action=str(action),
            target=target[:TARGET_CHARACTERS],
            detail=None if detail is None else dict(detail),
            actor=fw.user,
            request_id=fw.request_id or None,
        )
