"""A verb of a document happens whole or not at all, in the store and on the object."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from fw_actors.documents.document import DocType
from fw_actors.documents.handle import Fw


@contextmanager
def step(fw: Fw, doc: DocType, *, alone: bool = False) -> Iterator[None]:
    """Open a savepoint that also takes back what a verb wrote on the object.

    `alone`: nobody goes on after a refusal, so that the transaction's own end undoes the rows.
    """
    before = dict(doc.__dict__)
    try:
        with nullcontext() if alone else fw.tx.savepoint():
            yield
    except BaseException:
        doc.__dict__.clear()
        doc.__dict__.update(before)
        raise
