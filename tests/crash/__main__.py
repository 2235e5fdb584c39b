"""The command behind `scripts/crash`: kills real processes under load, round after round."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.crash.rounds import crash
from tests.live_site import LiveSite


def main(arguments: Sequence[str]) -> int:
    """Run rounds; the exit code is 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="scripts/crash", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="fw-crash-") as folder, LiveSite(Path(folder)) as site:
        broken = crash(site, asked.rounds, asked.seed)
    print("\n".join([*broken, f"{asked.rounds} rounds, {len(broken)} broken promises"]))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
