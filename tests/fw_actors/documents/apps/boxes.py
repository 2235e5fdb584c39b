"""An app for tests: a document whose hooks run the functions that a test sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fw_actors.app import Data, DocType, Float, Table, Vault

ACTS: dict[str, Callable[[Any, Any], object]] = {}  # by hook name: the function to call


class BoxItem(DocType, name="Box Item", child=True):
    """One row of a box."""

    item = Data()


class Box(DocType, naming="given", submittable=True):
    """A document with every hook that runs before an event is recorded."""

    stamp = Data()
    pass_secret = Data()
    margin = Float(permlevel=1)
    token = Vault()
    items = Table(BoxItem)

    def validate(self, fw: Any) -> None:
        _act("validate", self, fw)

    def before_save(self, fw: Any) -> None:
        _act("before_save", self, fw)

    def on_insert(self, fw: Any) -> None:
        _act("on_insert", self, fw)

    def on_update(self, fw: Any) -> None:
        _act("on_update", self, fw)

    def on_submit(self, fw: Any) -> None:
        _act("on_submit", self, fw)

    def on_cancel(self, fw: Any) -> None:
        _act("on_cancel", self, fw)

    def on_trash(self, fw: Any) -> None:
        _act("on_trash", self, fw)


def _act(hook: str, doc: Any, fw: Any) -> None:
    act = ACTS.get(hook)
    if act is not None:
        act(doc, fw)
