"""Random requests get the same answers on both stores, byte by byte, and none is a defect.

Lists are also compared with a model in Python that knows no SQL.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.fw_actors.documents.list_model import ListModel
from tests.fw_actors.documents.random_requests import KINDS, STANDARD, RandomRequests
from tests.http_site import HttpSite, http_site
from tests.site_kit import keep_database_at

APPS: Final = Path(__file__).parent / "apps"
SEEDS: Final = int(os.environ.get("STORE_SEEDS", "2"))
STEPS: Final = 150
VARYING: Final = ("date", "x-request-id")
THING, PEER = "/api/resource/Thing", "/api/resource/Peer"
SERVICES: Final = "/api/method/core.services."
PEERS: Final = ("p1", "P1", "ß", "é", "e\u0301", "\ufffe")
ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "boss": ("System Manager",),
    "clerk": ("Clerk",),
    "scoped": ("Clerk", "Writer"),
    "reader": ("Reader",),
}
WEBHOOK: Final = {
    "name": "w", "url": "https://x.test/", "event_type": "Document", "webhook_doctype": "Thing",
    "on_insert": 1, "on_update": 1, "on_submit": 1, "on_cancel": 1, "on_trash": 1,
    "secret": "s" * 32,
}  # fmt: skip
SHOWN: Final = (*STANDARD, *KINDS)
RECORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "Thing": SHOWN,
    "Peer": ("name", "title", "above", "weight"),
    "Version": ("name", "ref_doctype", "docname", "data", "owner", "creation"),
    "Webhook Delivery": ("name", "event", "reference_name", "payload"),
    "Audit Event": ("name", "action", "target", "detail"),
    "User Permission": ("name", "user", "for_value"),
}
Body = Mapping[str, str]


class SiteOnBothStores:
    """The same site on SQLite and on PostgreSQL: requests must get the same answer from both."""

    def __init__(self, sites: list[HttpSite], sids: list[dict[str, str]]) -> None:
        self._sites, self._sids = sites, sids
        self.statuses: set[int] = set()

    async def ask(
        self, method: str, path: str, body: object = None, user: str = "boss"
    ) -> tuple[int, bytes]:
        """Send a request to both; return the status and the body of their answer."""
        answers = []
        for site, sids in zip(self._sites, self._sids, strict=True):
            reply = await site.ask(method, path, body, sid=sids[user])
            headers = [line for line in reply.headers if line[0] not in VARYING]
            answers.append((reply.status, reply.body, headers))
        assert answers[0] == answers[1], (method, path, body, user)
        status, content, _ = answers[0]
        assert status < 500, (method, path, body, user)
        self.statuses.add(status)
        return status, content

    async def read(self, path: str) -> Any:
        """Return the JSON of a response of 200."""
        status, content = await self.ask("GET", path)
        assert status == 200, (path, content)
        return json.loads(content)

    async def rows(self, doctype: str, fields: tuple[str, ...]) -> list[dict[str, Any]]:
        """Return all documents of a DocType."""
        query = {"fields": json.dumps(fields), "order_by": "creation", "limit": "500"}
        found: list[dict[str, Any]] = []
        while True:
            path = listed(f"/api/resource/{part(doctype)}", {**query, "start": str(len(found))})
            page = (await self.read(path))["data"]
            found += page
            if len(page) < 500:
                return found


def part(name: str) -> str:
    return quote(name, safe="", errors="surrogatepass")


def listed(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?" + "&".join(f"{key}={part(text)}" for key, text in query.items())


def encoded(body: Body) -> bytes:
    fields = (f"{json.dumps(key)}:{text}" for key, text in body.items())
    return f"{{{','.join(fields)}}}".encode()


@asynccontextmanager
async def on_both_stores(folder: Path, url: str) -> AsyncIterator[SiteOnBothStores]:
    async with AsyncExitStack() as stack:
        sites, sids = [], []
        for store in ("sqlite", "postgresql"):
            (folder / store).mkdir()
            if store == "postgresql":
                keep_database_at(folder / store, url)
            site = await stack.enter_async_context(http_site(folder / store, apps=("alike",)))
            accounts = {name: await site.add_account(name, *roles) for name, roles in ROLES.items()}
            sids.append({name: await site.sid(user) for name, user in accounts.items()})
            sites.append(site)
        yield SiteOnBothStores(sites, sids)


class RandomRequestClient:
    """Sends random requests, and knows which documents there are."""

    def __init__(self, site: SiteOnBothStores, requests: RandomRequests) -> None:
        self._site, self._requests, self._draw = site, requests, requests.random
        self._names: dict[str, list[str]] = {"Thing": [], "Peer": requests.peers}
        self._model = ListModel(KINDS)

    async def prepare(self) -> None:
        """Make some Peers, a user with access scopes, and a Webhook that sends nothing."""
        ask = self._site.ask
        for title in PEERS:
            await ask("POST", PEER, {"title": title})
            self._names["Peer"].append(title)
        for title in PEERS[::2]:
            scope = {"user": "scoped", "allow": "Peer", "for_value": title}
            await ask("POST", "/api/resource/User%20Permission", scope)
        await ask("POST", "/api/resource/Webhook", WEBHOOK)
        await ask("POST", SERVICES + "webhooks.pause", {"webhook": "w"})

    async def visit(self) -> None:
        """Send some requests of one kind."""
        kinds = {
            self.insert: 5, self.insert_peer: 1, self.save: 5, self.change_state: 2,
            self.rename: 1, self.delete: 1, self.search: 1, self.list: 12, self.emit: 1,
            self.insert_user: 1,
        }  # fmt: skip
        (act,) = self._draw.choices(list(kinds), list(kinds.values()))
        await act(self._draw.choice(("boss", "boss", *ROLES)))

    def _some(self, doctype: str) -> str:
        return self._draw.choice(self._names[doctype] or ["none"])

    async def insert(self, user: str) -> None:
        requests = self._requests
        body = requests.body([])
        if requests.chance(0.7):
            body["name"] = requests.quoted(requests.text())
        if requests.chance(0.2):
            body["submit"] = "true"
        status, content = await self._site.ask("POST", THING, encoded(body), user)
        if status == 201:
            self._names["Thing"].append(json.loads(content)["data"]["name"])

    async def insert_peer(self, user: str) -> None:
        requests = self._requests
        title, above = requests.quoted(requests.text(2)), requests.value("peer")
        body = {"title": title, "above": above, "weight": requests.value("small")}
        status, content = await self._site.ask("POST", PEER, encoded(body), user)
        if status == 201:
            self._names["Peer"].append(json.loads(content)["data"]["name"])

    async def save(self, user: str) -> None:
        path = f"{THING}/{part(self._some('Thing'))}"
        status, content = await self._site.ask("GET", path)
        data: dict[str, Any] = {"lines": [], "modified": ""}
        if status == 200:
            data = json.loads(content)["data"]
        body = self._requests.body([row["name"] for row in data["lines"]])
        if self._requests.chance(0.3):
            body["modified"] = json.dumps(data["modified"])
        await self._site.ask("PUT", path, encoded(body), user)

    async def change_state(self, user: str) -> None:
        act = self._draw.choice(("submit", "cancel"))
        await self._site.ask("POST", f"{THING}/{part(self._some('Thing'))}/{act}", None, user)

    async def rename(self, user: str) -> None:
        doctype = self._draw.choice(("Thing", "Peer"))
        old, new = self._some(doctype), self._requests.text(2)
        path = f"/api/resource/{doctype}/{part(old)}/rename"
        body = encoded({"name": self._requests.quoted(new)})
        status, _ = await self._site.ask("POST", path, body, user)
        if status == 200:
            self._names[doctype].remove(old)
            self._names[doctype].append(new)

    async def delete(self, user: str) -> None:
        doctype = self._draw.choice(("Thing", "Peer"))
        name = self._some(doctype)
        path = f"/api/resource/{doctype}/{part(name)}"
        status, _ = await self._site.ask("DELETE", path, None, user)
        if status == 200:
            self._names[doctype].remove(name)

    async def search(self, user: str) -> None:
        field = self._draw.choice(SHOWN)
        text = self._requests.pattern(field).strip("%")
        await self._site.ask("GET", listed("/app/find", {"q": text}), None, user)
        for page in ("/app/Thing", "/export/Thing"):
            query = {"_q": text, "_sort": self._draw.choice(("", "-")) + field}
            await self._site.ask("GET", listed(page, query), None, user)
        await self._site.ask("GET", f"{THING}/{part(self._some('Thing'))}/export", None, user)

    async def list(self, user: str) -> None:
        """Compare a list with the model, if the user may list all."""
        query = self._requests.listing()
        status, content = await self._site.ask("GET", listed(THING, query), None, user)
        if status == 200 and user == "boss":
            stored = await self._site.rows("Thing", SHOWN)
            assert json.loads(content) == self._model.answer(stored, query), query
            self._requests.live = {
                name: [each[name] for each in stored if each[name] is not None] for name in SHOWN
            }

    async def emit(self, user: str) -> None:
        key = self._requests.quoted(self._draw.choice(("k", self._requests.text())))
        data = f'{{"x": {self._requests.tree(2)}}}'
        body = {"name": '"order.paid"', "data": data, "options": f'{{"key": {key}}}'}
        await self._site.ask("POST", SERVICES + "webhooks.emit", encoded(body), user)

    async def insert_user(self, user: str) -> None:
        name = self._draw.choice(("Boss", "ss", "ß", "\u03c3", "ς", self._requests.text()))
        email = f"{self._draw.choice(('a', 'A', name))}@x.test"
        body = {"name": self._requests.quoted(name), "email": self._requests.quoted(email)}
        await self._site.ask("POST", "/api/resource/User", encoded(body), user)

    async def compare_all(self) -> None:
        """Compare everything that is stored, as API, file and page."""
        for doctype, fields in RECORDS.items():
            assert await self._site.rows(doctype, fields), doctype
            await self._site.ask("GET", f"/export/{part(doctype)}")
        for name in self._names["Thing"]:
            await self._site.read(f"{THING}/{part(name)}")
            await self._site.ask("GET", f"/app/Thing/{part(name)}")
        assert await self._site.rows("Error Log", ("name",)) == []


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_random_requests_get_equal_answers_from_both_stores(
    seed: int, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-35, D-59, D-63, H-30."""
    monkeypatch.syspath_prepend(APPS)
    async with on_both_stores(tmp_path, postgres_url) as site:
        visitor = RandomRequestClient(site, RandomRequests(seed))
        await visitor.prepare()
        for _ in range(STEPS):
            await visitor.visit()
        await visitor.compare_all()
    assert {200, 201, 400, 403, 409, 422} <= site.statuses
