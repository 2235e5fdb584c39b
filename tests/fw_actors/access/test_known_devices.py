"""Devices of accounts, and the mail about a new one (A-363 to A-366)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from fw_actors.access import known_origins
from fw_actors.access.known_origins import (
    MAX_DEVICES,
    delete_known_origins,
    device_key,
    record_device,
)
from fw_actors.mail import NewDevice, Notice, Template, TemplateValues, render
from fw_actors.store import Tx
from tests.accounts_kit import PASSWORD
from tests.fw_actors.virtual_site_kit import VirtualSite
from tests.http_site import http_site
from tests.site_kit import START_MS, inline_site

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:{v}.0) Gecko/20100101 Firefox/{v}.0"
CHROME = "Mozilla/5.0 (Windows NT 10.0) Chrome/{v}.0.0.0 Safari/537.36"


def key(agent: str = FIREFOX, address: str = "192.0.2.7", version: int = 130) -> bytes:
    return device_key(b"k" * 32, address, agent.format(v=version))


def test_device_key_is_browser_kind_and_network() -> None:
    """An update and another address nearby leave it the same one (A-364)."""
    assert key() == key(version=131) == key(address="192.0.2.200")
    assert len({key(), key(CHROME), key(address="198.51.100.7"), key(address="2001:db8::1")}) == 4
    assert key(address="2001:db8::1") == key(address="2001:db8:0:9::2")
    assert key("") != key()
    assert key("a" * 400 + "b") == key("a" * 400 + "c") != key("a" * 399 + "b"), "400 characters"


@pytest.mark.usefixtures("on_both_stores")
async def test_record_device_reports_later_devices_once_as_new(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with inline_site(tmp_path) as site:

        async def sign_in(user: str, device: bytes) -> bool:
            return await site.store.write(lambda tx: record_device(tx, user, device))

        result = [await sign_in("ann", one) for one in (key(), key(), key(CHROME), key(CHROME))]
        bob = await sign_in("bob", key(CHROME))
        await site.write(
            "Administrator",
            lambda fw: fw.db.sql("UPDATE fw_known_device SET seen = seen - 34560000000"),
        )
        late = [await sign_in("ann", key()), await sign_in("ann", key())]
    assert result == [False, False, True, False]
    assert bob is False
    assert late == [True, False]


@pytest.mark.usefixtures("on_both_stores")
async def test_known_devices_are_limited_to_the_latest(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """At most 50, and none of an account that is gone (A-365)."""

    def work(tx: Tx) -> None:
        for number in range(MAX_DEVICES + 5):
            record_device(tx, "ann", key(address=f"10.0.{number}.1"))

    async with inline_site(tmp_path) as site:
        await site.store.write(work)
        count = "SELECT count(*) AS n FROM fw_known_device"
        [kept] = await site.write("Administrator", lambda fw: fw.db.sql(count))
        await site.store.write(lambda tx: delete_known_origins(tx, "ann"))
        [left] = await site.write("Administrator", lambda fw: fw.db.sql(count))
    assert (kept["n"], left["n"]) == (MAX_DEVICES, 0)


@pytest.mark.usefixtures("on_both_stores")
async def test_known_devices_kept_are_the_most_recent(
    site: VirtualSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device that has signed in least recently makes room for a new one (A-365)."""
    monkeypatch.setattr(known_origins, "MAX_DEVICES", 2)

    async def sign_in(number: int) -> bool:
        await trio.sleep(1)
        device = key(address=f"10.0.{number}.1")
        return await site.site.store.write(lambda tx: record_device(tx, "ann", device))

    assert [await sign_in(number) for number in (1, 2, 3)] == [False, True, True]
    assert not await sign_in(2)
    assert await sign_in(1)


async def test_known_device_is_written_once_a_day(site: VirtualSite) -> None:
    """Else each sign-in would write a row more."""

    async def seen() -> int:
        await site.site.store.write(lambda tx: record_device(tx, "ann", key()))
        [(at,)] = await site.sql("SELECT seen FROM fw_known_device")
        return int(at)

    first = await seen()
    await trio.sleep(86_399)
    assert await seen() == first
    await trio.sleep(1)
    assert await seen() == first + 86_400_000


@pytest.mark.usefixtures("on_both_stores")
async def test_known_devices_follow_rename_and_deletion_of_their_account(site: VirtualSite) -> None:
    """They stay those of the account, and are deleted with it (A-365)."""
    await site.add_account("ada")
    await site.site.store.write(lambda tx: record_device(tx, "ada", key()))
    await site.do(lambda fw: fw.get_doc("User", "ada").rename("lovelace"))
    assert await site.sql('SELECT "user" FROM fw_known_device') == [("lovelace",)]
    await site.do(lambda fw: fw.get_doc("User", "lovelace").delete())
    assert await site.sql("SELECT 1 AS one FROM fw_known_device") == []


def test_new_device_mail_shows_time_address_and_advice() -> None:
    device = NewDevice(START_MS, "192.0.2.7", "Firefox")
    values = TemplateValues("tests", "ann", "Ann", "ann@x.test", notice=Notice(new_device=device))
    text = render(Template.NEW_DEVICE, values).text
    for part in ("2027-01-15 08:00 UTC", "192.0.2.7", "Firefox", "set a new password"):
        assert part in text


async def test_new_device_mail_follows_a_successful_sign_in_only(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """One mail is sent; without the setting, none is sent and nothing is stored (A-363, A-366)."""
    mails: dict[bool, list[str]] = {}
    rows: dict[bool, int] = {}
    for setting in (True, False):
        async with http_site(tmp_path / str(setting), new_device_mail=setting) as site:
            await site.add_account("ann")
            tries = [(FIREFOX, PASSWORD), (CHROME, "wrong"), (CHROME, PASSWORD), (CHROME, PASSWORD)]
            for agent, password in tries:
                headers = [("user-agent", agent.format(v=130))]
                await site.login("ann", password, headers=headers)
            found = await site.rows("SELECT recipient, template FROM doc_email_delivery")
            mails[setting] = [row["template"] for row in found]
            [count] = await site.rows("SELECT count(*) AS n FROM fw_known_device")
            rows[setting] = count["n"]
    assert mails == {True: ["new_device"], False: []}
    assert rows == {True: 2, False: 0}
