"""Makes the sync modules of fw_client of the async ones: `python -m tests.fw_client.sync_client`.

A module differs from the one that it is made of in nothing but the words below.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[2] / "fw_client"
MADE: Final = {
    FOLDER / "async_client.py": (
        FOLDER / "client.py",
        "The client for programs without tasks.",
    ),
    FOLDER / "async_operations.py": (
        FOLDER / "operations.py",
        "The operations of the service in groups, for programs without tasks.",
    ),
}
"""The file that is made of each, and the first line of its docstring."""
WORDS: Final = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\baclose\b", "close"),
    (r"\basync_library\b", "sync_library"),
    (r"\basync_operations\b", "operations"),
    (r"\bfor (\w+) in ([\w.]+):\n +yield \1\n", r"yield from \2\n"),
    (r"for any number of tasks", "for any number of threads"),
)


def _reason_of_length(text: str) -> str:
    """Return the paragraph of a docstring that tells why its module is long, if there is one."""
    found = re.search(r"\nThe module has more than 500 lines .*?\n(?=\n|\"\"\")", text, re.DOTALL)
    return found[0] if found else ""


def sync_module(source: Path) -> str:
    """Return the text of the module that is generated from `source`, without `async`."""
    target, title = MADE[source]
    text = source.read_text()
    docstring = (
        f'"""{title}\n\n'
        f"Generated from {source.name} by `python -m tests.fw_client.sync_client`. Do not edit.\n"
        f"{_reason_of_length(text)}"
        '"""\n'
    )
    for pattern, word in (*WORDS, (r'^""".*?"""\n', docstring)):
        text = re.sub(pattern, word, text, flags=re.DOTALL)
    for command in (["check", "--quiet", "--select", "I", "--fix"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(target), "-"]
        text = subprocess.run(
            ruff, input=text, capture_output=True, text=True, check=True, cwd=FOLDER
        ).stdout
    return text


if __name__ == "__main__":
    for source, (target, _) in MADE.items():
        target.write_text(sync_module(source))
