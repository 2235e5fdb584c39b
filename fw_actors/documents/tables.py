"""The tables of DocTypes: creation, widening, indexes, and which filters an index answers."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.schema import CreateIndex, CreateTable, DropIndex

from fw_actors.documents.doctype import MAX_IDENTIFIER, ROW_ID, Meta
from fw_actors.documents.fields import Check, Field, Int, Link, Vault, type_problems
from fw_actors.errors import ConfigurationError
from fw_actors.store import Statement, Tx, UniqueViolation, partial_index
from fw_actors.store.migrations import AddColumn

_DIGEST_BYTES: Final = 4
# Of a name that ends with its digest.
_PREFIX_CHARACTERS: Final = MAX_IDENTIFIER - 2 * _DIGEST_BYTES - 1
# A column of child rows. Tables of documents do not have it, unless they once were of child rows:
# the name is reserved.
_OF_ROWS: Final = "parentfield"
_ROWS_INDEX: Final = ("parent", "parenttype", "parentfield", "idx")


def indexes_of(meta: Meta) -> Iterator[sa.Index]:
    """Yield the indexes of a declaration."""
    for field in meta.columns:
        if field.unique:
            yield sa.Index(_index_name("key", meta, field.name), field.name, unique=True)
        elif isinstance(field, Link):
            yield sa.Index(_index_name("by", meta, field.name), field.name)
    for together in meta.unique_together:
        filled = meta.partial_unique.get(together)
        if filled is None:
            yield sa.Index(_index_name("keys", meta, *together), *together, unique=True)
        else:
            yield _partial_index("keyed", meta, together, filled, unique=True)
    for together in meta.index_together:
        yield sa.Index(_index_name("by", meta, *together), *together)
    for columns, filled in meta.partial_indexes:
        yield _partial_index("with", meta, columns, filled)
    if meta.child:
        yield sa.Index(_index_name("by", meta, *_ROWS_INDEX), *_ROWS_INDEX)
    else:
        yield sa.Index(_index_name("by", meta, "creation"), "creation")


def _partial_index(
    kind: str, meta: Meta, columns: Sequence[str], filled: str, *, unique: bool = False
) -> sa.Index:
    name = _index_name(kind, meta, *columns)
    return partial_index(name, *columns, unique=unique, where=f"{filled} IS NOT NULL")


def _index_name(kind: str, meta: Meta, *columns: str) -> str:
    """Return a name that is unique among all DocTypes and that PostgreSQL does not truncate: a long
    name is cut and ends with its digest."""
    return _index_name_of_table(kind, meta.table, *columns)


def _index_name_of_table(kind: str, table: str, *columns: str) -> str:
    name = "__".join((f"{kind}_{table}", *columns))  # no table's name has a double underscore
    if len(name) <= MAX_IDENTIFIER:
        return name
    digest = hashlib.blake2b(name.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{name[:_PREFIX_CHARACTERS]}_{digest}"


def stale_indexes(meta: Meta, declared: Container[str], existing: Iterable[str]) -> list[str]:
    """Return the indexes among `existing` that are to be dropped; `declared` are those of `meta`.

    These are unique indexes that are no longer declared, because they would still refuse documents,
    and `former_indexes`. Other indexes only cost a little time and are kept.
    """
    prefixes = tuple(
        f"{kind}_{meta.table}__"[:_PREFIX_CHARACTERS] for kind in ("key", "keys", "keyed")
    )
    former = {_index_name("by", meta, *columns) for columns in meta.former_indexes}
    return sorted(
        name
        for name in existing
        if name in former or (name.startswith(prefixes) and name not in declared)
    )


_KEPT_TABLES: Final = 1_000  # of a process, whose sites mostly share their DocTypes
_KEPT_UPDATES: Final = 64  # sets of columns that change together, for one DocType


class DocTable:
    """The table of one DocType: its columns and its statements."""

    def __init__(self, meta: Meta) -> None:
        self.meta = meta
        self.fields: tuple[Field, ...] = meta.columns
        self.has_unique = bool(meta.unique_together) or any(f.unique for f in self.fields)
        self.has_vault = any(isinstance(f, Vault) for f in self.fields)
        self.table = sa.Table(
            meta.table,
            sa.MetaData(),
            *_standard_columns(meta),
            *map(_column, self.fields),
            *(sa.Column(name, sa.Text, server_default=d) for name, d in meta.internal.items()),
            *indexes_of(meta),
        )
        columns = [c for c in self.table.columns if c.name not in meta.internal]
        self.names = tuple(column.name for column in columns)
        self.creation = Statement(CreateTable(self.table))
        indexes = sorted(self.table.indexes, key=lambda i: str(i.name))
        self.indexes = {str(index.name): Statement(CreateIndex(index)) for index in indexes}
        self.unique_indexes = tuple(str(index.name) for index in indexes if index.unique)
        c = self.table.c
        unique_texts = (f.name for f in self.fields if f.unique and isinstance(f.column, sa.Text))
        self.emptying = [
            (
                Statement(sa.select(c.name).where(c[name] == "").limit(1)),
                Statement(sa.update(self.table).where(c[name] == "").values({name: None})),
            )
            for name in unique_texts
        ]
        self._insert = Statement(
            sa.insert(self.table).values({n: sa.bindparam(n) for n in self.names})
        )
        self._updates: dict[tuple[tuple[str, ...], bool], Statement] = {}
        row = sa.select(*columns).where(c.name == sa.bindparam("key"))
        name_of_row = sa.select(c.name).where(c.name == sa.bindparam("key"))
        self._select, self._exists = Statement(row), Statement(name_of_row)
        # Row locks; SQLite ignores them, since it has one writer.
        self._select_locked = Statement(row.with_for_update(key_share=True))
        self._select_shared = Statement(name_of_row.with_for_update(read=True, key_share=True))
        self._select_exclusive = Statement(name_of_row.with_for_update())
        self._delete = Statement(sa.delete(self.table).where(c.name == sa.bindparam("key")))
        if meta.child:
            parent = sa.and_(
                c.parent == sa.bindparam("parent"),
                c.parenttype == sa.bindparam("parenttype"),
                c.parentfield == sa.bindparam("parentfield"),
            )
            self._rows = Statement(sa.select(*columns).where(parent).order_by(c.idx))

    def insert(self, tx: Tx, row: Mapping[str, Any]) -> None:
        """Write a new row; `row` has every column. Raises: UniqueViolation."""
        tx.run(self._insert, **row)

    def update(self, tx: Tx, name: str, row: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        """Write the columns that differ from the stored row. Raises: UniqueViolation.

        Other columns and their indexes are not touched.
        """
        changed = tuple(n for n in self.names if row[n] != before[n])
        if changed:
            tx.run(self._update_of(changed), key=name, **{f"new_{n}": row[n] for n in changed})

    def replace(self, tx: Tx, name: str, row: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
        """Write as `update` does, if the stored row is still the version `before`; return whether
        it is. `row` has a later `modified`. Raises: UniqueViolation.
        """
        changed = tuple(n for n in self.names if row[n] != before[n])
        values = {f"new_{n}": row[n] for n in changed}
        if before["modified"] is None:  # by SQL; = does not compare null
            return tx.run(self._update_of(changed), key=name, **values) == 1
        update = self._update_of(changed, of_version=True)
        return tx.run(update, key=name, version=before["modified"], **values) == 1

    def set_columns(self, tx: Tx, name: str, values: Mapping[str, Any]) -> None:
        """Write only these columns (`db_set`, rename)."""
        changed = tuple(values)
        tx.run(self._update_of(changed), key=name, **{f"new_{n}": values[n] for n in changed})

    def _update_of(self, columns: tuple[str, ...], *, of_version: bool = False) -> Statement:
        statement = self._updates.get((columns, of_version))
        if statement is None:
            if len(self._updates) >= _KEPT_UPDATES:
                self._updates.clear()
            c = self.table.c
            update = sa.update(self.table).where(c.name == sa.bindparam("key"))
            if of_version:
                update = update.where(c.modified == sa.bindparam("version"))
            statement = self._updates[columns, of_version] = Statement(
                update.values({n: sa.bindparam(f"new_{n}") for n in columns})
            )
        return statement

    def fetch(self, tx: Tx, name: str, *, lock: bool = False) -> dict[str, Any] | None:
        """Return a row by its name; `lock` makes other writers of it wait for this transaction."""
        row = tx.one(self._select_locked if lock else self._select, key=name)
        return None if row is None else dict(zip(self.names, row, strict=True))

    def exists(self, tx: Tx, name: str) -> bool:
        """Return whether a row of this name exists."""
        return tx.one(self._exists, key=name) is not None

    def lock_shared(self, tx: Tx, name: str) -> bool:
        """Lock a row against removal and renaming until the transaction ends.

        Returns: whether the row exists.
        """
        return tx.one(self._select_shared, key=name) is not None

    def lock_exclusive(self, tx: Tx, name: str) -> None:
        """Lock a row before its removal or renaming; conflicts with `lock_shared`."""
        tx.run(self._select_exclusive, key=name)

    def delete(self, tx: Tx, name: str) -> bool:
        """Delete a row by its name; return whether it existed."""
        return tx.run(self._delete, key=name) == 1

    def insert_many(self, tx: Tx, rows: list[dict[str, Any]]) -> None:
        """Write new rows. Raises: UniqueViolation."""
        if rows:
            tx.run_many(self._insert, rows)

    def child_rows(
        self, tx: Tx, parent: str, parenttype: str, parentfield: str
    ) -> list[dict[str, Any]]:
        """Return the child rows of one table field, in order."""
        rows = tx.rows(self._rows, parent=parent, parenttype=parenttype, parentfield=parentfield)
        return [dict(zip(self.names, row, strict=True)) for row in rows]


class RowsOfParent:
    """Statements for all child rows of one document in one table, whichever field they are of.

    The table may be one that no declaration names any more.
    """

    def __init__(self, name: str) -> None:
        names = ("parent", "parenttype")
        table = sa.table(name, *(sa.column(each, sa.Text) for each in names))
        of_parent = sa.and_(*(table.c[each] == sa.bindparam(f"its_{each}") for each in names))
        self.exist = sa.select(sa.literal_column("1")).select_from(table).where(of_parent).exists()
        self._deletion = Statement(sa.delete(table).where(of_parent))
        self._move = Statement(
            sa.update(table).where(of_parent).values(parent=sa.bindparam("new_parent"))
        )

    def delete(self, tx: Tx, parent: str, parenttype: str) -> None:
        """Delete the rows."""
        tx.run(self._deletion, its_parent=parent, its_parenttype=parenttype)

    def move(self, tx: Tx, parent: str, parenttype: str, new: str) -> None:
        """Make `new`, the new name of the document, their parent."""
        tx.run(self._move, its_parent=parent, its_parenttype=parenttype, new_parent=new)


_rows_of_parent: Final = lru_cache(maxsize=_KEPT_TABLES)(RowsOfParent)
_TABLES_OF_QUERY: Final = 100  # SQLite joins at most 500 queries by UNION


def _former_tables_of_rows(tx: Tx, names: Sequence[str]) -> Iterator[str]:
    """Yield those that `make_tables` has made for a child DocType: a copy that somebody has made of
    such a table must keep its rows, and has no index of this name."""
    for name, layout in zip(names, tx.layouts(names), strict=True):
        if _index_name_of_table("by", name, *_ROWS_INDEX) in layout.indexes:
            yield name


@lru_cache(maxsize=_KEPT_UPDATES)
def _tables_with_rows(tables: tuple[str, ...]) -> Statement:
    """Return the query for the positions of the tables that have child rows of a document."""
    queries: Iterator[sa.Select[Any]] = (
        sa.select(sa.literal_column(str(position))).where(_rows_of_parent(name).exist)
        for position, name in enumerate(tables)
    )
    return Statement(sa.union_all(*queries))


def all_rows_of(
    tx: Tx, parent: str, parenttype: str, declared: Iterable[DocTable], known: Iterable[DocTable]
) -> Iterator[RowsOfParent]:
    """Yield the child rows of a document in each table that has some (D-132).

    Rows may be of a table field that the app has removed, perhaps together with their DocType, or
    that the app has on another node in a later version. The database is therefore asked for the
    tables each time.

    Args:
        declared: the tables of the document's fields, which are not searched first.
        known: those of all DocTypes; a document of a DocType that was once a child is no row.
    """
    names = sorted({each.table.name for each in declared})
    yield from map(_rows_of_parent, names)
    by_name = {each.table.name: each for each in known}
    others = [name for name in tx.tables_with(_OF_ROWS) if name not in names]
    unknown = [name for name in others if name not in by_name]
    former = set(_former_tables_of_rows(tx, unknown)) if unknown else ()
    undeclared = [
        name for name in others if name in former or (name in by_name and by_name[name].meta.child)
    ]
    for start in range(0, len(undeclared), _TABLES_OF_QUERY):
        part = tuple(undeclared[start : start + _TABLES_OF_QUERY])
        positions = tx.rows(_tables_with_rows(part), its_parent=parent, its_parenttype=parenttype)
        yield from (_rows_of_parent(part[position]) for (position,) in positions)


def table_of(doctype: type) -> DocTable:
    """Return the table of a DocType; its declaration keeps it for all sites of the process, because
    a statement with a second table of the name would join the two."""
    meta: Meta = vars(doctype)["meta"]
    kept = vars(meta)
    table: DocTable = kept.get("table_of") or kept.setdefault("table_of", DocTable(meta))
    return table


def stored_number(column: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
    """Return the number in a column, in which SQLite may have text or bytes: 0 then."""
    return sa.cast(column, sa.BigInteger)


def valid_number(doctype: type, name: str) -> sa.ColumnElement[int]:
    """Return the value of an Int field, in which raw SQL may have stored anything.

    Nothing, text, and a number below the minimum count as the default, a higher number as the
    maximum.
    """
    table = table_of(doctype)
    field = table.meta.fields[name]
    assert isinstance(field, Int)
    number = stored_number(table.table.c[name])
    return sa.case(
        (number > field.maximum, field.maximum),
        (number >= field.minimum, number),
        else_=field.default,
    )


def _column(field: Field) -> sa.Column[Any]:
    # A Check is never null, also in rows that are older than the column.
    default = str(int(bool(field.default))) if isinstance(field, Check) else None
    return sa.Column(field.name, field.column, nullable=True, server_default=default)


def _standard_columns(meta: Meta) -> Iterable[sa.Column[Any]]:
    yield sa.Column("name", sa.Text, primary_key=True, nullable=False)
    yield sa.Column("owner", sa.Text)
    yield sa.Column("creation", sa.BigInteger)
    yield sa.Column("modified", sa.BigInteger)
    yield sa.Column("modified_by", sa.Text)
    yield sa.Column("docstatus", sa.BigInteger, server_default="0")
    yield sa.Column("idx", sa.BigInteger, server_default="0")
    if meta.child:
        yield sa.Column("parent", sa.Text)
        yield sa.Column("parenttype", sa.Text)
        yield sa.Column("parentfield", sa.Text)
    yield sa.Column(ROW_ID, sa.Text)


def are_made(tx: Tx, tables: Iterable[DocTable]) -> bool:
    """Return whether `make_tables` would change nothing and find no problem.

    It only reads, so that a command can open a site while a write of another process hangs.
    """
    all_tables = list(tables)
    layouts = tx.layouts([each.table.name for each in all_tables])
    return all(
        columns.keys() >= set(each.table.columns.keys())
        and indexes >= each.indexes.keys()
        and not any(type_problems(each.meta, columns))
        and not stale_indexes(each.meta, each.indexes, indexes)
        and not any(tx.rows(query) for query, _ in each.emptying)
        for each, (columns, indexes) in zip(all_tables, layouts, strict=True)
    )


def make_tables(tx: Tx, tables: Iterable[DocTable]) -> list[str]:
    """Create missing tables, columns and indexes; never drop stored data.

    Returns: the names of the tables that were created or changed.
    Raises: ConfigurationError naming every DocType whose stored rows break a new rule, or whose
        columns were created for another type.
    """
    changed, problems = [], []
    all_tables = list(tables)
    # Checked first: CREATE INDEX waits for every writer, even if the index already exists.
    layouts = tx.layouts([each.table.name for each in all_tables])
    for each, (columns, existing_indexes) in zip(all_tables, layouts, strict=True):
        if not columns:
            tx.run(each.creation)
        missing = [c for c in each.table.columns if columns and c.name not in columns]
        for column in missing:
            tx.run(AddColumn(column))
        new_problems = list(type_problems(each.meta, columns))
        if columns and not new_problems:
            _empty_unique(tx, each)
        new_problems += _make_indexes(tx, each, existing_indexes)
        problems += [f"{each.meta.cls.__module__}: {text}" for text in new_problems]
        stale = stale_indexes(each.meta, each.indexes, existing_indexes)
        for name in stale:
            tx.run(DropIndex(sa.Index(name)))
        if stale or missing or not columns:
            changed.append(each.table.name)
    if problems:
        raise ConfigurationError(problems)
    return changed


def _empty_unique(tx: Tx, table: DocTable) -> None:
    """Replace "" by null in unique fields, as `Field.hold` does. Rows that are older than that
    rule, or than the uniqueness of the field, would otherwise share a value, and saving a submitted
    one would count as a change.
    """
    for _, statement in table.emptying:
        tx.run(statement)


def _make_indexes(tx: Tx, table: DocTable, existing: Container[str]) -> Iterable[str]:
    for name in _in_order_of_creation(tx, table):
        if name in existing:
            continue
        try:
            with tx.savepoint():
                tx.run(table.indexes[name])
        except UniqueViolation:
            (index,) = (index for index in table.table.indexes if index.name == name)
            columns = ", ".join(column.name for column in index.columns)
            yield (
                f"class {table.meta.cls.__name__}: {columns}: it cannot be unique, since stored "
                f"documents share a value{_example_of_duplicates(tx, table, index)}; change these "
                "first"
            )


def _example_of_duplicates(tx: Tx, table: DocTable, index: sa.Index) -> str:
    """Return the names of two rows that a unique index cannot both hold, as an example."""
    columns = [table.table.c[column.name] for column in index.columns]
    name = table.table.c.name
    names = tx.one(
        sa.select(sa.func.min(name), sa.func.max(name))
        .where(*(column.is_not(None) for column in columns))
        .group_by(*columns)
        .having(sa.func.count() > 1)
        .order_by(sa.func.min(name))
        .limit(1)
    )
    return "" if names is None else f", such as {names[0]} and {names[1]}"


def _in_order_of_creation(tx: Tx, table: DocTable) -> Iterator[str]:
    """Yield the names of a table's indexes in the order in which they are created.

    A refused row names the unique index that was checked first. Both databases check those that
    are created here in the same order.
    """
    unique = iter(table.unique_indexes if tx.oldest_index_first else table.unique_indexes[::-1])
    for name in table.indexes:
        yield next(unique) if name in table.unique_indexes else name


_CREATION: Final = "creation"
# An index on a state has a time as its next column, because many documents have the same state.
_TIMED: Final = (_CREATION, "modified", "last_attempt")


def split_by_index(meta: Meta, filters: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Return the filters that one index answers in the order of creation, and the other filters.

    Of several indexes, the one that answers most filters is chosen.
    """
    filters = list(filters)
    equal = {each[0] for each in filters if _is_equality(each)}
    if is_selective(meta, filters):
        return filters, []
    indexes = [*meta.index_together, *(names for names, _ in meta.partial_indexes)]
    ordered = [set(names[:-1]) for names in indexes if names[-1] == _CREATION]
    best = max((names for names in ordered if names <= equal), key=len, default=set())
    indexed: list[Any] = []
    others: list[Any] = []
    for each in filters:
        of_index = _is_equality(each) and each[0] in best
        of_time = isinstance(each, list | tuple) and each and each[0] == _CREATION
        (indexed if of_index or of_time else others).append(each)
    return indexed, others


def is_selective(meta: Meta, filters: Sequence[Any]) -> bool:
    """Return whether an index alone selects few documents, such as those of one name or
    reference."""
    equal = {each[0] for each in filters if _is_equality(each)}
    alone = {field.name for field in meta.columns if field.unique or isinstance(field, Link)}
    if equal & {"name", *alone}:
        return True
    partial = (names for names, _ in meta.partial_indexes)
    together = (*meta.unique_together, *meta.index_together, *partial)
    return any(set(names) <= equal for names in together if names[-1] not in _TIMED)


def _is_equality(each: Any) -> bool:
    return (
        isinstance(each, list | tuple)
        and len(each) == 3
        and isinstance(each[0], str)
        and each[1] == "="
        and each[2] is not None
    )
