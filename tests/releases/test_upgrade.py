"""A running site from an older build to this one, and back: wheels, pip, and real processes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.releases.upgrade_kit import NEWEST, Installed, OldBuild, UpgradeReceiver


@pytest.mark.timeout(300)
def test_site_is_upgraded_and_restored_from_backup(
    wheels: tuple[Path, Path],
    old_build: OldBuild,
    receiver: UpgradeReceiver,
    tmp_path: Path,
) -> None:
    """Each build replaces an older one; the store is migrated, old deliveries are replayed, an
    older program refuses a store with a newer schema, and the backup leads back (O-167, C-110)."""
    old, new = wheels
    site = Installed(tmp_path)
    site.install(old)
    site.site.mkdir()
    site.fw("init")
    webhook = (
        f'fw.new_doc("Webhook", event_type="Custom", custom_event="a", url="{receiver.url}/",'
        ' secret="a secret of some length").insert().name'
    )
    assert site.eval(webhook)
    site.fw("start")
    before = site.fw("version")
    try:
        (first,) = site.eval('fw.webhooks.emit("a", {"n": 1})')["deliveries"]
        assert site.settled(first) == "Sent"
        site.fw("backup", "before.db")

        site.install(new)
        assert site.fw("version") != before
        site.fw("restart")
        assert site.deliveries() == {first: "Sent"}
        site.fw("webhooks", "replay", first)
        assert site.settled(first) == "Sent"
        assert receiver.ids == [first, first]
    finally:
        site.process("stop")

    site.install(old)
    listed = site.process("webhooks", "list")
    if old_build.schema < NEWEST:
        expected = f"version {NEWEST} and this program knows {old_build.schema}"
        assert (listed.returncode, expected in listed.stderr) == (1, True)
    else:
        assert listed.returncode == 0
    for name in ("fw.db-wal", "fw.db-shm"):
        (site.site / "data" / name).unlink(missing_ok=True)
    shutil.copy(site.site / "before.db", site.site / "data" / "fw.db")
    assert site.deliveries() == {first: "Sent"}
