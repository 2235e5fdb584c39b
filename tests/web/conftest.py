"""The fixtures of the front end's tests."""

from __future__ import annotations

import pytest

from fw_actors.documents import rest
from tests.web.client import AppClient
from tests.web.fakes import DOCUMENT_FUNCTIONS, FakeDocuments, FakeGateway, app_of


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


@pytest.fixture
def documents(monkeypatch: pytest.MonkeyPatch) -> FakeDocuments:
    """The documents that every application of the test serves."""
    fake = FakeDocuments()
    for name in DOCUMENT_FUNCTIONS:
        monkeypatch.setattr(rest, name, getattr(fake, name))
    return fake


@pytest.fixture
def client(gateway: FakeGateway, documents: FakeDocuments) -> AppClient:
    return AppClient(app_of(gateway))
