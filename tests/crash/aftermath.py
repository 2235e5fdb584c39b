"""The conditions that hold after processes that were killed, frozen and restarted have stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import httpx

from tests.crash.load import WRITERS, ClientAnswers
from tests.live_site import LiveReceiver, eventually
from tests.webhook_kit import deliveries

LOCKOUT_SECONDS: Final = 900
MAX_ANSWERED_401: Final = 4  # of five failures the last is answered 429
_REST_SECONDS: Final = 180.0
_IN_FLIGHT: Final = (WRITERS + 2) * 4  # deliveries at a kill, at most


def broken_promises(
    client: httpx.Client,
    receiver: LiveReceiver,
    answers: ClientAnswers,
    *,
    faults: int,
    seconds: float,
) -> list[str]:
    """Wait for the end of all deliveries, and return the violations.

    Args:
        client: a System Manager's, on a node that runs.
        faults: how many faults were injected; each excuses the deliveries that it interrupted.
        seconds: how far the clock went on, so that budgets of guesses began anew.
    """
    final = eventually(lambda: _all_final(client), _REST_SECONDS)
    notes = {row["name"] for row in _all(client, "Note", ["name"])}
    return [
        *_of_events(final, notes, answers, receiver.ids, faults),
        *_of_access(answers, seconds),
        *answers.strange,
    ]


def _of_events(
    final: list[dict[str, Any]],
    notes: set[str],
    answers: ClientAnswers,
    ids: Sequence[str],
    faults: int,
) -> Iterator[str]:
    known = {row["name"] for row in final}
    referred = Counter(row["reference_name"] for row in final)
    got = Counter(ids)
    for name in answers.notes - notes:
        yield f"note {name} was answered, and is not there"
    for name in notes:
        if referred[name] != 1:
            yield f"note {name} has {referred[name]} deliveries"
    for row in final:
        if row["status"] != "Sent" or not got[row["name"]]:
            yield f"{row['name']} is {row['status']}, and arrived {got[row['name']]} times"
        if row["attempts"] != 1:
            yield f"{row['name']} took {row['attempts']} attempts; deaths are none"
    for name in got.keys() - known:
        yield f"{name} arrived, and is not in the store"
    twice = [name for name, count in got.items() if count > 1]
    if len(twice) > faults * _IN_FLIGHT:
        yield f"{len(twice)} of {len(got)} arrived twice after {faults} faults"


def _of_access(answers: ClientAnswers, seconds: float) -> Iterator[str]:
    if answers.guesses[200]:
        yield "a wrong password was taken"
    windows = 1 + int(seconds / LOCKOUT_SECONDS)
    if answers.guesses[401] > MAX_ANSWERED_401 * windows:
        yield f"{answers.guesses[401]} guesses were answered 401: a failure was forgiven"
    for token, count in answers.spent.items():
        if count > 1:
            yield f"the token {token[:4]}… was spent {count} times"


def _all_final(client: httpx.Client) -> list[dict[str, Any]]:
    """Return all deliveries once each is Sent or Failed; an empty list before."""
    if any(not _is_final(row) for row in deliveries(client)):
        return []
    rows = _all(client, "Webhook Delivery", ["name", "status", "reference_name", "attempts"])
    return rows if all(_is_final(row) for row in rows) else []


def _is_final(row: dict[str, Any]) -> bool:
    return row["status"] in ("Sent", "Failed")


def _all(client: httpx.Client, doctype: str, fields: list[str]) -> list[dict[str, Any]]:
    """Return all rows of a DocType, page by page."""
    rows: list[dict[str, Any]] = []
    while True:
        query = {"fields": str(fields).replace("'", '"'), "limit": "500", "start": str(len(rows))}
        query["order_by"] = "name asc"
        page = client.get(f"/api/resource/{doctype}", params=query).json()["data"]
        rows += page
        if len(page) < 500:
            return rows
