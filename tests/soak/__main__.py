"""The command behind `scripts/soak`: minutes of mixed load, numbers and a picture."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.live_site import LiveReceiver, LiveSite
from tests.soak.load import Soak
from tests.soak.picture import png_of


def main(arguments: Sequence[str]) -> int:
    """Soak; the exit code is 1 when something grew."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--picture", type=Path, help="a PNG to write, a strip for each number")
    args = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="fw-soak-") as folder,
        LiveReceiver() as receiver,
        LiveSite(Path(folder)) as site,
    ):
        site.add_manager()
        site.start(FW_MODE="development")
        soak = Soak(site, receiver)
        soak.run(args.minutes * 60)
    grown = soak.violations()
    for name, values in soak.series.items():
        print(
            f"{name:24} first {values[0]:10.1f}  most {max(values):10.1f}  last {values[-1]:10.1f}"
        )
    print(f"{soak.writes} notes written and deleted, {len(receiver.got)} events received")
    if args.picture is not None:
        args.picture.write_bytes(png_of(soak.series))
        print(f"{args.picture}: from the top: {', '.join(soak.series)}")
    print("\n".join(grown) or "flat after the first minute")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
