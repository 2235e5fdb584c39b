"""GET /api/ready: 503 while starting, draining or when the store does not answer (H-102)."""

from __future__ import annotations

import pytest

from fw_actors.errors import OverloadedError
from fw_actors.store import StatementError
from tests.http_site import HttpSite


@pytest.mark.usefixtures("on_both_stores")
async def test_readiness_is_200_while_the_store_answers(site: HttpSite) -> None:
    reply = await site.ask("GET", "/api/ready")
    assert (reply.status, reply.json) == (200, {"ok": True})


@pytest.mark.parametrize("trouble", [OverloadedError(), StatementError("the file is malformed")])
async def test_readiness_follows_the_store(
    site: HttpSite, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    async def refuse(*args: object) -> None:
        raise trouble

    with monkeypatch.context() as broken:
        broken.setattr(site.site.store, "read", refuse)
        reply = await site.ask("GET", "/api/ready")
        assert (reply.status, reply.error["type"]) == (503, "OverloadedError")
        assert int(reply.header("retry-after") or 0) >= 1
        assert (await site.ask("GET", "/api/health")).status == 200
    assert (await site.ask("GET", "/api/ready")).status == 200
