"""The suite `through`: its producer."""

from __future__ import annotations

from pathlib import Path

import trio

from benchmarks.access.service import KEY
from benchmarks.delivery.site import subscribe
from benchmarks.through.producer import emit_all, producer
from fw_actors.config import load
from fw_actors.ops.site import open_site


def test_producer_records_all_its_events(tmp_path: Path) -> None:
    (tmp_path / "fw.json").write_text("{}")
    config = load({"FW_SECRET_KEY": KEY}, tmp_path)

    async def run() -> int:
        async with open_site(config) as site:
            await subscribe(site, ["https://receiver.test/hook"])
            with producer(tmp_path, 20, 10) as process:
                emit_all(process)
            return await site.read("Administrator", lambda fw: fw.count("Webhook Delivery", {}))

    assert trio.run(run) == 20
