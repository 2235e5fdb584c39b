"""What a store raises that is no answer to a caller yet: services turn it into one.

A store that can't take the work at this moment raises `fw_actors.errors.OverloadedError` (503).
"""

from __future__ import annotations


class StoreError(Exception):
    """A statement that the database refused. Raise one of its children."""

    def __init__(self, message: str) -> None:
        if type(self) is StoreError:
            raise TypeError("StoreError is a family; raise one of its children")
        super().__init__(message)


class UniqueViolation(StoreError):
    """Raised when a row would have a key or a unique value that another row has.

    `table` is empty where the database names none (an index over an expression); `columns` are
    in the order of the index, or hold the index's own name then.
    """

    def __init__(self, table: str, columns: tuple[str, ...]) -> None:
        self.table = table
        self.columns = columns
        super().__init__(f"Another row of {table or 'this table'} has this {', '.join(columns)}.")


class ConstraintViolation(StoreError):
    """Raised when a row breaks a NOT NULL, CHECK or FOREIGN KEY rule of its table."""


class StatementError(StoreError):
    """Raised for a defect: a statement or value that the database can't take, a write in a read.

    Also for a transaction that is used after it ended.
    """
