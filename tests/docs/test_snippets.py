"""The pages, walked through from the wheel: each command, file and output as it stands there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.docs.page_walk import Block, PageWalk, blocks_of
from tests.installed_wheel import InstalledWheel
from tests.nginx import free_port

DOCS = Path(__file__).parents[2] / "docs"
ACTIVATED = ". fw-env/bin/activate\n"
SITE = f"{ACTIVATED}fw init site >/dev/null && cd site && fw migrate >/dev/null"
NOTES = f"{ACTIVATED}fw init desk --app notes >/dev/null && cd desk"
BEFORE = {
    "getting-started": "",
    "writing-an-app": ACTIVATED,
    "filters": NOTES,
    "testing-an-app": NOTES,
    "fields": NOTES,
    "migrating-data": NOTES,
    "calling": NOTES,
    "emitting-events": SITE,
    "operating": SITE,
}
INSTALLATIONS = {
    "pip install --no-deps fw_actors-*.whl": Block("sh", "", ACTIVATED),
    'pip install "$(ls fw_actors-*.whl)[client]"': Block("sh", "", "true\n"),
}
"""A block with one of these needs an index. The environment that it makes is there already."""


def without_index(block: Block) -> Block:
    for command, instead in INSTALLATIONS.items():
        if block.language == "sh" and command in block.text:
            return instead
    return block


def with_free_ports(text: str, service: str) -> str:
    """Replace the ports that pages name by free ones, since tests run in parallel."""
    receiver = str(free_port())
    text = text.replace("127.0.0.1:8000", service).replace(
        "127.0.0.1:9000", f"127.0.0.1:{receiver}"
    )
    return text.replace("--port 9000", f"--port {receiver}")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("page", BEFORE)
def test_page_works_word_for_word(
    page: str, installed_wheel: InstalledWheel, tmp_path: Path
) -> None:
    """D-172 among others, on the page about testing."""
    service = f"127.0.0.1:{free_port()}"
    text = with_free_ports((DOCS / f"{page}.md").read_text(), service)
    (tmp_path / "fw-env").symlink_to(installed_wheel.venv)
    environ = installed_wheel.environ(
        FW_BIND=service, FW_ARGON2="8,1,1", HOME=str(tmp_path), PYTHONUNBUFFERED="1"
    )
    with PageWalk(tmp_path, environ) as walk:
        try:
            walk.enter(BEFORE[page])
            for block in blocks_of(text):
                walk.follow(without_index(block))
            walk.finish_session()
        except BaseException:
            stop = [str(installed_wheel.venv / "bin" / "fw"), "stop"]
            subprocess.run(stop, cwd=walk.folder, env=environ, check=False)
            raise
