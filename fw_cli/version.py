"""`fw version`: prints the version; opens nothing."""

from __future__ import annotations

import click

from fw_actors.version import __version__


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(f"fw {__version__}")
