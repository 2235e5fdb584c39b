"""Rows of table fields that an app has removed, alone or with the DocType of the rows (D-132)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.errors import ConflictError
from tests.fw_actors.documents.conftest import OpenVersion

pytestmark = pytest.mark.usefixtures("on_both_stores")

TOOL = """
class Tool(DocType, naming="given"):
    note = Data()
"""
PART = """
class ShelfPart(DocType, name="Shelf Part", child=True):
    text = Data()
    tool = Link(options="Tool")
"""
SHELF = """
class Shelf(DocType, naming="given"):
    note = Data()
"""
PARTS = "    parts = Table(ShelfPart)\n"
LABELS = "    labels = Table(ShelfPart)\n"
BIN = """
class Bin(DocType, naming="given"):
    parts = Table(ShelfPart)
"""
WITH_PARTS = TOOL + PART + SHELF + PARTS
WITHOUT = {
    "the field": TOOL + PART + SHELF,
    "one of two fields": TOOL + PART + SHELF + LABELS,
    "the DocType of the rows too": TOOL + SHELF,
    "a field of a child of another DocType": TOOL + PART + SHELF + BIN,
}


def add(fw: Any) -> None:
    fw.new_doc("Tool", name="saw").insert()
    for name in ("left", "right"):
        parts = [{"text": name, "tool": "saw"}, {"text": f"{name} 2"}]
        fw.new_doc("Shelf", name=name, parts=parts).insert()


def parts_of(fw: Any, name: str) -> list[str]:
    return [row.text for row in fw.get_doc("Shelf", name).parts]


@pytest.mark.parametrize("later", WITHOUT.values(), ids=WITHOUT)
async def test_deletion_removes_rows_of_removed_table_field(
    open_version: OpenVersion, later: str
) -> None:
    """D-132: a later document of the name would get them, once the field is declared again. Rows of
    other documents stay."""
    async with open_version(WITH_PARTS) as site:
        await site.write("Administrator", add)
    async with open_version(later) as site:
        await site.write("Administrator", lambda fw: fw.get_doc("Shelf", "left").delete())
    async with open_version(WITH_PARTS) as site:
        await site.write("Administrator", lambda fw: fw.new_doc("Shelf", name="left").insert())
        found = await site.write(
            "Administrator", lambda fw: [parts_of(fw, name) for name in ("left", "right")]
        )
    assert found == [[], ["right", "right 2"]]


@pytest.mark.parametrize("later", WITHOUT.values(), ids=WITHOUT)
async def test_rename_moves_rows_of_removed_table_field(
    open_version: OpenVersion, later: str
) -> None:
    """D-132: the renamed document has its rows again, once the field is declared again."""
    async with open_version(WITH_PARTS) as site:
        await site.write("Administrator", add)
    async with open_version(later) as site:
        await site.write("Administrator", lambda fw: fw.get_doc("Shelf", "left").rename("top"))
    async with open_version(WITH_PARTS) as site:
        found = await site.write(
            "Administrator", lambda fw: [parts_of(fw, name) for name in ("top", "right")]
        )
    assert found == [["left", "left 2"], ["right", "right 2"]]


async def test_deletion_removes_rows_of_newer_version_of_app(open_version: OpenVersion) -> None:
    """D-132: a node with the next version of the app may already have made a table field."""
    async with open_version(TOOL + SHELF) as older:
        async with open_version(WITH_PARTS) as newer:
            await newer.write("Administrator", add)
        await older.write("Administrator", lambda fw: fw.get_doc("Shelf", "left").delete())
        left = "SELECT DISTINCT parent FROM doc_shelf_part"
        assert await older.write("Administrator", lambda fw: fw.db.sql(left)) == [
            {"parent": "right"}
        ]


async def test_deletion_keeps_documents_that_were_rows_before(open_version: OpenVersion) -> None:
    """A child DocType may become one with documents, which keep the columns of a row."""
    async with open_version(WITH_PARTS) as site:
        await site.write("Administrator", add)
    documents = PART.replace("child=True", 'naming="random"')
    async with open_version(TOOL + documents + SHELF) as site:
        await site.write("Administrator", lambda fw: fw.get_doc("Shelf", "left").delete())
        assert await site.write("Administrator", lambda fw: fw.count("Shelf Part")) == 4


async def test_deletion_keeps_rows_in_copies_of_a_table(open_version: OpenVersion) -> None:
    """An administrator may keep a copy, and an app a table with a column of the same name."""
    async with open_version(WITH_PARTS) as site:
        await site.write("Administrator", add)

        def work(fw: Any) -> list[int]:
            fw.db.sql("CREATE TABLE doc_copy AS SELECT * FROM doc_shelf_part")
            fw.db.sql("CREATE TABLE app_notes (parentfield TEXT)")
            fw.get_doc("Shelf", "left").delete()
            counts = [
                fw.db.sql(f"SELECT count(*) AS n FROM {table}")[0]["n"]
                for table in ("doc_copy", "doc_shelf_part")
            ]
            for table in ("doc_copy", "app_notes"):
                fw.db.sql(f"DROP TABLE {table}")  # the next test may get the schema
            return counts

        assert await site.write("Administrator", work) == [4, 2]


async def test_deletion_succeeds_after_table_of_removed_doctype_was_dropped(
    open_version: OpenVersion,
) -> None:
    """An administrator may drop what no app declares, while the service runs."""
    async with open_version(WITH_PARTS) as site:
        await site.write("Administrator", add)
    async with open_version(TOOL + SHELF) as site:
        await site.write("Administrator", lambda fw: fw.get_doc("Shelf", "right").delete())
        await site.write("Administrator", lambda fw: fw.db.sql("DROP TABLE doc_shelf_part"))
        await site.write("Administrator", lambda fw: fw.get_doc("Shelf", "left").delete())


async def test_deletion_disregards_links_in_rows_of_removed_table_field(
    open_version: OpenVersion,
) -> None:
    """D-132: no document shows such a link, so that nobody could remove it."""
    async with open_version(WITH_PARTS) as site:
        await site.write("Administrator", add)
        with pytest.raises(ConflictError, match="Shelf left links to Tool saw"):
            await site.write("Administrator", lambda fw: fw.get_doc("Tool", "saw").delete())
    async with open_version(WITHOUT["one of two fields"]) as site:
        await site.write("Administrator", lambda fw: fw.get_doc("Tool", "saw").delete())
