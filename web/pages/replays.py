"""Pages of bulk replays: the last ones, and the results of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from fw_actors.documents.fields import iso
from fw_actors.webhooks.health import labels_of
from fw_actors.webhooks.replay import (
    MAX_COUNTED_DELIVERIES,
    MAX_COUNTED_IN_LIST,
    ReplayRun,
    ReplayState,
    newest_runs,
    outcomes_of,
)
from web.exchange import Exchange
from web.operations import Operation, Route
from web.pages.framing import FramedPages
from web.pages.listing import BAD, GOOD, PLAIN, WARN, ListCell
from web.pages.rendering import list_path
from web.pages.wording import label_of, sentence, time_or_empty
from web.response import Response

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw

REPLAYS: Final = "/app/replays"
CURRENT: Final = "Bulk replays"
DELIVERY: Final = "Webhook Delivery"
OF_WEBHOOK: Final = 5
"""The number of runs on a Webhook's page, the last ones."""
MAX_NAMED_VALUES: Final = 3
_BOUNDS: Final[Mapping[str, str]] = {">=": "since", "<": "until"}
_TONES: Final[Mapping[str, str]] = {
    ReplayState.RUNNING.value: PLAIN, ReplayState.DONE.value: GOOD,
    ReplayState.STOPPED.value: WARN, ReplayState.FAILED.value: BAD,
}  # fmt: skip


@dataclass(frozen=True)
class ShownCount:
    """The number of deliveries of a run with one result; `path` is their list."""

    label: str
    text: str
    path: str


@dataclass(frozen=True)
class ShownRun:
    """A bulk replay as shown on pages; `moving` while its counts still change."""

    id: str
    path: str
    what: str
    user: str
    begun: str
    ended: str
    state: ListCell
    error: str
    total: str
    replayed: str
    counts: tuple[ShownCount, ...]
    refused: tuple[tuple[str, str], ...]
    moving: bool


class ReplayPages(FramedPages):
    """The pages of bulk replays: the list, and one run."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        return self._routes({REPLAYS: Operation(self.all), f"{REPLAYS}/<run>": Operation(self.one)})

    async def all(self, exchange: Exchange) -> Response:
        """Show the last bulk replays."""
        bulk = self._gateway.bulk

        def view(fw: Fw) -> dict[str, Any]:
            return {"runs": [shown_run(fw, run, MAX_COUNTED_IN_LIST) for run in bulk.all(fw)]}

        return await self._page(exchange, "replays.html", CURRENT, view)

    async def one(self, exchange: Exchange) -> Response:
        """Show a bulk replay: its progress, then its results."""
        run_id = exchange.argument("run")

        def view(fw: Fw) -> dict[str, Any]:
            return {
                "run": shown_run(fw, self._gateway.bulk.get(fw, run_id), MAX_COUNTED_DELIVERIES)
            }

        return await self._page(exchange, "replay.html", CURRENT, view)


def replays_of(fw: Fw, webhook: str) -> list[ShownRun]:
    """Return the last runs for a Webhook: runs that name it, or name no Webhook."""
    if not fw.rights.administers:
        return []
    runs = [run for run in newest_runs(fw.tx) if _webhook(run) in (webhook, None)]
    return [shown_run(fw, run, MAX_COUNTED_IN_LIST) for run in runs[:OF_WEBHOOK]]


def _webhook(run: ReplayRun) -> str | None:
    """Return the Webhook that a run was limited to, if it was limited to one."""
    condition = ("webhook", "=")
    return next((each[2] for each in run.selection if tuple(each[:2]) == condition), None)


def _triples(filters: Sequence[Any]) -> Iterable[tuple[Any, str, Any]]:
    for each in filters:
        yield each[0], each[1], each[2] if len(each) > 2 else None


def shown_run(fw: Fw, run: ReplayRun, max_count: int) -> ShownRun:
    """Return a run with the results of its deliveries, of which at most `max_count` are counted."""
    outcomes = outcomes_of(fw.tx, run, max_count)
    least = " or more" if outcomes.more else ""

    def count(label: str, number: int, **filters: str) -> ShownCount:
        path = f"{list_path(DELIVERY)}?{urlencode({'replay_run': run.id, **filters})}"
        return ShownCount(label, f"{number:,}{least}", path if number else "")

    counts = [
        count("Arrived", outcomes.arrived, status="Sent"),
        count("Failed again", outcomes.failed, status="Failed"),
        count("Still open", outcomes.open),
    ]
    if outcomes.gone:
        counts.append(ShownCount("Replayed again since, or deleted", f"{outcomes.gone:,}", ""))
    running = run.state == ReplayState.RUNNING
    return ShownRun(
        id=run.id,
        path=f"{REPLAYS}/{run.id}",
        what=in_words(fw, run.selection),
        user=run.user,
        begun=iso(run.begun),
        ended=time_or_empty(run.ended),
        state=ListCell("badge", run.state, _TONES[run.state]),
        error=run.error,
        total=f"{run.total:,}",
        replayed=f"{run.replayed:,}",
        counts=tuple(counts),
        refused=tuple((f"{number:,}", reason) for reason, number in run.refused.items()),
        moving=running or outcomes.open > 0,
    )


def path_of(fw: Fw, run: str | None) -> str:
    """Return the path of a run's page; empty if it is no longer kept, or if the user may not see
    it."""
    if not run or not fw.rights.administers:
        return ""
    return f"{REPLAYS}/{run}" if run in {each.id for each in newest_runs(fw.tx)} else ""


def in_words(fw: Fw, filters: Sequence[Any]) -> str:
    """Return filters as `Status Failed, since 2026-01-31 08:00:00 UTC`."""
    return ", ".join(_words(fw, *each) for each in _triples(filters))


def _words(fw: Fw, field: Any, operator: str, value: Any) -> str:
    if field == "creation" and operator in _BOUNDS and isinstance(value, str):
        return f"{_BOUNDS[operator]} {value[:19].replace('T', ' ')} UTC"
    name = label_of(field) if isinstance(field, str) else "Any text"
    if operator == "is null" or value is None:
        is_null = operator != "!=" and (value is None or value)
        return f"{name} is {'null' if is_null else 'not null'}"
    if field == "webhook" and operator == "=":
        value = labels_of(fw.tx, [str(value)]).get(str(value), value)
    if field == "error" and operator == "=":
        value = f'"{sentence(str(value)).removesuffix(".")}"'
    if isinstance(value, list):
        value = (
            ", ".join(map(str, value)) if len(value) <= MAX_NAMED_VALUES else f"{len(value)} values"
        )
    return f"{name}{'' if operator == '=' else f' {operator}'} {value}"
