"""The secrets that a site stores: which of them its key decrypts, and the move to another key.

Each value contains the id of its key, so a batch of a move may run twice. The store records the
rotation in progress. Until it is complete, and afterwards with any key but the new one, the site
does not open, because a service that cannot read values fails their deliveries permanently. Only
values change: no Version, no event, no `modified`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from fw_actors.documents.doctype import ROW_ID
from fw_actors.documents.fields import Vault as VaultField
from fw_actors.documents.registry import Registry
from fw_actors.documents.vault import UnreadableError, VaultCipher
from fw_actors.errors import ConfigurationError, ConflictError
from fw_actors.store import Statement, Store, Tx
from fw_actors.store.schema import META
from fw_actors.store.statement import STATEMENT_CACHE_SIZE

if TYPE_CHECKING:
    from fw_actors.ops.site import Site

BATCH: Final = 500
"""The values that one transaction decrypts, and that a start examines of each field."""
MOVED_BATCH: Final = 200
"""The values that one transaction moves; other writers wait for it."""
META_KEY: Final = "vault_rotation"

_GET: Final = Statement(sa.select(META.c.value).where(META.c.key == META_KEY))
_PUT: Final = Statement(sa.insert(META).values(key=META_KEY, value=sa.bindparam("content")))
_DROP: Final = Statement(sa.delete(META).where(META.c.key == META_KEY))

SecretFault = tuple[str, str, str]
"""DocType, field, and the reason why values cannot be decrypted."""


class StoredValue(NamedTuple):
    """A Vault value with its place; it is bound to the row `row_id`."""

    doctype: str
    field: str
    name: str
    row_id: str
    sealed: str


def vault_fields(registry: Registry) -> Iterator[tuple[str, str]]:
    """Yield each Vault field of a site, as DocType and field."""
    for table in registry.tables.values():
        for each in table.fields if table.has_vault else ():
            if isinstance(each, VaultField):
                yield table.meta.name, each.name


def stored_values(
    tx: Tx, registry: Registry, doctype: str, field: str, after: str, limit: int
) -> list[StoredValue]:
    """Return the next values of a field, in the order of the names of their documents.

    `after` is the name of the document before them, empty for the first page.
    """
    page = _page(registry.tables[doctype].table, field)
    rows = tx.rows(page, after=after, number=limit)
    return [StoredValue(doctype, field, *row) for row in rows]


@lru_cache(STATEMENT_CACHE_SIZE)
def _page(table: sa.Table, field: str) -> Statement:
    c = table.c
    number: sa.BindParameter[int] = sa.bindparam("number")
    return Statement(
        sa.select(c.name, c[ROW_ID], c[field])
        .where(c[field].is_not(None), c.name > sa.bindparam("after"))
        .order_by(c.name)
        .limit(number)
    )


class _Opened(NamedTuple):
    number: int
    faults: Counter[SecretFault]
    last: str | None  # continue after this row; None at the end


@dataclass(frozen=True)
class SecretFacts:
    """The number of stored values, and of the unreadable ones by their fault."""

    stored: int
    unreadable: Mapping[SecretFault, int]

    def complaints(self) -> Iterator[str]:
        """Return a sentence for each fault."""
        for (doctype, name, reason), count in sorted(self.unreadable.items()):
            yield f"{count} of the values in {doctype}, field {name}, cannot be decrypted: {reason}"


async def secret_facts(site: Site, *, first_batches: bool = False) -> SecretFacts:
    """Decrypt every stored value, one batch per transaction.

    `first_batches`: only the first batch of each field, which detects a wrong key in milliseconds.
    """
    stored, unreadable = 0, Counter[SecretFault]()
    for doctype, name in vault_fields(site.registry):
        after: str | None = ""
        while after is not None:
            batch = await site.store.read(partial(_open_batch, site, doctype, name, after))
            stored += batch.number
            unreadable.update(batch.faults)
            after = None if first_batches else batch.last
    return SecretFacts(stored, dict(unreadable))


def _open_batch(site: Site, doctype: str, field: str, after: str, tx: Tx) -> _Opened:
    values = stored_values(tx, site.registry, doctype, field, after, BATCH)
    faults = Counter[SecretFault]()
    for value in values:
        try:
            site.vault.open(value.sealed, doctype, field, value.row_id)
        except UnreadableError as error:
            faults[doctype, field, str(error)] += 1
    return _Opened(len(values), faults, values[-1].name if len(values) == BATCH else None)


class Rotation(msgspec.Struct, frozen=True):
    """The stored rotation: the ids of its two keys, and whether all values were moved."""

    before: str
    after: str
    done: bool


@dataclass
class FieldCount:
    """The number of values of a field under the old key, under the new key, and unreadable."""

    doctype: str
    field: str
    old: int = 0
    new: int = 0
    unreadable: int = 0


@dataclass
class Count:
    """The counts of all fields; `lost` are the values that neither key decrypts."""

    fields: list[FieldCount] = field(default_factory=list)
    lost: list[StoredValue] = field(default_factory=list)

    @property
    def old(self) -> int:
        """The number of values still to be moved."""
        return sum(each.old for each in self.fields)

    @property
    def new(self) -> int:
        """The number of values already moved."""
        return sum(each.new for each in self.fields)


def check_rotation(tx: Tx, key_id: str) -> None:
    """Reject a key that the stored values are not encrypted with.

    `key_id` is the id of the configured key, empty without one. A store without a rotation accepts
    any key.

    Raises: ConfigurationError.
    """
    rotation = _rotation(tx)
    if rotation is None:
        return
    if not rotation.done:
        raise ConfigurationError(
            [
                "The stored secrets are being moved to another FW_SECRET_KEY: finish it with "
                "`fw vault rekey` and the same two keys, or restore the backup from before."
            ]
        )
    if rotation.after != key_id:
        raise ConfigurationError(
            [
                "The stored secrets were moved to another FW_SECRET_KEY than this one: set the "
                "new key, or move them to this one by `fw vault rekey`."
            ]
        )


class Rekeying:
    """One rotation from `old` to `new`. No other process may have the site open meanwhile."""

    def __init__(
        self, store: Store, registry: Registry, old: VaultCipher, new: VaultCipher
    ) -> None:
        self._store, self._registry = store, registry
        self._old, self._new = old, new

    async def count(self) -> Count:
        """Count all values without changing any."""
        total = Count()
        for doctype, name in vault_fields(self._registry):
            count = FieldCount(doctype, name)
            page = await self._page(doctype, name)
            while page:
                total.lost += self._tally(count, page)
                page = await self._page(doctype, name, page[-1].name)
            total.fields.append(count)
        return total

    async def run(self, moved: Callable[[int], None]) -> None:
        """Move the values under the old key; `moved` is called with the size of each batch.

        Values that neither key decrypts are kept. Raises: ConflictError if another rotation is in
        progress.
        """
        await self._store.write(self._begin)
        for doctype, name in vault_fields(self._registry):
            page = await self._page(doctype, name)
            while page:
                moved(await self._store.write(partial(self._move, page)))
                page = await self._page(doctype, name, page[-1].name)
        await self._store.write(lambda tx: self._put(tx, done=True))

    def _begin(self, tx: Tx) -> None:
        previous = _rotation(tx)
        ids = {self._old.key_id, self._new.key_id}
        if previous is not None and not previous.done and {previous.before, previous.after} != ids:
            raise ConflictError(
                "A rotation between other keys is in progress: finish it first, with its two keys."
            )
        self._put(tx, done=False)

    def _put(self, tx: Tx, *, done: bool) -> None:
        rotation = Rotation(self._old.key_id, self._new.key_id, done)
        tx.run(_DROP)
        tx.run(_PUT, content=msgspec.json.encode(rotation).decode())

    def _move(self, values: list[StoredValue], tx: Tx) -> int:
        return sum(self._move_one(tx, value) for value in values)

    def _move_one(self, tx: Tx, value: StoredValue) -> bool:
        place = (value.doctype, value.field, value.row_id)
        if _opens(self._new, value):
            return False
        try:
            plain = self._old.open(value.sealed, *place)
        except UnreadableError:
            return False
        table = self._registry.tables[value.doctype].table
        is_unchanged = (table.c.name == value.name) & (table.c[value.field] == value.sealed)
        sealed = self._new.seal(plain, *place)
        return bool(tx.run(sa.update(table).where(is_unchanged).values({value.field: sealed})))

    def _tally(self, count: FieldCount, values: list[StoredValue]) -> list[StoredValue]:
        """Count values; return those that neither key decrypts."""
        unreadable = []
        for value in values:
            if _opens(self._new, value):
                count.new += 1
            elif _opens(self._old, value):
                count.old += 1
            else:
                unreadable.append(value)
        count.unreadable += len(unreadable)
        return unreadable

    async def _page(self, doctype: str, name: str, after: str = "") -> list[StoredValue]:
        return await self._store.read(
            lambda tx: stored_values(tx, self._registry, doctype, name, after, MOVED_BATCH)
        )


def _rotation(tx: Tx) -> Rotation | None:
    content = tx.scalar(_GET)
    return None if content is None else msgspec.json.decode(content, type=Rotation)


def _opens(vault: VaultCipher, value: StoredValue) -> bool:
    try:
        vault.open(value.sealed, value.doctype, value.field, value.row_id)
    except UnreadableError:
        return False
    return True
