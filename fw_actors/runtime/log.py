"""The logger that the runtime writes to: any structlog-like one."""

from __future__ import annotations

from typing import Protocol


class Log(Protocol):
    """An event and its fields; a structlog logger is one."""

    def debug(self, event: str, **fields: object) -> object: ...

    def info(self, event: str, **fields: object) -> object: ...

    def warning(self, event: str, **fields: object) -> object: ...

    def error(self, event: str, **fields: object) -> object: ...


class SilentLog:
    """Says nothing; for tests and benchmarks."""

    def debug(self, event: str, **fields: object) -> None:
        """Do nothing."""

    def info(self, event: str, **fields: object) -> None:
        """Do nothing."""

    def warning(self, event: str, **fields: object) -> None:
        """Do nothing."""

    def error(self, event: str, **fields: object) -> None:
        """Do nothing."""
