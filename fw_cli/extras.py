"""Advises which extra of the wheel to install for a missing library."""

from __future__ import annotations

from typing import Final

OWN: Final = frozenset({"fw_actors", "fw_cli", "fw_client", "supervisors", "web"})
EXTRAS: Final = {
    "psycopg": ("PostgreSQL", "postgres"),
    "textual": ("fw console", "console"),
    "bcrypt": ("an account with a hash of bcrypt", "bcrypt"),
}
"""By library: its user, and the extra. All other libraries belong to the service."""


def advice(error: ModuleNotFoundError) -> str | None:
    """Return the package to install for a missing library; None for a module of this project."""
    library = (error.name or "").partition(".")[0]
    if not library or library in OWN:
        return None
    use, extra = EXTRAS.get(library, ("fw", "service"))
    return f"{use} needs the library {library}: pip install 'fw-actors[{extra}]'"
