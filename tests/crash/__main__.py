"""The command behind `scripts/crash`: kills real processes under load, round after round."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.crash.nodes import one_site, several_nodes
from tests.crash.rounds import KillRounds, NodeRounds, ProcessRounds, Rounds, run
from tests.live_site import LiveReceiver
from tests.postgres_cluster import postgres_cluster
from tests.site_kit import keep_database_at


def main(arguments: Sequence[str]) -> int:
    """Run rounds; the exit code is 1 when a promise was broken."""
    args = _parser().parse_args(arguments)
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="fw-crash-")
        rounds = _rounds(args, Path(stack.enter_context(temporary)), stack)
        broken = run(rounds, args.rounds)
    answers = rounds.answers
    print(f"{len(answers.notes)} notes answered, {len(rounds.receiver.ids)} events received; "
          f"refused: {dict(answers.refused)}, guesses: {dict(answers.guesses)}")  # fmt: skip
    print("\n".join([*broken, f"{args.rounds} rounds, {len(broken)} broken promises"]))
    return 1 if broken else 0


def _rounds(args: argparse.Namespace, folder: Path, stack: ExitStack) -> Rounds:
    receiver = stack.enter_context(LiveReceiver())
    if args.processes > 1:
        site = stack.enter_context(one_site(folder, args.processes))
        if args.store == "postgresql":
            keep_database_at(folder, stack.enter_context(postgres_cluster()).url())
        return ProcessRounds([site], receiver, args.seed)
    if args.store == "sqlite":
        return KillRounds([stack.enter_context(one_site(folder))], receiver, args.seed)
    cluster = stack.enter_context(postgres_cluster())
    sites = stack.enter_context(several_nodes(folder, cluster.url(), args.nodes))
    if args.nodes == 1:
        return KillRounds(sites, receiver, args.seed)
    return NodeRounds(sites, receiver, args.seed, cluster)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/crash", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument(
        "--processes", type=int, default=1, help="of one service, which are killed in turn"
    )
    parser.add_argument(
        "--nodes", type=int, default=3, help="on PostgreSQL: killed, frozen and restarted in turn"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
