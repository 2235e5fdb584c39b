"""Audit Events: who did what, or was refused it. Source: spec, Audit events."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import sqlalchemy as sa

from fw_actors.documents.handle import Fw
from fw_actors.documents.json_field import JSON
from fw_actors.documents.naming import random_name
from fw_actors.documents.registry import Registry
from fw_actors.runtime import Entropy
from fw_actors.store import Statement

TARGET_CHARACTERS: Final = 140
_WRITTEN: Final = (
    "name", "owner", "creation", "modified", "modified_by", "docstatus", "idx",
    "action", "target", "detail", "actor", "request_id",
)  # fmt: skip
_DETAIL: Final = JSON()


class Action(StrEnum):
    """What an Audit Event tells of."""

    REPLAY = "webhook.replay"
    DENIED = "Denied"


class AuditLog:
    """Writes Audit Events in the transaction of what they tell of.

    One that tells of a refusal is written by a transaction of its own, since that of the refusal
    rolls back.
    """

    def __init__(self, registry: Registry, entropy: Entropy) -> None:
        table = registry.tables["Audit Event"].table
        self._entropy = entropy
        self._insert = Statement(
            sa.insert(table).values({name: sa.bindparam(name) for name in _WRITTEN})
        )

    def record(
        self, fw: Fw, action: str, target: str, detail: Mapping[str, object] | None = None
    ) -> str:
        """Write one event, with the handle's user as actor and its request id.

        `target` is kept as it was asked for, cut to 140 characters; `detail` is JSON, and holds
        neither payload nor secret. Returns: the event's name.
        """
        name, now = random_name(self._entropy), fw.tx.now
        fw.tx.run(
            self._insert,
            name=name,
            owner=fw.user,
            creation=now,
            modified=now,
            modified_by=fw.user,
            docstatus=0,
            idx=0,
            action=str(action),
            target=target[:TARGET_CHARACTERS],
            detail=None if detail is None else _DETAIL.to_store(dict(detail)),
            actor=fw.user,
            request_id=fw.request_id or None,
        )
        return name
