"""docs/runtime.md: its examples run, and it names everything public."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import fw_actors.runtime
import fw_actors.runtime.testing
import supervisors

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "runtime.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_page_first_example_runs_as_printed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLES[0]], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "42\n"


def test_page_first_example_has_ten_lines() -> None:
    lines = [line for line in EXAMPLES[0].splitlines() if line]
    body = [line for line in lines if not line.startswith(("import", "from", "trio.run"))]
    assert len(body) == 10


POOL = """
import trio
from fw_actors.runtime import KeyedPool, SystemClock, SystemEntropy, open_runtime

async def main() -> None:
    async with open_runtime(clock=SystemClock(), entropy=SystemEntropy()) as runtime:
{pool}
        print(paid)
        await accounts.close(5.0)

trio.run(main)
"""


def test_page_actor_runs_in_page_pool() -> None:
    pool = textwrap.indent(EXAMPLES[2], " " * 8)
    code = EXAMPLES[1] + POOL.format(pool=pool)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"


def test_page_examples_compile() -> None:
    for example in EXAMPLES:
        wrapped = "async def example():\n" + "".join(
            f"    {line}\n" for line in example.split("\n")
        )
        compile(wrapped, "docs/runtime.md", "exec")


@pytest.mark.parametrize("name", sorted({*fw_actors.runtime.__all__, *supervisors.__all__}))
def test_page_names_every_public_name(name: str) -> None:
    assert re.search(rf"\b{name}\b", PAGE), f"docs/runtime.md does not name {name}"
