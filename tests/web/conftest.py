"""What the tests of the front end share."""

from __future__ import annotations

import pytest

from tests.web.client import AppClient
from tests.web.fakes import FakeDocuments, FakeGateway, app_of


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


@pytest.fixture
def documents() -> FakeDocuments:
    return FakeDocuments()


@pytest.fixture
def client(gateway: FakeGateway, documents: FakeDocuments) -> AppClient:
    return AppClient(app_of(gateway, documents))
