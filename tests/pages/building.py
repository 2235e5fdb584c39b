"""Builds the documentation as pages and checks their links: `python -m tests.pages.building`.

The generator checks links between Markdown files. It misses pictures, pages that no navigation
leads to, and HTML that it does not understand; so each link of the built pages is looked up here.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import click
import yaml

ROOT: Final = Path(__file__).parents[2]
_LINKS: Final = ("href", "src")
_MARKED: Final = re.compile('class="err">([^<]+)<')
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


class BuildFailed(click.ClickException):
    """Raised when a page cannot be built, or has a broken link; says which."""


class _Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in _LINKS and value and tag != "base":
                self.links.append(value)
            elif name == "id" and value:
                self.anchors.add(value)


def build(root: Path, to: Path) -> None:
    """Build the pages of `root/mkdocs.yml` into the folder `to`. Raises: BuildFailed.

    They are built from a copy, because the generator keeps a cache beside its configuration.
    """
    problems = [*unlisted(root)]
    with tempfile.TemporaryDirectory() as copy:
        shutil.copy(root / "mkdocs.yml", copy)
        shutil.copytree(root / "docs", Path(copy) / "docs")
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
        if done.returncode:
            said = _COLOURS.sub("", done.stdout + done.stderr).partition("Traceback (")[0]
            raise BuildFailed("\n".join([*problems, said.strip() or done.stderr]))
        made = Path(copy) / configuration(root)["site_dir"]
        problems += [*broken_links(made), *not_of_their_language(made)]
        if problems:
            raise BuildFailed("\n".join(problems))
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(made, to)


def configuration(root: Path) -> Any:
    """Return what mkdocs.yml says."""
    return yaml.safe_load((root / "mkdocs.yml").read_text())


def navigation(root: Path) -> list[tuple[str, list[str]]]:
    """Return the sections of the navigation in their order, each with its pages."""
    sections = []
    for entry in configuration(root)["nav"]:
        ((title, pages),) = entry.items()
        sections.append((title, [pages] if isinstance(pages, str) else pages))
    return sections


def unlisted(root: Path) -> Iterator[str]:
    """Yield what is wrong with the navigation: a page that it lacks, or names twice."""
    named = [page for _, pages in navigation(root) for page in pages]
    for page in sorted(path.name for path in (root / "docs").glob("*.md")):
        if named.count(page) != 1:
            yield f"docs/{page} must be named once in the navigation of mkdocs.yml"


def broken_links(folder: Path) -> list[str]:
    """Return the links of built pages that lead to no file, or to no anchor of their page."""
    pages = {path: _Page(path.read_text()) for path in folder.rglob("*.html")}
    found = set()
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue  # elsewhere; the page of an unknown address has no place of its own
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.is_file():
                found.add(f"{path.name}: {link} leads to no file")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                found.add(f"{path.name}: {link} leads to no anchor")
    return sorted(found)


def not_of_their_language(folder: Path) -> Iterator[str]:
    """Yield the built pages with a block of code that is not what it says it is."""
    for path in sorted(folder.rglob("*.html")):
        for text in _MARKED.findall(path.read_text()):
            yield f"{path.name}: a block of code is not of its language: {text}"


@click.command()
def main() -> None:
    """Build the documentation into build/docs."""
    build(ROOT, ROOT / configuration(ROOT)["site_dir"])


if __name__ == "__main__":
    main()
