"""Walks through a page as its reader does: in one terminal, in its order, word for word.

The language and the title of a block of code say what it is:

- `sh` is typed into the terminal. With a title it is typed into another one, and goes on there.
- `text` or `json` with the title "Output" is what the block before it prints; with the title of
  another terminal, what that one shows by then. `…` stands for any text. JSON has at least what
  is shown, with a line of the block for each line that is printed.
- `pycon` is typed into `fw shell`, and shows what that prints.
- `diff` is a change of the file that is its title.
- Any other block with a title is the content of that file: it is written, or stands there already.
- `python` without a title is an excerpt of a file in the folder.

All other blocks are not run.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.live_site import eventually

_BLOCK: Final = re.compile(
    r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
_REFUSED: Final = re.compile(r"^fw: \d+ inputs? failed\n", re.MULTILINE)
_OUTPUT: Final = "Output"
_END: Final = "end-of-block"
_ANY: Final = "…"


@dataclass(frozen=True)
class Block:
    """A block of code of a page."""

    language: str
    title: str
    text: str


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page that have a language, in order."""
    found = _BLOCK.finditer(page)
    return [Block(each["language"], each["title"] or "", each["text"]) for each in found]


class PageDiffers(AssertionError):
    """Raised when something is not as the page says."""


class PageWalk:
    """A reader's folder, and the terminals."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self._environ = folder, environ
        self._terminal = _Terminal(["bash"], folder, environ)
        self._others: dict[str, _Terminal] = {}
        self._printed = ""
        self._session: list[str] = []

    def enter(self, command: str) -> str:
        """Type a command into the terminal; return what it prints. Raises: PageDiffers."""
        self._terminal.send(f'{command}\necho {_END} "$PWD"\n')
        printed, place = self._terminal.until(_END)
        if place is None:
            raise PageDiffers(f"{command}\nended with an error:\n{printed}")
        self.folder = Path(place)
        self._printed = printed
        return printed

    def follow(self, block: Block) -> None:
        """Do what a block says, or check what it shows. Raises: PageDiffers."""
        if block.language == "pycon":
            self._session.append(block.text)
            return
        self.finish_session()
        match block:
            case Block("sh", ""):
                self.enter(block.text)
            case Block("sh", title):
                typed = ["bash", "-c", block.text]
                self._others[title] = _Terminal(typed, self.folder, self._environ)
            case Block("text", title) if title in self._others:
                self._await(self._others[title], block.text)
            case Block("text" | "json", title) if title == _OUTPUT:
                require = _require if block.language == "text" else _require_json
                require(self._printed, block.text)
            case _:
                self._look_at_file(block)

    def _look_at_file(self, block: Block) -> None:
        match block:
            case Block("python", ""):
                texts = (file.read_text() for file in self.folder.glob("*.py"))
                if not any(block.text in text for text in texts):
                    raise PageDiffers(f"no file of {self.folder} has the excerpt\n{block.text}")
            case Block("diff", title):
                self._change(self.folder / title, block.text)
            case Block(_, title) if title:
                self._file(self.folder / title, block.text)

    def _await(self, other: _Terminal, expected: str) -> None:
        try:
            eventually(lambda: _shows(other.shown, expected, whole=False), seconds=30)
        except AssertionError:
            raise PageDiffers(f"the page shows\n{expected}\nand not\n{other.shown}") from None

    def _file(self, file: Path, text: str) -> None:
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        elif file.read_text() != text:
            raise PageDiffers(f"{file.name} is\n{file.read_text()}\nand not\n{text}")

    def _change(self, file: Path, diff: str) -> None:
        lines = diff.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] in " -")
        new = "".join(line[1:] for line in lines if line[0] in " +")
        text = file.read_text()
        if text.count(old) != 1:
            raise PageDiffers(f"{file.name} has not once\n{old}")
        file.write_text(text.replace(old, new))

    def finish_session(self) -> None:
        """Type the sessions that have come together into one `fw shell`. Raises: PageDiffers."""
        typed, expected = "", ""
        for line in "".join(self._session).splitlines(keepends=True):
            if line.startswith((">>> ", "... ")) or line == "...\n":
                typed += line[4:] or "\n"
            else:
                expected += line
        self._session.clear()
        if typed:
            self.enter(f"fw shell 2>&1 <<'END-OF-SESSION' || true\n{typed}END-OF-SESSION")
            _require(_REFUSED.sub("", self._printed), expected)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for terminal in (*self._others.values(), self._terminal):
            terminal.close()


class _Terminal:
    """A process in a session of its own, with what it has shown."""

    def __init__(self, command: list[str], folder: Path, environ: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command, cwd=folder, env=environ, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.shown = ""
        self._reader: threading.Thread | None = None
        if command != ["bash"]:
            self._reader = threading.Thread(target=self._read)
            self._reader.start()
        else:
            self.send("set -euo pipefail\n")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.shown += line

    def send(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def until(self, end: str) -> tuple[str, str | None]:
        """Return what is shown before a line that begins with `end`, and the rest of that line."""
        shown = ""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            before, found, rest = line.partition(f"{end} ")
            shown += before
            if found:
                return shown, rest.strip()
        return shown, None

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
        if self._reader is not None:
            self._reader.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(30)


def _shows(printed: str, expected: str, *, whole: bool) -> bool:
    """Whether a text is as a page shows it; spaces at the ends of lines do not count."""
    pattern = ".*?".join(map(re.escape, _trimmed(expected).split(_ANY)))
    match = re.fullmatch if whole else re.search
    return match(pattern, _trimmed(printed), re.DOTALL) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _require(printed: str, expected: str) -> None:
    if not _shows(printed, expected, whole=True):
        raise PageDiffers(f"the page shows\n{expected}\nand this was printed:\n{printed}")


def _require_json(printed: str, expected: str) -> None:
    found, shown = _values(printed), _values(expected)
    if len(found) != len(shown) or not all(map(_holds, found, shown)):
        raise PageDiffers(f"the page shows\n{expected}\nand this was printed:\n{printed}")


def _values(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _holds(found: Any, expected: Any) -> bool:
    """Whether a JSON value has all that is wanted of it."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return all(key in found and _holds(found[key], each) for key, each in expected.items())
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(map(_holds, found, expected))
    return bool(found == expected or expected == _ANY)
