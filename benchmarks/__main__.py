"""The command line of the benchmarks: `python -m benchmarks [SUITE…] [--json FILE]`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from benchmarks import flows, intake, nodes, pages, runtime, sender, store
from benchmarks.access import suite as access
from benchmarks.console import suite as console
from benchmarks.delivery import suite as delivery
from benchmarks.documents import suite as documents
from benchmarks.report import table, write_json
from benchmarks.rows import BenchmarkRow, Effort
from benchmarks.scaling import suite as scaling
from benchmarks.through import suite as through

WIDTH: Final = 140
SUITES: Final[dict[str, Callable[[Effort], Iterable[BenchmarkRow]]]] = {
    "access": access.rows,
    "console": console.rows,
    "delivery": delivery.rows,
    "documents": documents.rows,
    "flows": flows.rows,
    "intake": intake.rows,
    "nodes": nodes.rows,
    "pages": pages.rows,
    "runtime": runtime.rows,
    "scaling": scaling.rows,
    "sender": sender.rows,
    "store": store.rows,
    "through": through.rows,
}


@click.command()
@click.argument("suites", nargs=-1, type=click.Choice(sorted(SUITES)), metavar="[SUITE]...")
@click.option(
    "--json",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the rows to this file as well.",
)
@click.option(
    "--events",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="Events or documents of one round; fewer are quicker and say less.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Rounds of a row; its figures are their medians.",
)
@click.option(
    "--long", is_flag=True, help="Also the load runs and big backlogs, which take minutes."
)
@click.option(
    "--row",
    "only",
    multiple=True,
    metavar="NAME",
    help="Only this row, of the suite delivery; may be given again for more.",
)
@click.option(
    "--flows-of",
    "checkout",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=flows.ROOT,
    help="Another checkout of the repository whose flows are counted.",
)
@click.option(
    "--flows-trace", "trace", is_flag=True, help="Print the calls of each flow, in order of time."
)
def main(
    suites: tuple[str, ...],
    file: Path | None,
    events: int,
    rounds: int,
    only: tuple[str, ...],
    checkout: Path,
    *,
    long: bool,
    trace: bool,
) -> None:
    """Measure SUITEs (all, when none is named) and print a table.

    A row's figures come from this run, ours and the reference in turns. A ratio above 1 means
    that ours is better.
    """
    _judge_rows(suites, only, long=long)
    errors = Console(stderr=True)
    effort = Effort(
        events,
        rounds,
        lambda line: errors.print(line, style="dim", soft_wrap=True),
        long,
        frozenset(only),
    )
    measured = SUITES | {"flows": partial(flows.rows, checkout=checkout.absolute(), trace=trace)}
    rows = [row for suite in suites or sorted(SUITES) for row in measured[suite](effort)]
    # In a file or a pipe 80 columns would cut the names of the references.
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table(rows))
    if file is not None:
        write_json(file, rows)


def _judge_rows(suites: Sequence[str], only: Sequence[str], *, long: bool) -> None:
    """Refuse rows that would never be measured. Raises: click.UsageError."""
    if not only:
        return
    if set(suites) != {"delivery"}:
        raise click.UsageError("--row chooses rows of the suite delivery: name it, and no other.")
    known = delivery.names(long=long)
    unknown = [name for name in only if name not in known]
    if unknown:
        hint = "" if long else "; --long has more"
        raise click.UsageError(f"No row {', '.join(unknown)}: there are {', '.join(known)}{hint}.")


if __name__ == "__main__":
    main(prog_name="scripts/bench")
