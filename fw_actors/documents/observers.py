"""What the document layer tells others, without knowing who listens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fw_actors.documents.document import DocType
    from fw_actors.documents.handle import Fw
    from fw_actors.documents.permissions import Rights
    from fw_actors.store import Tx


class Observer:
    """Is told of each change in the writer's transaction; whatever it raises undoes the change.

    Derive from it: what an observer has nothing to do with needs no method of its own. `event` is
    one of on_insert, on_update, on_submit, on_cancel, on_trash (spec, Events), or db_set: a field
    was written directly, which no receiver is told, but rules hold for it too.
    """

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Called before the row is written: the place for rules over the account's records."""

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """Called after the row is written and the controller's hooks have run."""

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """Called after a document and what links to it have the new name; no event."""


class Publisher(Protocol):
    """Records a custom event in the writer's transaction (`fw.webhooks.emit`)."""

    def emit(
        self, fw: Fw, name: str, data: object, reference: object, key: object
    ) -> dict[str, list[str]]:
        """Return `{"deliveries": [id, …]}`."""


class Accounts(Protocol):
    """Tells what a user may do."""

    def rights(self, tx: Tx, user: str) -> Rights:
        """Return a user's rights. Raises: NotFoundError."""


class Enqueue(Protocol):
    """Records a job that runs an app's function later."""

    def __call__(self, fw: Fw, function: object, arguments: dict[str, object]) -> int:
        """Return the job's number. Raises: ValidationError for what can't run later."""
