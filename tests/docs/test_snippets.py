"""The commands of the pages, run as they stand there, on a site of their own."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SITE = 'fw init . >/dev/null\nexport FW_SECRET_KEY="$(cat secret.key)"\nfw migrate >/dev/null\n'
BEFORE = {"getting-started": "", "operating": SITE, "emitting-events": SITE}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.timeout(240)
@pytest.mark.parametrize("page", BEFORE)
def test_commands_of_a_page_work(page: str, tmp_path: Path) -> None:
    blocks = BLOCK.findall((DOCS / f"{page}.md").read_text())
    assert blocks
    script = "set -eu\ntrap 'fw stop >/dev/null' EXIT\n" + BEFORE[page] + "\n".join(blocks)
    script = script.replace("127.0.0.1:9000", f"127.0.0.1:{free_port()}")
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FW_")}
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    environ |= {"FW_BIND": f"127.0.0.1:{free_port()}", "HOME": str(tmp_path)}
    done = subprocess.run(
        ["bash"], input=script, cwd=tmp_path, env=environ, capture_output=True, text=True,
        timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
