"""The command behind `scripts/mutants`: says of each mutation how it was found."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.hunt import SEEDS, applies, hunt
from tests.mutants.mutation import Mutation
from tests.mutants.mutations import ALL, ASVS


def main(arguments: Sequence[str]) -> int:
    """Hunt; the exit code is 1 when one was not found."""
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument("--seeds", default=SEEDS, metavar="A-B")
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose name holds it")
    parser.add_argument("--asvs", action="store_true", help="those of docs/asvs.toml alone")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many at once")
    args = parser.parse_args(arguments)
    faults = [each for each in (ASVS if args.asvs else ALL) if args.only in each.name]
    missed = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        results = pool.map(lambda each: _how_found(each, args.seeds), faults)
        for mutation, found in zip(faults, results, strict=True):
            missed += found is None
            said = "MISSED" if found is None else "found"
            print(f"{said}: {mutation.name}: {(found or '')[:160]}", flush=True)
    print(f"{len(faults) - missed} of {len(faults)} found")
    return 1 if missed else 0


def _how_found(mutation: Mutation, seeds: str) -> str | None:
    """Plant one mutation in a copy; return how it was found, None when it was not."""
    if not applies(mutation):
        print(f"DOES NOT APPLY: {mutation.name}")
        return None
    with tempfile.TemporaryDirectory(prefix="fw-mutant-") as folder:
        return hunt(mutation, Path(folder), seeds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
