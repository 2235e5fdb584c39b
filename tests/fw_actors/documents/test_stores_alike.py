"""The same requests over HTTP get the same answers on both stores, and none is a defect.

The requests cover values that only one store can hold, values that the stores sort, compare or
round differently, and values too large for either (O-10, D-35, O-20).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

import pytest

from fw_actors.documents import rest
from fw_actors.errors import FwError
from tests.http_site import HttpSite, http_site
from tests.site_kit import keep_database_at
from web import json_input
from web.http11 import MAX_HEAD_BYTES

APPS = Path(__file__).parent / "apps"
SAMPLE, CUSTOMER, ORDER = (
    f"/api/resource/{name}" for name in ("Sample", "Customer", "Sales%20Order")
)
ANSWERS = {200, 201, 400, 404, 405, 409, 422}
Request = tuple[Any, ...]

TEXTS = [
    "nul \0", "half \ud800", "e\u0301", "é", "\u0085", "\u2028", "\ufeff", "\uffff", "😀", " x ",
    "", "a\nb", "a\tb", "%_\\", "I", "\u0131", "İ", "ß", "SS", "'", '"; --', "a" * 11,
]  # fmt: skip
NUMBERS = [
    "0", "-0.0", "1e308", "-1e308", "5e-324", "1e-400", "1e400", "NaN", "Infinity", "1e22", "0.1",
    "9007199254740992", "9007199254740993", "-9007199254740992", "9223372036854775808", "1.0",
    "123456789.123456789", "true", "null", '"1"', "9" * 5000,
]  # fmt: skip
DAYS = [
    "0001-01-01", "9999-12-31", "0000-01-01", "2024-02-30", "\uff12024-01-01", "2024-1-1", "", "x",
]  # fmt: skip
HOURS = ["", "T00:00:00+14:00", "T23:59:59.9999999-23:59", "T00:00Z", " 00:00"]
NAMES = [
    ".", "..", "%", "a?b", "a#b", "a b", "a\\b", "'", '"', ";", "a:b", "+", "é" * 140, "😀" * 140,
    "x" * 141, "\u00a0x", "x\u200b", "\u202ex", "__", "null", "nul \0", "half \ud800", "é",
    "e\u0301",
]  # fmt: skip
SORTED = [
    "Z", "a", "A", "ä", "ab", "a b", "a.b", "z", "é", "e\u0301", "\U0001f600", "\uffff", "1", "9",
    "10",
]  # fmt: skip
FIELDS = ["data", "kind", "link", "day", "moment", "done", "ratio", "count", "extra", "text", "pin"]
MORE: list[dict[str, Any]] = [
    {"ratio": -1}, {"ratio": 0}, {"count": 5, "kind": "a"}, {"day": "2024-02-29"},
]  # fmt: skip
CONDITIONS: list[list[Any]] = [
    ["is null", True], ["is null", False], ["!=", "a"], ["between", ["a", "b"]], ["in", []],
    ["not in", ["a"]],
]  # fmt: skip
LINE = {"item": "x"}
LINES: list[Any] = [
    [LINE], [{**LINE, "rate": -0.0}], [{**LINE, "name": "nul \0"}], [{**LINE, "name": "é" * 5000}],
    [{**LINE, "idx": 2**60}], [{**LINE, "parent": "x"}], [{"item": "\0"}], [{}], 5, [5], None, {},
]  # fmt: skip
MANY = [100, 101, 1000, 3000, 31_000]


def listing(**query: Any) -> Request:
    """Ask for all that match."""
    given = {"limit": "500", "fields": ["name"], **query}
    texts = ((k, v if isinstance(v, str) else json.dumps(v)) for k, v in given.items())
    return "GET", f"{SAMPLE}?" + "&".join(f"{k}={quote(v, safe='')}" for k, v in texts)


def path(name: str) -> str:
    return f"{SAMPLE}/{quote(name, safe='', errors='surrogatepass')}"


def raw(field: str, name: str, number: str) -> bytes:
    return f'{{"name": "{field} {name}", "{field}": {number}}}'.encode()


def texts() -> Iterator[Request]:
    """Characters, in every kind of field and of filter."""
    for at, text in enumerate(TEXTS):
        for field in ("data", "text", "extra", "pin", "token", "link", "kind"):
            yield "POST", SAMPLE, {"name": f"{field} {at}", field: text}
            yield "GET", path(f"{field} {at}")
        yield "POST", SAMPLE, {"name": f"key {at}", "extra": {text: [text]}}
        yield "GET", path(f"key {at}")
    for text, field, operator in product(
        TEXTS, ("data", "name", "owner", "extra"), ("=", "<", "like")
    ):
        yield listing(filters=[[field, operator, text]], order_by=f"{field} asc")


def numbers() -> Iterator[Request]:
    """Numbers at the edges of what JSON, columns and floats hold."""
    for (at, number), field in product(enumerate(NUMBERS), ("count", "ratio", "done", "extra")):
        yield "POST", SAMPLE, raw(field, str(at), number)
        yield "GET", path(f"{field} {at}")
        for operator in ("=", ">="):
            yield listing(filters=f'[["{field}", "{operator}", {number}]]', fields=["name", field])
    for number in NUMBERS:
        for field in ("idx", "docstatus", "modified"):
            yield listing(filters=f'[["{field}", "=", {number}]]')
        yield listing(start=number)
        yield listing(limit=number)


def times() -> Iterator[Request]:
    """Days and instants at the ends of the calendar."""
    yield "POST", SAMPLE, {"name": "one"}
    for day, hour in product(DAYS, HOURS):
        moment = day + hour
        yield "POST", SAMPLE, {"name": f"{day} {hour}", "day": day, "moment": moment}
        yield "GET", path(f"{day} {hour}")
        yield listing(filters=[["day", "=", moment]])
        yield listing(filters=[["moment", "<=", moment]], order_by="moment desc, day asc")
        yield listing(filters=[["creation", ">", moment]])
        yield "PUT", path("one"), {"modified": moment, "text": "x"}


def names() -> Iterator[Request]:
    """Names of all characters, from insert to delete."""
    for name in NAMES:
        yield "POST", SAMPLE, {"name": name, "text": name}
        yield "GET", path(name)
        yield "PUT", path(name), {"text": "changed"}
        yield "GET", path(name) + "/export"
        yield "POST", path(name) + "/rename", {"name": f"r{name[:100]}"}
        yield "POST", path(f"r{name[:100]}") + "/rename", {"name": name}
        yield "POST", path(name) + "/submit"
        yield "DELETE", path(name)
        yield "GET", f"/api/resource/{quote(name, safe='', errors='surrogatepass')}"
    for odd in ("%00", "%ED%A0%80", "%FF"):
        for method in ("GET", "DELETE"):
            yield method, f"{SAMPLE}/{odd}"
            yield method, f"/api/resource/{odd}/x"
        for argument in ("filters", "fields", "order_by", "limit", "nothing"):
            yield "GET", f"{SAMPLE}?{argument}={odd}"


def order_and_likeness() -> Iterator[Request]:
    """Text sorts by code point, `like` ignores ASCII case, null sorts first ascending."""
    for title in SORTED:
        yield "POST", CUSTOMER, {"title": title, "vat": title}
        yield "POST", SAMPLE, {"name": title, "data": title, "link": title, "extra": [title]}
    for twice in ("a", "A", None, None):
        yield "POST", CUSTOMER, {"title": f"again {twice}", "vat": twice}
    for at, values in enumerate(MORE):
        yield "POST", SAMPLE, {"name": f"more {at}", **values}
    for field in FIELDS:
        for direction in ("asc", "desc"):
            yield listing(order_by=f"{field} {direction}", fields=["name", "data"])
        for condition in CONDITIONS:
            yield listing(filters=[[field, *condition]])
    for pattern in ("a%", "A_", "%b", "ä%", "Ä%", r"%\%%", "_", "\\", r"a\\b", "É", "%" * 1001):
        yield listing(filters=[["data", "like", pattern]])


def too_much() -> Iterator[Request]:
    """More than a statement takes on one of the stores, or on both."""
    yield "POST", SAMPLE, {"name": "big", "text": "é" * 150_000}
    yield "GET", path("big")
    yield listing(filters=[["text", "like", "%é%"]])
    yield "POST", SAMPLE, {"name": "secrets", "pin": "x" * 300_000, "token": "y" * 300_000}
    yield listing(filters=[["name", "=", "x"]] * 50 + [["idx", "in", list(range(600))]] * 50)
    for many in MANY:
        yield listing(filters=[["idx", "=", 0]] * many)
        yield listing(filters=[["idx", "in", list(range(many))]])
        yield listing(fields=["idx"] * many)
        yield listing(order_by=",".join(["idx"] * many))
    for many in (5000, 5001):
        yield "POST", ORDER, {"title": "t", "lines": [LINE] * many}


def rows() -> Iterator[Request]:
    """Child rows of every wrong shape, and right ones."""
    for lines in LINES:
        yield "POST", ORDER, {"title": "t", "lines": lines}
        yield "PUT", f"{ORDER}/SO-00001", {"title": "u", "lines": lines}


async def answers(site: HttpSite, requests: Iterator[Request]) -> list[tuple[Request, int, Any]]:
    """Send the requests; return their answers without random parts."""
    sid = await site.sid(await site.add_account("boss", "System Manager"))
    found = []
    for request in requests:
        if len(request[1]) < MAX_HEAD_BYTES:
            reply = await site.ask(*request, sid=sid)
            found.append((request, reply.status, _without_row_names(reply.json)))
        else:
            found.append((request, *await _listed(site, request[1])))
    return found


async def _listed(site: HttpSite, target: str) -> tuple[int, Any]:
    """Answer a list whose address is longer than a head may be, as Python code asks for it."""
    query = dict(parse_qsl(target.partition("?")[2]))
    request = {
        k: json.loads(v) if k in ("filters", "fields", "limit") else v for k, v in query.items()
    }
    try:
        answer = await site.site.read("boss", lambda fw: rest.list_documents(fw, "Sample", request))
    except FwError as refusal:
        return refusal.status, str(refusal)
    return 200, answer


def _without_row_names(answer: Any) -> Any:
    """Remove the random names of child rows."""
    data = answer.get("data")
    for row in (data.get("lines") or ()) if isinstance(data, dict) else ():
        del row["name"]
    return answer


@pytest.mark.parametrize(
    "requests", [texts, numbers, times, names, order_and_likeness, too_much, rows]
)
async def test_sqlite_and_postgresql_give_equal_answers(
    requests: Any, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(APPS)
    # No body is decoded in a thread, which the virtual clock would not wait for.
    monkeypatch.setattr(json_input, "MANY_VALUES", json_input.MAX_VALUES)
    found = []
    for store in ("sqlite", "postgresql"):
        folder = tmp_path / store
        folder.mkdir()
        if store == "postgresql":
            keep_database_at(folder, postgres_url)
        async with http_site(folder, apps=("shop",)) as site:
            found.append(await answers(site, requests()))
    for ours, theirs in zip(*found, strict=True):
        assert ours == theirs
        assert ours[1] in ANSWERS, ours
    assert {status // 100 for _, status, _ in found[0]} == {2, 4}
