"""`@seeds`, `restarted`, and the plugin for pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from fw_actors.runtime import Runtime
from fw_actors.runtime.testing import LogBook, restarted, seeds
from supervisors import RestartIntensity, actor_child, open_supervisor
from tests.fw_actors.runtime.sample_actors import AddNumber, Break, DiaryNote, SampleActor


def test_seeds_run_a_test_in_as_many_orders() -> None:
    """Each in virtual time, with a runtime, a log and an order of its own."""
    orders: list[tuple[int, ...]] = []
    numbers: list[int] = []

    @seeds(20)
    async def check(runtime: Runtime, log: LogBook, seed: int) -> None:
        assert runtime.log is log
        assert trio.current_time() == 0.0
        await trio.sleep(3600)
        seen: list[int] = []

        async def note(number: int) -> None:
            seen.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(note, number)
        orders.append(tuple(seen))
        numbers.append(seed)

    check()
    assert numbers == list(range(20))
    assert len(set(orders)) > 10
    first, orders[:] = list(orders), []
    check()
    assert orders == first


def test_failure_under_a_seed_names_seed() -> None:
    ran: list[int] = []

    async def check(seed: int) -> None:
        ran.append(seed)
        assert seed != 3

    with pytest.raises(AssertionError) as raised:
        seeds(9)(check)()
    assert raised.value.__notes__ == [
        "under seed 3 of 9; this one alone: @seeds(9, only=3), or pytest --only-seed=3"
    ]
    with pytest.raises(AssertionError):
        seeds(9, only=3)(check)()
    assert ran == [0, 1, 2, 3, 3]
    with pytest.raises(ValueError, match="at least 1"):
        seeds(0)


@seeds(2)
async def test_seeds_leave_other_parameters_to_pytest(runtime: Runtime, tmp_path: Path) -> None:
    assert tmp_path.name
    async with runtime.running("a", SampleActor) as ref:
        assert await ref.ask(AddNumber(1), deadline=1.0) == 1


async def test_restarted_waits_for_the_next_instance(runtime: Runtime) -> None:
    intensity = RestartIntensity(restarts=9, backoff=2.0, jitter=0.0)
    async with open_supervisor(
        runtime, "top", [actor_child("a", SampleActor)], intensity=intensity
    ) as top:
        ref = runtime.ref("a")
        for _ in range(2):  # the first at once, the second after two seconds
            async with restarted(ref):
                ref.tell(Break())
        assert top.children[0].restarts == 2
        assert trio.current_time() == 2.0


async def test_restarted_fails_without_a_new_instance(runtime: Runtime) -> None:
    async with runtime.running("a", SampleActor) as ref:
        with pytest.raises(AssertionError, match="no new instance of 'a' within 5 s"):
            async with restarted(ref, within=5.0):
                ref.tell(DiaryNote(1))


TESTS = """
import trio
from fw_actors.runtime import Actor, Request, handles
from fw_actors.runtime.testing import seeds

class Ask(Request[int], frozen=True):
    pass

class Fails(Actor):
    @handles(Ask)
    async def ask(self, message: Ask) -> int:
        await trio.sleep(3600)
        raise ValueError("broken")

async def test_virtual(actor_runtime, actor_log):
    pool_began = trio.current_time()
    try:
        async with actor_runtime.running("a", Fails) as ref:
            await ref.ask(Ask(), deadline=7200.0)
    except Exception as error:
        assert "broken" in str(error)
    assert trio.current_time() - pool_began == 3600.0
    assert len(actor_log.named("actor_failed")) == 1

@seeds(5)
async def test_seeded(runtime, seed):
    assert seed < 3
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ["under seed 3 of 5", "1 failed, 1 passed"]),
        (("--only-seed=2",), ["2 passed"]),
    ],
)
def test_plugin_gives_a_runtime_and_an_option(
    tmp_path: Path, options: tuple[str, ...], expected: list[str]
) -> None:
    """The plugin is loaded as users load it, in a folder of its own."""
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntrio_mode = true\n")
    plugins = ("-p", "fw_actors.runtime.pytest_plugin", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", *plugins, *options],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert [text for text in expected if text not in done.stdout] == [], done.stdout + done.stderr
