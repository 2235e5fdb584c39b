"""Mutations: the simulation and the tests must find deliberate faults. All: scripts/mutants."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.hunt import applies, hunt, mutated
from tests.mutants.mutation import SIMULATION, Mutation
from tests.mutants.mutations import ALL, ASVS, MUTATIONS

ROOT = Path(__file__).parents[2]
IMPORT = re.compile(r"from ([\w.]+) import (\w+(?:, \w+)*)(?:  #.*)?")
QUICK = (
    "an event is recorded without its job",
    "an attempt is counted twice",
    "the body is rendered again for each attempt",
)


@pytest.mark.parametrize("mutation", ALL, ids=lambda mutation: mutation.name)
def test_mutation_applies_to_current_code(mutation: Mutation) -> None:
    """A mutation whose old text is no longer in the code would prove nothing."""
    assert applies(mutation)
    assert mutation.old != mutation.new
    if mutation.file.endswith(".py"):
        ast.parse(mutated(mutation))  # a module that cannot be read is found by any test


def test_mutations_use_defined_names(tmp_path: Path) -> None:
    """A mutation that raises NameError is found by any test, and proves nothing."""
    for number, mutation in enumerate(ALL):
        if mutation.file.endswith(".py"):
            (tmp_path / f"mutation_{number}.py").write_text(mutated(mutation))
    check = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F821"]
    check += ["--output-format", "concise", str(tmp_path)]
    found = subprocess.run(check, check=False, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_mutations_import_existing_names() -> None:
    """A mutation that raises ImportError is found by any test, and proves nothing."""
    missing = []
    for mutation in ALL:
        for line in mutation.new.splitlines():
            imported = IMPORT.fullmatch(line.strip())
            if imported is None:
                continue
            module, names = imported.groups()
            found = vars(importlib.import_module(module))
            missing += [f"{module}.{name}" for name in names.split(", ") if name not in found]
    assert missing == []


@pytest.mark.parametrize("mutation", ALL, ids=lambda mutation: mutation.name)
def test_test_of_mutation_exists(mutation: Mutation) -> None:
    """A test function is found in its source, without importing it."""
    path, _, name = mutation.found_by.partition("::")
    if path == SIMULATION:
        return
    assert (ROOT / path).exists()
    if name:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        body = ast.parse((ROOT / path).read_text()).body
        assert name in {node.name for node in body if isinstance(node, kinds)}


def test_mutation_names_are_unique() -> None:
    assert len({mutation.name for mutation in ALL}) == len(ALL)
    assert len(MUTATIONS) >= 20
    assert len(ASVS) >= 100


def test_mutation_of_asvs_names_test_function() -> None:
    assert [mutation.name for mutation in ASVS if not mutation.names_a_test] == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", QUICK)
def test_simulation_finds_quick_mutation(name: str, tmp_path: Path) -> None:
    """In a copy of the project, within a few seeds."""
    (mutation,) = [one for one in MUTATIONS if one.name == name]
    found = hunt(mutation, tmp_path, "1-10")
    assert found is not None
    assert found.startswith("seed ")
