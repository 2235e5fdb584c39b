"""Checks that a release's version was raised, or prepares one: python -m tests.releases X.Y.Z."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from tests.releases.rules import Facts, faults, prepared

ROOT: Final = Path(__file__).parents[2]
VERSION: Final = ROOT / "fw_actors" / "__init__.py"
CHANGELOG: Final = ROOT / "CHANGELOG.md"
PACKAGES: Final = ("fw_actors", "fw_cli", "fw_client", "supervisors", "web")


def _git(*args: str) -> list[str]:
    """Return the lines that git prints; none without git or a repository."""
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *args], capture_output=True, text=True, check=False
        )
    except OSError:
        return []
    return done.stdout.split() if done.returncode == 0 else []


def facts() -> Facts:
    """Return the facts of this checkout."""
    from fw_actors import RELEASE

    at_head = set(_git("tag", "--list", "v*", "--points-at", "HEAD"))
    earlier = [tag for tag in _git("tag", "--list", "v*", "--merged", "HEAD", "--sort=-creatordate")
               if tag not in at_head]  # fmt: skip
    changed = bool(earlier) and bool(_git("diff", "--name-only", earlier[0], "--", *PACKAGES))
    return Facts(RELEASE, CHANGELOG.read_text(), frozenset(earlier), frozenset(at_head), changed)


@click.command()
@click.argument("release", required=False)
def main(release: str | None) -> None:
    """Check that version, changelog and tags agree. With RELEASE, prepare that release: write it
    into fw_actors/__init__.py, and date its section of CHANGELOG.md."""
    if release is not None:
        from fw_actors import RELEASE

        try:
            changelog = prepared(CHANGELOG.read_text(), release, datetime.now(UTC).date())
        except ValueError as error:
            raise click.ClickException(str(error)) from None
        CHANGELOG.write_text(changelog)
        text = VERSION.read_text()
        VERSION.write_text(text.replace(f'"{RELEASE}"', f'"{release}"'))
        click.echo(f"commit, then: git tag -a v{release}; afterwards raise RELEASE to the next one")
        return
    found = list(faults(facts()))
    for fault in found:
        click.echo(fault)
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main(prog_name="python -m tests.releases")
