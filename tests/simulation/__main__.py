"""The command behind `scripts/simulate`: runs seeds, and prints the one line that repeats each
that broke a promise."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial

from tests.simulation.run import SECONDS, SeedResult, simulate

DAY_SECONDS = 86_400.0


def main(arguments: Sequence[str]) -> int:
    """Run the given seeds; return the exit code: 1 when a promise was broken."""
    args = _parser().parse_args(arguments)
    seconds = SECONDS if args.days is None else args.days * DAY_SECONDS
    began, broken, done = time.monotonic(), 0, 0
    for result in _results(args.seeds, seconds, args.jobs):
        done += 1
        if args.trace:
            print("\n".join(result.lines))
        if result.broken:
            broken += 1
            print(_complaint(result, args.days), flush=True)
            if args.first:
                return 1
        elif args.verbose or args.trace:
            print(_line(result), flush=True)
    took = time.monotonic() - began
    print(f"{done} seeds, {broken} broken, {took:.1f} s")
    return 1 if broken else 0


def _results(seeds: range, seconds: float, jobs: int) -> Iterator[SeedResult]:
    run = partial(simulate, seconds=seconds)
    if len(seeds) == 1 or jobs == 1:
        yield from map(run, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=500) as pool:
        yield from pool.imap_unordered(run, seeds, chunksize=4)


def _complaint(result: SeedResult, days: float | None) -> str:
    more = "" if days is None else f" --days {days:g}"
    lines = [f"seed {result.seed}: {promise}" for promise in result.broken]
    return "\n".join([*lines, f"  scripts/simulate --seeds {result.seed}{more} --trace"])


def _line(result: SeedResult) -> str:
    return (
        f"seed {result.seed}: {result.virtual_seconds:.0f} s, {result.commits} commits, "
        f"{result.deliveries} deliveries, trace {result.digest[:16]}"
    )


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("--seeds", type=_seeds, default=range(1, 101), metavar="A-B")
    parser.add_argument("--days", type=float, help="virtual days of work instead of 20 s")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--first", action="store_true", help="end at the first that is broken")
    parser.add_argument("--trace", action="store_true", help="print everything that happened")
    parser.add_argument("--verbose", action="store_true", help="a line for each seed")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
