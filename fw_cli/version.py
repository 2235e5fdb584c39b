"""`fw version`: prints version and commit; opens nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import click

from fw_actors import BUILD

_ROOT: Final = Path(__file__).parents[1]


@click.command()
def version() -> None:
    """Print the version, and the commit that it was built from."""
    commit = BUILD.commit or _checked_out()
    click.echo(f"fw {BUILD.version}" + (f" (commit {commit})" if commit else ""))


def _checked_out() -> str:
    """Return the commit of the clone that this program runs from; empty if there is none."""
    if not (_ROOT / ".git").exists():
        return ""
    command = ["git", "-C", str(_ROOT), "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
