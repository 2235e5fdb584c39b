"""Guesses as fast as it can at each name that comes on stdin, on the site of the working directory;
a process of its own. Prints, as JSON, the number of verified attempts, and refusals by status."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

import trio

from fw_actors.access.sign_in import SignIn, SignInAttempt, Throttled
from fw_actors.config import load
from fw_actors.errors import TooManyRequestsError
from fw_actors.ops.site import open_site
from tests.site_kit import dependencies_of


async def main(guesses: int) -> None:
    """Make `guesses` at once at each name."""
    async with open_site(load(dict(os.environ), Path.cwd())) as site:
        sign_in = SignIn(dependencies_of(site, site.hasher))

        async def guess(usr: str, number: int, refusals: Counter[str]) -> None:
            attempt = SignInAttempt(usr, f"guess {number}", "192.0.2.1", "", None, "")
            admitted = await sign_in.admit(sign_in.identify(attempt))
            if isinstance(admitted, Throttled):
                answer: object = TooManyRequestsError(admitted.wait)
            else:
                answer = await sign_in.verify(attempt, admitted)
            refusals[type(answer).__name__] += 1

        _print_line("ready")
        for line in iter(sys.stdin.readline, ""):
            refusals: Counter[str] = Counter()
            before = site.hasher.statistics().hashes
            async with trio.open_nursery() as nursery:
                for number in range(guesses):
                    nursery.start_soon(guess, line.rstrip("\n"), number, refusals)
            hashes = site.hasher.statistics().hashes - before
            _print_line(json.dumps({"hashes": hashes, "refusals": refusals}))


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]))
