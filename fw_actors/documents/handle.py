"""`fw`, what application code gets: documents in one transaction for one user (interface §4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fw_actors.config import Secrets
from fw_actors.documents import query
from fw_actors.documents.document import DocType
from fw_actors.documents.lifecycle import Documents
from fw_actors.documents.observers import Accounts, Enqueue, Publisher
from fw_actors.documents.permissions import Rights
from fw_actors.errors import NotFoundError
from fw_actors.store import Tx


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
        self.db = Database(tx)
        self.webhooks = Webhooks(self, surroundings.publisher)

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

    def new_doc(self, doctype: str, **fields: Any) -> Any:
        """Return a new document that is not written yet."""
        meta = self.documents.registry.meta(doctype)
        doc: DocType = meta.cls(self, fields)
        return doc

    def get_doc(self, doctype: str, name: str) -> Any:
        """Return a document. Raises: NotFoundError, PermissionDeniedError."""
        return self.documents.read(self, doctype, name, ignore_permissions=False)

    def get_list(
        self,
        doctype: str,
        filters: query.Filters = (),
        fields: list[str] | None = None,
        order_by: str | None = None,
        limit: int | None = None,
        start: int = 0,
        *,
        ignore_permissions: bool = False,
    ) -> list[dict[str, Any]]:
        """Return rows that the user may list, as dicts."""
        meta = self.documents.registry.meta(doctype)
        if not ignore_permissions:
            self.rights.require_reach(meta)
            self.rights.require(meta, "list")
        wanted = query.Query(self, meta, filters, ignore_permissions=ignore_permissions)
        return wanted.rows(fields, order_by, limit, start)

    def get_all(
        self,
        doctype: str,
        filters: query.Filters = (),
        fields: list[str] | None = None,
        order_by: str | None = None,
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return rows whatever the permissions; the scope of Webhook and its deliveries holds."""
        return self.get_list(doctype, filters, fields, order_by, limit, ignore_permissions=True)

    def count(self, doctype: str, filters: query.Filters = ()) -> int:
        """Return how many rows the filters match, whatever the permissions (as `get_all`)."""
        meta = self.documents.registry.meta(doctype)
        return query.Query(self, meta, filters, ignore_permissions=True).count()

    def get_value(self, doctype: str, name_or_filters: str | query.Filters, field: str) -> Any:
        """Return one field of the first row that matches, or None."""
        found = self.get_all(doctype, query.by_name(name_or_filters), [field], limit=1)
        return found[0][field] if found else None

    def exists(self, doctype: str, name_or_filters: str | query.Filters) -> str | None:
        """Return the name of the first row that matches, or None."""
        found: str | None = self.get_value(doctype, name_or_filters, "name")
        return found

    def secret(self, name: str) -> str:
        """Return the secret FW_SECRET_<NAME>. Raises: NotFoundError naming the variable."""
        value = self._surroundings.secrets.get(name)
        if value is None:
            raise NotFoundError(f"FW_SECRET_{name.upper()[:60]} is not set in the environment.")
        return value

    def enqueue(self, function: Any, **arguments: Any) -> int:
        """Run a function of an app later, as the same user; return the job's number."""
        return self._surroundings.enqueue(self, function, arguments)


class Database:
    """`fw.db`: raw SQL inside the transaction."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx

    def sql(self, text: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Run one statement with `:name` parameters; return its rows as dicts.

        Raises: ValidationError for transaction, savepoint, ATTACH and PRAGMA statements.
        """
        with self._tx.savepoint():
            return self._tx.raw(text, params or {})


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
