"""A site on PostgreSQL whose transactions overlap, for the tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fw_actors.ops.site import Site
from tests.interop.delivery_transitions import DeliveryTransitions
from tests.interop.overlap_kit import Overlap, patient_site


@pytest.fixture
async def site(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    async with patient_site(postgres_url, monkeypatch) as site:
        yield site


@pytest.fixture
def overlap(site: Site, postgres_url: str) -> Overlap:
    return Overlap(site, postgres_url)


@pytest.fixture
def transitions(site: Site) -> DeliveryTransitions:
    return DeliveryTransitions(site)
