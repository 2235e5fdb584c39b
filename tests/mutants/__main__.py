"""The command behind `scripts/mutants`: says of each mutation how it was found."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.hunt import SEEDS, applies, hunt
from tests.mutants.mutations import MUTATIONS


def main(arguments: Sequence[str]) -> int:
    """Hunt; the exit code is 1 when one was not found."""
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument("--seeds", default=SEEDS, metavar="A-B")
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose name holds it")
    asked = parser.parse_args(arguments)
    missed = 0
    for mutation in MUTATIONS:
        if asked.only not in mutation.name:
            continue
        found = None
        if applies(mutation):
            with tempfile.TemporaryDirectory(prefix="fw-mutant-") as folder:
                found = hunt(mutation, Path(folder), asked.seeds)
        else:
            print(f"DOES NOT APPLY: {mutation.name}")
        missed += found is None
        print(
            f"{'found' if found else 'MISSED'}: {mutation.name}: {(found or '')[:160]}", flush=True
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
