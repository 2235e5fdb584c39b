"""Makes fw_client/client.py of fw_client/async_client.py: `python -m tests.fw_client.sync_client`.

The two differ in nothing but the words below.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[2] / "fw_client"
SOURCE: Final = FOLDER / "async_client.py"
TARGET: Final = FOLDER / "client.py"
HEAD: Final = (
    '"""The client for programs without tasks.\n\n'
    "Made of async_client.py by `python -m tests.fw_client.sync_client`. Do not edit.\n"
    '"""\n'
)
WORDS: Final = (
    (r'^""".*?"""\n', HEAD),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\baclose\b", "close"),
    (r"\basync_library\b", "sync_library"),
    (r"for any number of tasks", "for any number of threads"),
)


def sync_client(text: str) -> str:
    """Return the text of the client without `async`."""
    for pattern, word in WORDS:
        text = re.sub(pattern, word, text, flags=re.DOTALL)
    for command in (["check", "--quiet", "--select", "I", "--fix"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"]
        text = subprocess.run(
            ruff, input=text, capture_output=True, text=True, check=True, cwd=FOLDER
        ).stdout
    return text


if __name__ == "__main__":
    TARGET.write_text(sync_client(SOURCE.read_text()))
