"""`fw`, what application code gets: documents in one transaction for one user (D-190)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from fw_actors.config import Secrets
from fw_actors.errors import (
    DuplicateError,
    NotFoundError,
    PermissionDeniedError,
    ValidationError,
)
from fw_actors.store import ConstraintViolation, Tx, UniqueViolation

if TYPE_CHECKING:
    from fw_actors.documents.lifecycle import Documents
    from fw_actors.documents.permissions import Rights

Filters = Sequence[Sequence[Any]] | Mapping[str, Any]


@dataclass(frozen=True)
class Surroundings:
    """What every handle of a site shares."""

    documents: Documents
    publisher: Publisher
    accounts: Accounts
    enqueue: Enqueue
    secrets: Secrets


class Fw:
    """A handle on the site, bound to a transaction and a user."""

    def __init__(
        self, surroundings: Surroundings, tx: Tx, rights: Rights, request_id: str = ""
    ) -> None:
        self._surroundings = surroundings
        self.tx = tx
        self.rights = rights
        self.request_id = request_id
        self.documents = surroundings.documents

    @property
    def db(self) -> Database:
        """Raw SQL."""
        return Database(self.tx)

    @property
    def webhooks(self) -> Webhooks:
        """Custom events."""  # made when asked for: kept, it would hold the handle in a circle
        return Webhooks(self, self._surroundings.publisher)

    @property
    def user(self) -> str:
        """The name of the user whose permissions hold."""
        return self.rights.user

    def as_user(self, name: str) -> Fw:
        """Return a handle on the same transaction for another user. Raises: NotFoundError.

        Access scopes can't be lifted from inside: they limit the other name as well.
        """
        rights = self._surroundings.accounts.rights(self.tx, name)
        return Fw(self._surroundings, self.tx, rights.within(self.rights), self.request_id)

    def new_doc(self, /, doctype: str, **fields: Any) -> Any:
        """Return a new document that is not written yet."""
        meta = self.documents.registry.meta(doctype)
        return meta.cls(self, fields)

    def get_doc(self, doctype: str, name: str) -> Any:
        """Return a document. Raises: NotFoundError, PermissionDeniedError."""
        return self.documents.read(self, doctype, name, ignore_permissions=False)

    def get_list(
        self,
        doctype: str,
        filters: Filters = (),
        fields: list[str] | None = None,
        order_by: str | None = None,
        limit: int | None = None,
        start: int = 0,
        *,
        ignore_permissions: bool = False,
    ) -> list[dict[str, Any]]:
        """Return rows that the user may list, as dicts."""
        return self.documents.lists.rows(
            self, doctype, filters, fields, order_by, limit, start, ignore_permissions
        )

    def get_all(
        self,
        doctype: str,
        filters: Filters = (),
        fields: list[str] | None = None,
        order_by: str | None = None,
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return rows whatever the permissions; the scope of Webhook and its deliveries holds."""
        return self.get_list(doctype, filters, fields, order_by, limit, ignore_permissions=True)

    def count(self, doctype: str, filters: Filters = ()) -> int:
        """Return how many rows the filters match, whatever the permissions (as `get_all`)."""
        return self.documents.lists.count(self, doctype, filters)

    def get_value(self, doctype: str, name_or_filters: str | Filters | None, field: str) -> Any:
        """Return one field of the first row that matches, or None; no row has no name."""
        if name_or_filters is None:  # what a link holds that leads nowhere
            return None
        if isinstance(name_or_filters, str):
            name_or_filters = [["name", "=", name_or_filters]]
        found = self.get_all(doctype, name_or_filters, [field], limit=1)
        return found[0][field] if found else None

    def exists(self, doctype: str, name_or_filters: str | Filters | None) -> str | None:
        """Return the name of the first row that matches, or None; no row has no name."""
        found: str | None = self.get_value(doctype, name_or_filters, "name")
        return found

    def secret(self, name: str) -> str:
        """Return the secret FW_SECRET_<NAME>. Raises: NotFoundError naming the variable."""
        value = self._surroundings.secrets.get(str(name))
        if value is None:
            variable = f"FW_SECRET_{str(name).upper()[:60]}"
            raise NotFoundError(f"{variable} is not set, or not for apps; ask in lower case.")
        return value

    def enqueue(self, function: Any, /, **arguments: Any) -> int:
        """Run a function of an app later, as the same user; return the job's number.

        Raises: PermissionDeniedError where that would lift access scopes (see `as_user`).
        """
        if self.rights.scoped:
            own = self._surroundings.accounts.rights(self.tx, self.user)
            if own.scopes != self.rights.scopes:
                raise PermissionDeniedError("A job would run without your access scopes.")
        return self._surroundings.enqueue(self, function, arguments)


class Database:
    """`fw.db`: raw SQL inside the transaction."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx

    def sql(self, text: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Run one statement with `:name` parameters; return its rows as dicts.

        Raises: ValidationError for transaction, savepoint, ATTACH and PRAGMA statements, and for
            a row that breaks a rule of its table; DuplicateError for one that is there already.
        """
        _validate_sql(text, params)
        try:
            with self._tx.savepoint():
                return self._tx.raw(text, params or {})
        except UniqueViolation as taken:
            raise DuplicateError(str(taken)) from None
        except ConstraintViolation as broken:
            raise ValidationError(f"The database refused the SQL: {broken}") from None


def _validate_sql(text: object, params: object) -> None:
    if not isinstance(text, str) or not isinstance(params, Mapping | None):
        raise ValidationError('SQL is text with a dict of values: {"name": value}.')
    if "\0" in text:  # PostgreSQL would run what stands before it
        raise ValidationError("The SQL holds a NUL character.")


class Webhooks:
    """`fw.webhooks`: custom events."""

    def __init__(self, fw: Fw, publisher: Publisher) -> None:
        self._fw, self._publisher = fw, publisher

    def emit(
        self,
        name: str,
        data: object,
        reference: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> dict[str, list[str]]:
        """Record an event for every subscription; returns `{"deliveries": [id, …]}`.

        Raises: ValidationError for a reserved or malformed name; DuplicateError for a used key.
        """
        with self._fw.tx.savepoint():
            return self._publisher.emit(self._fw, name, data, reference, key)


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
