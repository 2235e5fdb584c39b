"""Documents that an earlier version of their app has written."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.errors import ConflictError, ValidationError
from tests.fw_actors.documents.conftest import OpenVersion

pytestmark = pytest.mark.usefixtures("on_both_stores")

BILL = """
class Bill(DocType, naming="given"{options}):
    title = Data()
"""


async def test_document_submitted_in_earlier_version_can_be_cancelled_and_deleted(
    open_version: OpenVersion,
) -> None:
    """D-124: a later version of the app declares the DocType without `submittable`."""
    async with open_version(BILL.format(options=", submittable=True")) as site:
        await site.write("Administrator", lambda fw: fw.new_doc("Bill", name="b").insert().submit())

    def work(fw: Any) -> Any:
        bill = fw.get_doc("Bill", "b")
        with pytest.raises(ValidationError, match="not a submittable DocType"):
            bill.submit()
        with pytest.raises(ConflictError, match="cancel it first"):
            bill.delete()
        bill.cancel()
        with pytest.raises(ValidationError, match="not a submittable DocType"):
            bill.cancel()
        bill.delete()
        return fw.exists("Bill", "b")

    async with open_version(BILL.format(options="")) as site:
        assert await site.write("Administrator", work) is None
