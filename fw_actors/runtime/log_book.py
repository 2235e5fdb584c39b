"""A logger for tests."""

from __future__ import annotations


class LogBook:
    """A logger that keeps its entries: level, event and fields of each."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str, dict[str, object]]] = []

    def debug(self, event: str, **fields: object) -> None:
        """Keep an entry."""
        self.entries.append(("debug", event, fields))

    def info(self, event: str, **fields: object) -> None:
        """Keep an entry."""
        self.entries.append(("info", event, fields))

    def warning(self, event: str, **fields: object) -> None:
        """Keep an entry."""
        self.entries.append(("warning", event, fields))

    def error(self, event: str, **fields: object) -> None:
        """Keep an entry."""
        self.entries.append(("error", event, fields))

    def named(self, event: str) -> list[dict[str, object]]:
        """Return the fields of all entries of an event."""
        return [fields for _, name, fields in self.entries if name == event]
