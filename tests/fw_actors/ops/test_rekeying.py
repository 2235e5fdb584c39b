"""Vault values get another key: docs/operating.md, Rotate FW_SECRET_KEY."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fw_actors.documents.vault import VaultCipher
from fw_actors.errors import ConfigurationError, ConflictError
from fw_actors.ops import stored_secrets
from fw_actors.ops.stored_secrets import Rekeying
from fw_actors.runtime import SeededEntropy
from tests.fw_actors.virtual_site_kit import VirtualSite, open_virtual_site
from tests.site_kit import SECRET_KEY

pytestmark = pytest.mark.usefixtures("on_both_stores")

NEW_KEY = "the key that comes after the key of the tests"
MORE = 5


class CutOffError(Exception):
    """Stands for a kill between two transactions."""


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_secrets, "MOVED_BATCH", 2)


def vault(key: str) -> VaultCipher:
    return VaultCipher(key, SeededEntropy(7))


def rekeying_of(site: VirtualSite, old: str = SECRET_KEY, new: str = NEW_KEY) -> Rekeying:
    return Rekeying(site.site.store, site.site.registry, vault(old), vault(new))


async def fill(site: VirtualSite) -> None:
    """Store secrets in a Webhook, in documents and in rows of a table."""
    await site.subscribe(secret="of the webhook, as long as it has to be")

    def orders(fw: Any) -> None:
        for n in range(MORE):
            row = {"item": "tea", "token": f"row {n}"}
            fw.new_doc("Sales Order", title="x", token=f"order {n}", lines=[row]).insert()

    await site.do(orders)


async def opened(site: VirtualSite) -> set[str]:
    """Every secret, as app code reads it."""

    def read(fw: Any) -> set[str]:
        orders = [fw.get_doc("Sales Order", each["name"]) for each in fw.get_all("Sales Order")]
        hooks = [fw.get_doc("Webhook", each["name"]) for each in fw.get_all("Webhook")]
        found = {order.vault("token") for order in orders}
        found |= {line.vault("token") for order in orders for line in order.lines}
        return found | {hook.vault("secret") for hook in hooks}

    return await site.do(read)


EVERY = {
    "of the webhook, as long as it has to be",
    *(f"order {n}" for n in range(MORE)),
    *(f"row {n}" for n in range(MORE)),
}


async def everything_else(site: VirtualSite) -> list[Any]:
    """Read all that a change of secrets must not alter."""
    return [
        await site.sql("SELECT name, modified, modified_by FROM doc_sales_order ORDER BY name"),
        await site.sql("SELECT name, modified FROM doc_webhook ORDER BY name"),
        await site.sql("SELECT count(*) AS n FROM doc_version"),
        await site.sql("SELECT count(*) AS n FROM doc_webhook_delivery"),
        await site.sql("SELECT count(*) AS n FROM fw_job"),
    ]


async def test_rekeying_moves_all_secrets_and_changes_nothing_else(
    tmp_path: Path,
) -> None:
    """C-87, C-88."""
    async with open_virtual_site(tmp_path) as site:
        await fill(site)
        before = await everything_else(site)
        count = await rekeying_of(site).count()
        assert (count.old, count.new, count.lost) == (1 + 2 * MORE, 0, [])
        moved: list[int] = []
        await rekeying_of(site).run(moved.append)
        assert sum(moved) == 1 + 2 * MORE
        assert max(moved) == 2, "a transaction holds a batch and no more"
        assert await everything_else(site) == before
    async with open_virtual_site(tmp_path, secrets={"key": NEW_KEY}) as site:
        assert await opened(site) == EVERY
        count = await rekeying_of(site).count()
        assert (count.old, count.new, count.lost) == (0, 1 + 2 * MORE, [])


@pytest.mark.parametrize("batches", range(1, 8))
async def test_rekeying_resumes_and_keeps_the_site_closed_until_done(
    tmp_path: Path, batches: int
) -> None:
    async with open_virtual_site(tmp_path) as site:
        await fill(site)
        left = batches

        def cut_off(_: int) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise CutOffError

        with pytest.raises(CutOffError):
            await rekeying_of(site).run(cut_off)
        for key in (SECRET_KEY, NEW_KEY):
            with pytest.raises(ConfigurationError, match="being moved to another FW_SECRET_KEY"):
                async with open_virtual_site(tmp_path, secrets={"key": key}):
                    pass
        await rekeying_of(site).run(lambda _: None)
    async with open_virtual_site(tmp_path, secrets={"key": NEW_KEY}) as site:
        assert await opened(site) == EVERY


@pytest.mark.parametrize("secrets", [{"key": SECRET_KEY}, {}])
async def test_site_refuses_the_old_key_after_rekeying(
    tmp_path: Path, secrets: dict[str, str]
) -> None:
    """A service with the old key would fail every delivery permanently (B-167: no retries)."""
    async with open_virtual_site(tmp_path) as site:
        await rekeying_of(site).run(lambda _: None)
    with pytest.raises(ConfigurationError, match="moved to another FW_SECRET_KEY"):
        async with open_virtual_site(tmp_path, secrets=secrets):
            pass


async def test_store_never_rekeyed_opens_with_any_key(tmp_path: Path) -> None:
    async with open_virtual_site(tmp_path) as site:
        await fill(site)
    async with open_virtual_site(tmp_path, secrets={"key": "a third"}) as site:
        assert site.site.vault.key_id


async def test_rekeying_reports_and_keeps_an_unreadable_value(site: VirtualSite) -> None:
    await fill(site)
    ((name, sealed),) = await site.sql("SELECT name, secret FROM doc_webhook")
    ((order, _),) = await site.sql("SELECT name, token FROM doc_sales_order ORDER BY name LIMIT 1")
    lost = vault("a third").seal("x", "Sales Order", "token", "elsewhere")
    await site.sql(
        "UPDATE doc_sales_order SET token = :lost WHERE name = :name", lost=lost, name=order
    )
    count = await rekeying_of(site).count()
    assert [(each.doctype, each.field, each.name) for each in count.lost] == [
        ("Sales Order", "token", order)
    ]
    await rekeying_of(site).run(lambda _: None)
    ((after,),) = await site.sql("SELECT token FROM doc_sales_order WHERE name = :name", name=order)
    assert after == lost
    ((moved,),) = await site.sql("SELECT secret FROM doc_webhook WHERE name = :n", n=name)
    assert moved != sealed


async def test_rekeying_refuses_other_keys_until_it_is_finished(site: VirtualSite) -> None:
    await fill(site)

    def cut_off(_: int) -> None:
        raise CutOffError

    with pytest.raises(CutOffError):
        await rekeying_of(site).run(cut_off)
    with pytest.raises(ConflictError, match="between other keys"):
        await rekeying_of(site, new="a third").run(lambda _: None)
    await rekeying_of(site, old=NEW_KEY, new=SECRET_KEY).run(lambda _: None)
    assert await opened(site) == EVERY, "going back is finishing it, too"
