"""The access-control and outgoing-webhooks service: its actors, rules, documents and store.

The project's version is here: `RELEASE` is written nowhere else, and the build adds the commit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

RELEASE: Final = "0.3.0"
"""The last released version at its tag, and the next one everywhere else. CONTRIBUTING.md describes
how it is raised."""


class Build(NamedTuple):
    """A version by PEP 440, and the commit it was built from; empty if that is unknown."""

    version: str
    commit: str


def read_build(note: Path) -> Build:
    """Return version and commit as the build has noted them in a wheel; a checkout has no note."""
    try:
        version, _, commit = note.read_text().partition("\n")
    except OSError:
        return Build(f"{RELEASE}.dev0", "")
    return Build(version, commit.strip())


BUILD: Final = read_build(Path(__file__).with_name("build.txt"))
__version__: Final = BUILD.version
