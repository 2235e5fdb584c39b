"""The simulation is worth its name only when it finds what is wrong. All: scripts/mutants."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.hunt import applies, hunt
from tests.mutants.mutation import Mutation
from tests.mutants.mutations import MUTATIONS

QUICK = (
    "an event is recorded without its job",
    "an attempt is counted twice",
    "the body is made anew for each attempt",
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_still_applies(mutation: Mutation) -> None:
    """Code moves on; a mutation that changes nothing would prove nothing."""
    assert applies(mutation)


def test_there_are_many_and_each_has_a_name_of_its_own() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 20


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", QUICK)
def test_the_simulation_finds_it(name: str, tmp_path: Path) -> None:
    """In a copy of the project, within a few seeds."""
    (mutation,) = [one for one in MUTATIONS if one.name == name]
    found = hunt(mutation, tmp_path, "1-10")
    assert found is not None
    assert found.startswith("seed ")
