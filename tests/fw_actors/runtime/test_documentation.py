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
from fw_actors.runtime import Actor, MailboxPolicy, RestartIntensity
from fw_actors.runtime.cell import COARSE, MAX_INSPECTIONS, RECENT_TYPES, SECONDS_PER_BATCH
from fw_actors.runtime.clock import SHUTDOWN_SECONDS, START_SECONDS
from fw_actors.runtime.keyed_pool import STOPPING_SECONDS
from fw_actors.runtime.mailbox import FED_IN_A_ROW, KEPT_DEAD_LETTERS, MAX_FROM_THREADS
from fw_actors.runtime.supervision import MAX_UNDELIVERED
from fw_actors.runtime.topics import CAPACITY, EVENTS_KEPT, MAX_MEMBERS
from supervisors.tree import MAX_DYNAMIC_CHILDREN, STOP_SECONDS

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


@pytest.mark.parametrize(
    "expected",
    [
        "MailboxPolicy(capacity={0.capacity}, overflow=Overflow.{0.overflow.name}, "
        "max_work={0.max_work}, max_timers={0.max_timers}, max_stash={0.max_stash})".format(
            MailboxPolicy()
        ),
        "RestartIntensity(restarts={0.restarts}, seconds={0.seconds}, backoff={0.backoff}, "
        "backoff_cap={0.backoff_cap}, jitter={0.jitter}, calm_seconds={0.calm_seconds})".format(
            RestartIntensity()
        ),
        f"at most {sum(map(len, COARSE))} consecutive messages, or {SECONDS_PER_BATCH * 1000:g} ms",
        f"`slow_seconds = {Actor.slow_seconds}`",
        f"{MAX_FROM_THREADS:,} such messages wait for trio's thread",
        f"`MailboxFull` if {MAX_INSPECTIONS} inspections wait",
        f"the newest {MAX_UNDELIVERED} events of a watch",
        f"`start_seconds={START_SECONDS}`",
        f"`shutdown_seconds={SHUTDOWN_SECONDS}`",
        f"`shutdown_seconds={STOPPING_SECONDS}`",
        f"stop_seconds={STOP_SECONDS}",
        f"Each member has a queue of `capacity` publications ({CAPACITY})",
        f"handles up to {'eight' if FED_IN_A_ROW == 8 else FED_IN_A_ROW} publications in a row",
        f"beyond `max_members` ({MAX_MEMBERS:,})",
        f"`TopicOverflow.DROP_OLDEST` with {EVENTS_KEPT} events",
        f"types of the last {RECENT_TYPES} messages",
        f"the counts and last {KEPT_DEAD_LETTERS} of its `DeadLetter`s",
        f"at its `limit` ({MAX_DYNAMIC_CHILDREN}; also",
    ],
)
def test_page_has_the_limits_and_defaults_of_the_code(expected: str) -> None:
    assert expected in PAGE
