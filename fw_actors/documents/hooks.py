"""Calls hooks and observers of documents; both must be plain functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from fw_actors.documents.handle import DocType, Fw
from fw_actors.errors import ValidationError, refuse_coroutine
from fw_actors.rules.safe_output import raised_at
from fw_actors.store import SlowCallback

AFTER_COMMIT = "after_commit"

RecordDefect = Callable[[str, BaseException, str], None]
"""Takes the failed part (`Sales Order.after_commit`), the exception, and the request's id."""

DB_SET: Final = "db_set"  # passed to observers for a field written directly; never an event
DELETION: Final = "on_trash"
CHANGES: Final = ("on_update", "on_submit", "on_cancel", DB_SET)
"""The changes for which observers of a stored document are called."""
_ALL: Final = frozenset({"on_insert", *CHANGES, DELETION})


def call_plainly(name: str, function: Callable[..., Any], /, *args: Any, **arguments: Any) -> Any:
    """Call an app's function and return its value; errors of this module show it as `name`.

    Exceptions of the function pass through.

    Raises: RuntimeError if the function raises SystemExit, KeyboardInterrupt or GeneratorExit,
        which would end the process for all users, or if it returns an unfinished coroutine.
    """
    try:
        value = function(*args, **arguments)
    except Exception:
        raise
    except BaseException as end:  # SystemExit, KeyboardInterrupt, GeneratorExit
        raise RuntimeError(f"{name} would have ended the process: {raised_at(end)}") from end
    if value is not None:
        refuse_coroutine(name, value)
    return value


def run_hook(fw: Fw, doc: DocType, name: str) -> None:
    """Call a hook if the class has it; its exceptions undo the writer's transaction.

    Raises: ValidationError if the hook has changed the name of a stored document: the verb would
        continue with another document's rows.
    """
    if name not in doc.meta.hooks:
        return
    call_plainly(f"{doc.meta.name}.{name}", getattr(type(doc), name), doc, fw)
    check_name(doc)


def check_name(doc: DocType) -> None:
    """Refuse a changed name on a stored document. Raises: ValidationError."""
    if doc._stored is not None and doc.name != doc._stored["name"]:
        raise ValidationError("name cannot be written: use rename.", field="name")


def run_after_commit(fw: Fw, doc: DocType, record_defect: RecordDefect) -> None:
    """Call the hook `after_commit`, which the class has, once the change is durable.

    It is called in a thread, because an app may take long. The handle cannot be used then, and the
    hook cannot undo the change: its errors are recorded as defects.
    """
    hook, request_id = f"{doc.doctype}.{AFTER_COMMIT}", fw.request_id
    fw.tx.after_commit(
        SlowCallback(
            lambda: run_hook(fw, doc, AFTER_COMMIT),
            lambda error: record_defect(hook, error, request_id),
        )
    )


class Observer:
    """Sees each change of a document in the writer's transaction; an exception undoes the change.

    Override only the methods that are needed. `event` is one of on_insert, on_update, on_submit,
    on_cancel, on_trash (B-50 to B-54), or db_set for a field that was written directly: that is no
    event for receivers, but rules apply to it too (B-58).
    """

    doctypes: frozenset[str] | None = None
    """The DocTypes whose documents are observed; None: all."""

    events: frozenset[str] | None = None
    """The values of `event` for which `changing` and `changed` are called; None: all."""

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Called before the row is written, for rules that may refuse the change."""

    def deleting(self, fw: Fw, doc: DocType) -> None:
        """Called after the hook on_trash, while the rows still exist."""

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """Called after the row is written or deleted and the hooks have run."""

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """Called after a document and the links to it have the new name; no event is sent."""


class DocTypeObservers:
    """The observers of one DocType, by method and event; only overridden methods are called."""

    def __init__(self, observers: Sequence[Observer], doctype: str) -> None:
        self._changing: dict[str, list[Callable[..., None]]] = {event: [] for event in _ALL}
        self._changed: dict[str, list[Callable[..., None]]] = {event: [] for event in _ALL}
        self._deleting: list[Callable[..., None]] = []
        self._renamed: list[Callable[..., None]] = []
        for each in observers:
            if each.doctypes is not None and doctype not in each.doctypes:
                continue
            overridden = _overridden(type(each))
            for event in _ALL if each.events is None else each.events:
                if "changing" in overridden:
                    self._changing[event].append(each.changing)
                if "changed" in overridden:
                    self._changed[event].append(each.changed)
            if "deleting" in overridden:
                self._deleting.append(each.deleting)
            if "renamed" in overridden:
                self._renamed.append(each.renamed)

    def changing(self, fw: Fw, event: str, doc: DocType) -> None:
        """Call `Observer.changing` of each, in order."""
        for method in self._changing[event]:
            method(fw, event, doc)

    def deleting(self, fw: Fw, doc: DocType) -> None:
        """Call `Observer.deleting` of each, in order."""
        for method in self._deleting:
            method(fw, doc)

    def changed(self, fw: Fw, event: str, doc: DocType) -> None:
        """Call `Observer.changed` of each, in order."""
        for method in self._changed[event]:
            method(fw, event, doc)

    def renamed(self, fw: Fw, doctype: str, old: str, new: str) -> None:
        """Call `Observer.renamed` of each, in order."""
        for method in self._renamed:
            method(fw, doctype, old, new)


def _overridden(cls: type[Observer]) -> frozenset[str]:
    """Return the names of the methods that a class of observers overrides."""
    names = ("changing", "deleting", "changed", "renamed")
    return frozenset(each for each in names if getattr(cls, each) is not getattr(Observer, each))
