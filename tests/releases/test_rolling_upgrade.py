"""Two nodes of a site on PostgreSQL, of which one runs an older build."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.releases.full_site_kit import APP, KEY, PASSWORD, SECRET
from tests.releases.upgrade_kit import NEWEST, Installed, OldBuild, UpgradeReceiver

ROUNDS = 30
DOCUMENTS = ("one", "two", "three")


@contextmanager
def node(folder: Path, wheel: Path, database: str) -> Iterator[Installed]:
    """A node of the site; stopped at the end."""
    folder.mkdir()
    installed = Installed(folder, FW_SECRET_KEY=KEY, FW_DATABASE=database)
    installed.install(wheel)
    installed.prepare({"desk": APP}, backoffSeconds=0.1, backoffCapSeconds=1)
    try:
        yield installed
    finally:
        installed.process("stop")


@contextmanager
def manager_at(url: str) -> Iterator[httpx.Client]:
    """A client of a node, signed in."""
    with httpx.Client(base_url=url, headers={"X-FW-CSRF": "1"}, timeout=30) as client:
        client.post("/api/login", json={"usr": "admin", "pwd": PASSWORD})
        yield client


@pytest.mark.timeout(300)
def test_rolling_upgrade_loses_and_reorders_nothing(
    wheels: tuple[Path, Path],
    old_build: OldBuild,
    receiver: UpgradeReceiver,
    postgres_url: str,
    tmp_path: Path,
) -> None:
    """O-29: an older node serves on while a newer one has migrated the store. Documents that both
    change in turns are delivered in order, and no request is refused. Once it has stopped, an older
    node starts only on a store of its own schema."""
    old, new = wheels
    with ExitStack() as stack:
        older = stack.enter_context(node(tmp_path / "older_node", old, postgres_url))
        manager = ("--role", "System Manager", "--role", "Event Publisher", "--password-stdin")
        older.fw("user", "add", "admin", "--email", "a@x.test", *manager, stdin=PASSWORD)
        webhook = (
            f'fw.new_doc("Webhook", url="{receiver.url}/", secret="{SECRET}", on_insert=1,'
            ' on_update=1, event_type="Document", webhook_doctype="Note", ordering="document",'
            " max_attempts=10).insert().name"
        )
        assert older.eval(webhook)
        clients = [stack.enter_context(manager_at(older.start()))]
        newer = stack.enter_context(node(tmp_path / "newer_node", new, postgres_url))
        clients.append(stack.enter_context(manager_at(newer.start())))

        for name in DOCUMENTS:
            made = clients[0].post("/api/resource/Note", json={"name": name, "title": "a", "n": 0})
            assert made.status_code == 201, made.text
        for n in range(1, ROUNDS):
            for position, name in enumerate(DOCUMENTS):
                saved = clients[(n + position) % 2].put(f"/api/resource/Note/{name}", json={"n": n})
                assert saved.status_code == 200, saved.text
        receiver.until("/", ROUNDS * len(DOCUMENTS))
        found: dict[str, dict[int, None]] = {name: {} for name in DOCUMENTS}
        for post in receiver.got:
            doc = post.body["data"]["doc"]
            found[doc["name"]][doc["n"]] = None
        assert {name: list(numbers) for name, numbers in found.items()} == {
            name: list(range(ROUNDS)) for name in DOCUMENTS
        }

        errors = re.findall(r"^\S+Z (?:error|critical) .*", older.log(), re.MULTILINE)
        assert not errors, "statements of an older node must remain valid"
        older.fw("stop")
        again = older.process("start")
        assert again.returncode == (0 if old_build.schema == NEWEST else 1)
        if old_build.schema < NEWEST:
            assert "a newer program has used it" in again.stdout + again.stderr
