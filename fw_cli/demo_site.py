"""The site of `fw demo`: created in a temporary folder and used over HTTP."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from fw_actors.access.users import add_user
from fw_actors.config import Config, load
from fw_actors.ops.site import Site
from fw_actors.rules.identifiers import bearer
from fw_actors.runtime import Entropy

USER: Final = "ada"
PASSWORD: Final = "an analytical engine"
BACKOFF_SECONDS: Final = 1.0
APP: Final = '''"""The demo's app: a DocType whose documents are watched by two Webhooks."""

from fw_actors.app import Data, DocType, Text


class Note(DocType, naming="random", permissions={"Note Writer": "list read create write"}):
    title = Data(required=True)
    text = Text()
'''


def make_site(folder: Path, entropy: Entropy) -> Config:
    """Write a site's files, with a throw-away key."""
    (folder / "demo_notes.py").write_text(APP)
    policy = {
        "site": {"name": "demo"},
        "ops": {"backoffSeconds": BACKOFF_SECONDS},
        "apps": ["demo_notes"],
    }
    (folder / "fw.json").write_text(json.dumps(policy))
    environ = {"FW_BIND": "127.0.0.1:0", "FW_SECRET_KEY": bearer(entropy.bytes(24))}
    return load(environ, folder)


async def make_user(site: Site) -> None:
    """Create the demo's System Manager."""
    email = f"{USER}@example.test"
    hashed = await site.hash_password(PASSWORD, USER, email)
    roles = ["System Manager"]
    await site.write(
        "Administrator", lambda fw: add_user(fw, USER, email, "Ada Lovelace", roles, hashed)
    )


class Client:
    """A signed-in user over HTTP. Blocking: call it in a thread."""

    def __init__(self, url: str) -> None:
        self._authority = urlsplit(url).netloc
        self._cookie = ""

    def sign_in(self) -> None:
        """Sign in as the demo's user, and keep the cookie."""
        _, headers = self._call("POST", "/api/login", {"usr": USER, "pwd": PASSWORD})
        self._cookie = headers["set-cookie"].partition(";")[0]

    def insert(self, doctype: str, fields: Mapping[str, Any]) -> str:
        """Insert a document; return its name."""
        response, _ = self._call("POST", f"/api/resource/{quote(doctype)}", dict(fields))
        return str(response["data"]["name"])

    def deliveries(self) -> list[dict[str, Any]]:
        """Return all deliveries, oldest first."""
        fields = ["name", "webhook", "status", "attempts", "next_attempt"]
        path = f"/api/resource/{quote('Webhook Delivery')}"
        query = f"?fields={quote(json.dumps(fields))}&order_by={quote('creation asc')}&limit=100"
        response, _ = self._call("GET", path + query, None)
        rows: list[dict[str, Any]] = response["data"]
        return rows

    def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> tuple[dict[str, Any], Mapping[str, str]]:
        connection = http.client.HTTPConnection(self._authority, timeout=10)
        headers = {"Content-Type": "application/json", "X-FW-CSRF": "demo", "Cookie": self._cookie}
        if not self._cookie:
            del headers["Cookie"]
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        response = json.loads(answer.read())
        connection.close()
        if answer.status >= http.client.BAD_REQUEST:
            raise RuntimeError(f"{method} {path}: {answer.status} {response}")
        return response, {name.lower(): value for name, value in answer.getheaders()}
