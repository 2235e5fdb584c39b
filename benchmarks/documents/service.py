"""Ours: documents through the site, as the front end calls it, without HTTP."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

from fw_actors.access.users import add_user
from fw_actors.config import load
from fw_actors.documents import rest
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import ADMINISTRATOR
from fw_actors.ops.site import Site, open_site
from supervisors.service import process

ORDER: Final = "Bench Order"
USER: Final = "bench"
CUSTOMERS: Final = 200


def site_in(folder: Path) -> AbstractAsyncContextManager[Site]:
    """Open a site with the suite's app in `folder`, in a process that serves."""
    process.prepare()
    policy = {"site": {"name": "bench"}, "apps": ["benchmarks.documents.app"]}
    (folder / "fw.json").write_bytes(msgspec.json.encode(policy))
    return open_site(load({"FW_SECRET_KEY": "a key of the benchmarks, forty characters"}, folder))


async def add_records(site: Site) -> None:
    """Make the user, the customers, and a Webhook that watches orders."""

    def work(fw: Fw) -> None:
        add_user(fw, USER, "bench@x.test", roles=["System Manager"])
        for number in range(CUSTOMERS):
            fw.new_doc("Bench Customer", name=f"C{number}").insert()
        fw.new_doc(
            "Webhook", url="https://x.test", secret="s", event_type="Document",
            webhook_doctype=ORDER, on_insert=1, on_update=1,
        ).insert()  # fmt: skip

    await site.write(ADMINISTRATOR, work)


def order(number: int) -> dict[str, Any]:
    """Return the body of an order with two rows."""
    return {
        "title": f"Order {number}", "customer": f"C{number % CUSTOMERS}", "number": number,
        "amount": number / 7,
        "lines": [{"item": "bolt", "qty": 2, "rate": 1.5}, {"item": "nut", "rate": 0.5}],
    }  # fmt: skip


async def insert(site: Site, documents: int, callers: int) -> float:
    """Insert orders; documents per second."""

    async def one(number: int) -> None:
        body = order(number)
        await site.write(USER, lambda fw: rest.insert(fw, ORDER, body))

    return await _rate(one, documents, callers)


async def save(site: Site, names: list[str], callers: int) -> float:
    """Save a change of each order's own field; documents per second."""

    async def one(number: int) -> None:
        body = {"amount": time.perf_counter()}
        await site.write(USER, lambda fw: rest.save(fw, ORDER, names[number], body))

    return await _rate(one, len(names), callers)


async def read(site: Site, names: list[str], callers: int) -> float:
    """Read orders by name, and make each into JSON; documents per second."""
    encode = msgspec.json.Encoder().encode

    async def one(number: int) -> None:
        encode({"data": await site.read(USER, lambda fw: rest.read(fw, ORDER, names[number]))})

    return await _rate(one, len(names), callers)


async def list_some(site: Site, lists: int) -> float:
    """List 20 orders by two filters, with their total; lists per second."""

    async def one(number: int) -> None:
        filters = [["customer", "=", f"C{number % CUSTOMERS}"], ["number", ">", 1000 * number % 7]]
        listing = {"filters": filters, "fields": ["name", "title", "number"]}
        found = await site.read(USER, lambda fw: rest.list_documents(fw, ORDER, listing))
        assert len(found["data"]) == 20

    return await _rate(one, lists, 1)


async def names(site: Site) -> list[str]:
    """Return the names of all orders."""
    found = await site.read(ADMINISTRATOR, lambda fw: fw.get_all(ORDER, fields=["name"]))
    return [row["name"] for row in found]


async def _rate(one: Callable[[int], Awaitable[None]], number: int, callers: int) -> float:
    """Run `one` so many times, `callers` of them at once; how many a second."""
    numbers: Iterator[int] = iter(range(number))

    async def call() -> None:
        for each in numbers:  # shared: each number is taken once
            await one(each)

    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(callers):
            nursery.start_soon(call)
    return number / (time.perf_counter() - began)
