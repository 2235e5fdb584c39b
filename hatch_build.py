"""Gives each build a version of its own, and notes version and commit in wheel and source archive.

At the tag of a release it is that release, X.Y.Z. Any other commit gets X.Y.Z.devYYYYMMDDhhmmss,
its time, so that a later build counts as newer and `pip install` replaces an older one.
`python hatch_build.py` prints it. Without a repository it is that of the source archive; FW_BUILD
names it where there is neither, as in an image.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT: Final = Path(__file__).parent
_NOTE: Final = "build.txt"
_RELEASE: Final = re.compile(r'^RELEASE: Final = "(\d+\.\d+\.\d+)"$', re.MULTILINE)


def release() -> str:
    """Return the version that is written in the sources."""
    found = _RELEASE.search((ROOT / "fw_actors" / "__init__.py").read_text())
    if found is None:
        raise ValueError("fw_actors/__init__.py has no RELEASE of the form X.Y.Z")
    return found[1]


def _git(*args: str) -> str:
    """Return the output of git; empty without git, or outside a repository of this project."""
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *args],
            env={**os.environ, "TZ": "UTC"},
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def build() -> tuple[str, str]:
    """Return version and commit; with neither repository nor note the release, and no commit."""
    version, _, commit = os.environ.get("FW_BUILD", "").partition(" ")
    if version:
        return version, commit
    base = release()
    if not (ROOT / ".git").exists():
        return _noted() or (base, "")
    commit = _git("rev-parse", "--short=12", "HEAD")
    if not commit or f"v{base}" in _git("tag", "--points-at", "HEAD").split():
        return base, commit
    time = ("--date=format-local:%Y%m%d%H%M%S", "--format=%cd")
    return f"{base}.dev{_git('log', '-1', *time)}", commit


def _noted() -> tuple[str, str] | None:
    """Return version and commit of the source archive that these sources are from."""
    try:
        version, commit = (ROOT / _NOTE).read_text().splitlines()
    except (OSError, ValueError):
        return None
    return version, commit


class NoteBuild(BuildHookInterface[Any]):
    """Puts version and commit into the wheel, where fw_actors reads them, and into the source
    archive, from which a wheel may be built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the note to what is packed; an editable install needs none."""
        if version == "editable":
            return
        noted = Path(self.directory) / _NOTE
        noted.parent.mkdir(parents=True, exist_ok=True)
        # From the metadata, so that a wheel out of a source archive agrees with it.
        noted.write_text(f"{self.metadata.version}\n{build()[1]}\n")
        place = _NOTE if self.target_name == "sdist" else f"fw_actors/{_NOTE}"
        build_data["force_include"][str(noted)] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the note from the folder of the results."""
        Path(self.directory, _NOTE).unlink(missing_ok=True)


if __name__ == "__main__":
    sys.stdout.write(" ".join(build()).strip() + "\n")
