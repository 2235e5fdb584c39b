"""The suite `pages`: the duration of the pages of the desk beside many deliveries, on both stores.

The deliveries are written by SQL: one Webhook has nearly all of them, one in 33 has failed. A page
is read from one snapshot and rendered, as for a browser; the figure is the median of its rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import trio
from sqlalchemy import text

from benchmarks.delivery.events import EVENT, SECRET, data
from benchmarks.rows import BenchmarkRow, Effort
from fw_actors.config import Config, load
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import ADMINISTRATOR
from fw_actors.ops.site import Site, open_site
from fw_actors.rules.findings import ServiceState
from fw_actors.store import Tx
from fw_actors.webhooks.replay import MAX_COUNTED_DELIVERIES, ReplayRun
from supervisors.service import process
from tests.postgres_cluster import postgres_cluster
from web.pages.attempts import attempts_view
from web.pages.desk import BULK_ACTIONS
from web.pages.listing import listing
from web.pages.rendering import Assets, Rendering, page_frame
from web.pages.replays import shown_run
from web.pages.webhooks import DELIVERY, WEBHOOK, attention, webhook_view, with_names
from web.settings import Settings

SUITE: Final = "pages"
MAX_MS: Final = 50.0
LONG: Final = 1_000_000
SHORT: Final = 20_000
RARE: Final = 20  # one delivery of so many is the second Webhook's
FAILED: Final = 33  # one of so many has failed
_FOLDER: Final = Path(__file__).parent.parent / "build"  # a disk: /tmp may be memory
_KEY: Final = "a key of the benchmarks, forty characters"
_FILLED: Final = (
    "name", "webhook", "status", "next_attempt", "last_attempt", "attempts", "sent", "creation",
    "modified", "response_status", "error",
)  # fmt: skip
LISTS: Final[Mapping[str, Mapping[str, str]]] = {
    "list": {},
    "list_sent": {"status": "Sent"},
    "list_failed": {"status": "Failed"},
    "list_webhook_failed": {"webhook": "RARE", "status": "Failed"},
    "list_since": {"_since": "7d", "webhook": "MOST"},
    "list_search": {"_q": "nothing has this"},
    "list_search_found": {"_q": "503"},
    "list_event": {"event": EVENT},
    "list_sort": {"_sort": "attempts"},
    "list_last_page": {"_page": "200"},
}

ATTEMPTS: Final[Mapping[str, Mapping[str, str]]] = {
    "attempts": {},
    "attempts_failed": {"webhook": "RARE", "result": "failed"},
    "attempts_sent": {"webhook": "RARE", "result": "sent"},
    "attempts_searched": {"error": "503", "code": "503"},
}
RUN: Final = "a bulk replay of all that failed"

Page = Callable[[Fw], Any]


def rows(effort: Effort) -> Iterator[BenchmarkRow]:
    """Measure the suite."""
    _FOLDER.mkdir(exist_ok=True)
    process.prepare()
    count = LONG if effort.long else SHORT
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(dir=_FOLDER)))
        cluster = stack.enter_context(postgres_cluster())
        databases = {
            "sqlite": f"sqlite:///{folder}/fw.db",
            "postgresql": stack.enter_context(cluster.empty_database()),
        }
        (folder / "fw.json").write_bytes(msgspec.json.encode({"site": {"name": "bench"}}))
        for store, database in databases.items():
            config = load({"FW_SECRET_KEY": _KEY, "FW_DATABASE": database}, folder)
            for name, taken in trio.run(measured, config, count, effort).items():
                ms = median(taken)
                effort.tell(f"{SUITE}/{store}_{name}: {ms:.1f} ms with {count:,} deliveries")
                yield BenchmarkRow(
                    SUITE, f"{store}_{name}", "ms", ms, MAX_MS, "the most it may be", MAX_MS / ms
                )


async def measured(config: Config, count: int, effort: Effort) -> dict[str, list[float]]:
    """Return the milliseconds of each page beside `count` deliveries, by round."""
    async with open_site(config) as site:
        frequent, rare = await _subscribe(site)
        filled = await site.store.write(lambda tx: _fill(tx, count, frequent, rare))
        assert filled == count
        await site.store.write(_attempt)
        for table in ("doc_webhook_delivery", "fw_delivery_attempt"):
            await site.store.write(partial(_analyze, table))
        pages = _pages(frequent, rare)
        found: dict[str, list[float]] = {name: [] for name in pages}
        for _ in range(effort.rounds + 1):
            for name, page in pages.items():
                began = time.perf_counter()
                await site.read(ADMINISTRATOR, page)
                found[name].append((time.perf_counter() - began) * 1000)
        return {name: taken[1:] for name, taken in found.items()}  # the first one compiles


async def _subscribe(site: Site) -> list[str]:
    def work(fw: Fw) -> list[str]:
        hook = {"event_type": "Custom", "custom_event": EVENT, "secret": SECRET}
        urls = (f"https://{host}.example.com/hooks" for host in ("frequent", "rare"))
        return [fw.new_doc(WEBHOOK, url=url, **hook).insert().name for url in urls]

    made = await site.write(ADMINISTRATOR, work)
    await site.write(ADMINISTRATOR, lambda fw: fw.webhooks.emit(EVENT, data()))  # the model
    return made


def _fill(tx: Tx, count: int, frequent: str, rare: str) -> int:
    """Write the deliveries, one for each second up to now; return how many."""
    columns = sorted(tx.columns("doc_webhook_delivery").keys() - set(_FILLED))
    quoted = ", ".join(f'"{column}"' for column in columns)
    made = "CAST(:now AS BIGINT) - CAST(:count - i AS BIGINT) * 1000"
    failed = f"i % {FAILED} = 0"
    return tx.run(
        text(
            f"INSERT INTO doc_webhook_delivery ({quoted}, {', '.join(_FILLED)}) "
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count) "
            f"SELECT {quoted}, 'msg_' || CAST(100000000 + i AS TEXT), "
            f"CASE WHEN i % {RARE} = 0 THEN :rare ELSE :frequent END, "
            f"CASE WHEN {failed} THEN 'Failed' ELSE 'Sent' END, NULL, {made}, 1, {made}, {made}, "
            f"{made}, CASE WHEN {failed} THEN 503 ELSE 204 END, "
            f"CASE WHEN {failed} THEN 'status: the receiver answered 503.' END "
            "FROM n, doc_webhook_delivery WHERE name = "
            "(SELECT subject FROM fw_job ORDER BY id LIMIT 1)"
        ),
        count=count,
        frequent=frequent,
        rare=rare,
        now=tx.now,
    )


def _attempt(tx: Tx) -> None:
    """Give each delivery that has failed an earlier attempt, and one bulk replay of all."""
    tx.run(
        text(
            "INSERT INTO fw_delivery_attempt (delivery, position, number, status, last_attempt,"
            " response_status, error, duration_ms, webhook) SELECT name, 1, 1, 'Retrying',"
            " last_attempt - 30000, 503, error, 5, webhook FROM doc_webhook_delivery"
            " WHERE error IS NOT NULL"
        )
    )
    tx.run(
        text("UPDATE doc_webhook_delivery SET replay_run = :run WHERE error IS NOT NULL"), run=RUN
    )


def _analyze(table: str, tx: Tx) -> None:
    tx.run(text(f"ANALYZE {table}"))


def _pages(frequent: str, rare: str) -> dict[str, Page]:
    settings = Settings("bench", "https://bench.example.com")
    rendering = Rendering(settings, Assets())
    service = ServiceState(running=True)
    names = {"MOST": frequent, "RARE": rare}

    def shown_list(query: Mapping[str, str]) -> Page:
        given = {key: names.get(value, value) for key, value in query.items()}

        def page(fw: Fw) -> Any:
            shown = with_names(fw, listing(fw, DELIVERY, given), service)
            frame, acts = page_frame(fw, DELIVERY), BULK_ACTIONS[DELIVERY]
            return rendering.page("list.html", frame=frame, list=shown, acts=acts)

        return page

    def home(fw: Fw) -> Any:
        frame = page_frame(fw, "")
        return rendering.page("home.html", frame=frame, attention=attention(fw, service))

    def webhook(fw: Fw) -> Any:
        return webhook_view(fw, {"name": frequent}, service)

    def attempts(query: Mapping[str, str]) -> Page:
        given = {key: names.get(value, value) for key, value in query.items()}

        def page(fw: Fw) -> Any:
            frame = page_frame(fw, "Attempts")
            return rendering.page("attempts.html", frame=frame, **attempts_view(fw, given))

        return page

    def outcomes(fw: Fw) -> Any:
        run = ReplayRun(
            id=RUN, user=ADMINISTRATOR, request_id="", filters="[]", last="", cursor="",
            state="done", total=LONG, replayed=LONG, reasons="{}", error="", begun=0, ended=0,
        )  # fmt: skip
        return shown_run(fw, run, MAX_COUNTED_DELIVERIES)

    return {
        "home": home,
        "webhook": webhook,
        "replay": outcomes,
        **{name: attempts(query) for name, query in ATTEMPTS.items()},
        **{name: shown_list(query) for name, query in LISTS.items()},
    }
