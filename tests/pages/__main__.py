"""The pages of the documentation that are generated: `python -m tests.pages.__main__ [--check]`.

The pages are in the repository, so that they can be read and reviewed there; `scripts/docs` writes
them, and `scripts/check` compares them with what the code generates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import click

from tests.pages.command_line import command_line
from tests.pages.doctypes import doctypes
from tests.pages.http import http_reference

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "command-line.md": command_line,
    "doctypes.md": doctypes,
    "http.md": http_reference,
}


def outdated(folder: Path) -> list[str]:
    """Return the names of the pages in `folder` that differ from what the code generates."""
    return [
        name
        for name, generate in PAGES.items()
        if not (folder / name).exists() or (folder / name).read_text() != generate()
    ]


def write(folder: Path) -> None:
    """Write the outdated pages; leave the others untouched."""
    for name in outdated(folder):
        (folder / name).write_text(PAGES[name]())


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit 1 when a page is outdated.")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=DOCS,
    help="The folder of the pages instead of docs/.",
)
def main(folder: Path, *, check: bool) -> None:
    """Write the generated pages of the documentation."""
    if not check:
        write(folder)
    elif names := outdated(folder):
        pages = " and ".join(f"docs/{name}" for name in names)
        raise click.ClickException(f"{pages} must be generated again: run scripts/docs.")


if __name__ == "__main__":
    main()
