"""Access scopes (A-310 to A-313, A-327)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fw_actors.documents import rest
from fw_actors.errors import PermissionDeniedError
from tests.fw_actors.documents.conftest import ShopSite

pytestmark = pytest.mark.usefixtures("on_both_stores")

ORDER = "Sales Order"
NEAR, FAR, NONE, LINES, FAR_LINE = "SO-00001", "SO-00002", "SO-00003", "SO-00004", "SO-00005"


@pytest.fixture
async def populated(desk: ShopSite) -> ShopSite:
    """The scopes of sam allow the customer Ada only; the orders belong to Ada, to Bob, to no
    customer, and by their rows to Ada or to both."""
    sam = await desk.add_account("Seller")

    def add_records(fw: Any) -> None:
        for title in ("Ada", "Bob"):
            fw.new_doc("Customer", title=title).insert()
        for values in (
            {"customer": "Ada"},
            {"customer": "Bob"},
            {},
            {"lines": [{"item": "a", "customer": "Ada"}, {"item": "b"}]},
            {"lines": [{"item": "a", "customer": "Ada"}, {"item": "b", "customer": "Bob"}]},
        ):
            fw.new_doc(ORDER, title="t", **values).insert()
        fw.new_doc("User Permission", user=sam, allow="Customer", for_value="Ada").insert()

    await desk.do(add_records)
    return desk


async def denied(desk: ShopSite, fn: Callable[[Any], Any]) -> None:
    with pytest.raises(PermissionDeniedError, match="access scopes"):
        await desk.do(fn, "sam")


def names(rows: Any) -> list[str]:
    return [row["name"] for row in rows]


async def test_list_of_scoped_doctype_holds_permitted_names(populated: ShopSite) -> None:
    found = await populated.do(lambda fw: rest.list_documents(fw, "Customer", {}), "sam")
    assert (names(found["data"]), found["total"]) == (["Ada"], 1)


async def test_list_omits_documents_linked_beyond_scopes(populated: ShopSite) -> None:
    query = {"order_by": "name", "limit": 2}
    found = await populated.do(lambda fw: rest.list_documents(fw, ORDER, query), "sam")
    assert (names(found["data"]), found["total"]) == ([NEAR, NONE], 3)
    found = await populated.do(lambda fw: fw.get_list(ORDER, order_by="name"), "sam")
    assert names(found) == [NEAR, NONE, LINES]


async def test_ignored_permissions_ignore_scopes_in_reads(populated: ShopSite) -> None:
    """`get_all` skips permissions, `get_list` does not (D-192)."""

    def work(fw: Any) -> list[Any]:
        return [
            len(fw.get_all(ORDER)), len(fw.get_list(ORDER, ignore_permissions=True)),
            fw.exists("Customer", "Bob"), fw.get_value(ORDER, FAR, "customer"), fw.count(ORDER),
        ]  # fmt: skip

    assert await populated.do(work, "sam") == [5, 5, "Bob", "Bob", 5]


@pytest.mark.parametrize("name", [NEAR, NONE, LINES])
async def test_document_within_scopes_is_readable_and_writable(
    populated: ShopSite, name: str
) -> None:
    def work(fw: Any) -> Any:
        rest.save(fw, ORDER, name, {"remark": "by sam"})
        rest.submit(fw, ORDER, name)
        rest.cancel(fw, ORDER, name)
        read = rest.read(fw, ORDER, name)["remark"]
        rest.delete(fw, ORDER, name)
        return read

    assert await populated.do(work, "sam") == "by sam"


BEYOND: list[Callable[[Any, str], Any]] = [
    lambda fw, name: fw.get_doc(ORDER, name),
    lambda fw, name: rest.read(fw, ORDER, name),
    lambda fw, name: rest.save(fw, ORDER, name, {"remark": "r"}),
    lambda fw, name: rest.submit(fw, ORDER, name),
    lambda fw, name: rest.delete(fw, ORDER, name),
    lambda fw, name: rest.rename(fw, ORDER, name, {"name": "mine"}),
]


@pytest.mark.parametrize("name", [FAR, FAR_LINE])
@pytest.mark.parametrize("verb", BEYOND)
async def test_document_beyond_scopes_is_neither_readable_nor_writable(
    populated: ShopSite, verb: Callable[[Any, str], Any], name: str
) -> None:
    await denied(populated, lambda fw: verb(fw, name))


BY_NAME: list[Callable[[Any, str], Any]] = [
    lambda fw, name: fw.get_doc("Customer", name),
    lambda fw, name: rest.read(fw, "Customer", name),
    lambda fw, name: rest.save(fw, "Customer", name, {"vat": "1"}),
    lambda fw, name: rest.rename(fw, "Customer", name, {"name": "mine"}),
    lambda fw, name: rest.rename(fw, "Customer", "Ada", {"name": name}),
    lambda fw, name: rest.insert(fw, "Customer", {"title": name}),
    lambda fw, name: rest.insert(fw, ORDER, {"title": "t", "customer": name}),
    lambda fw, name: rest.save(fw, ORDER, NEAR, {"lines": [{"item": "a", "customer": name}]}),
    lambda fw, name: fw.get_doc(ORDER, NEAR).db_set("customer", name),
]


@pytest.mark.parametrize("verb", BY_NAME)
async def test_refusal_beyond_scopes_hides_existence_of_name(
    populated: ShopSite, verb: Callable[[Any, str], Any]
) -> None:
    """The answer is the same for a document that exists and for one that does not (D-19)."""
    answers = set()
    for name in ("Bob", "Nobody"):
        with pytest.raises(PermissionDeniedError) as refusal:
            await populated.do(lambda fw, n=name: verb(fw, n), "sam")  # type: ignore[misc]
        answers.add(str(refusal.value))
    assert len(answers) == 1


async def test_rows_are_not_available_beyond_scopes_of_their_document(populated: ShopSite) -> None:
    """A System Manager may list the rows of any DocType, but scopes apply to documents."""
    await populated.add_account("System Manager", name="root")
    await populated.add_account("System Manager", name="scoped")

    def limit(fw: Any) -> str:
        scope = {"user": "scoped", "allow": "Customer", "for_value": "Ada"}
        fw.new_doc("User Permission", **scope).insert()
        return str(fw.get_value("OrderLine", {"parent": FAR_LINE, "idx": 1}, "name"))

    row = await populated.do(limit)
    assert await populated.do(lambda fw: fw.get_doc("OrderLine", row).item, "root") == "a"
    for fn in (
        lambda fw: fw.get_doc("OrderLine", row),
        lambda fw: fw.get_list("OrderLine", {"parent": FAR_LINE}),
    ):
        with pytest.raises(PermissionDeniedError, match="access scopes"):
            await populated.do(fn, "scoped")
    assert len(await populated.do(lambda fw: fw.get_doc(ORDER, LINES).lines, "scoped")) == 2


VERBS: list[Callable[[Any], Any]] = [
    lambda doc: doc.save(),
    lambda doc: doc.submit(),
    lambda doc: doc.delete(),
    lambda doc: doc.rename("other"),
    lambda doc: doc.db_set("remark", "r"),
]


@pytest.mark.parametrize("verb", VERBS)
async def test_document_verb_checks_scopes_of_stored_values(
    populated: ShopSite, verb: Callable[[Any], Any]
) -> None:
    def work(fw: Any) -> None:
        handle = fw.as_user("Administrator")
        doc = handle.get_doc(ORDER, FAR)
        handle.rights = fw.rights
        doc.customer = "Ada"
        verb(doc)

    # The object has a link within the scopes, while the stored one leads beyond them.
    await denied(populated, lambda fw: work_unscoped_read(populated, fw, work))


def work_unscoped_read(populated: ShopSite, fw: Any, work: Callable[[Any], Any]) -> Any:
    """Run `work` with a handle whose `as_user` gives an unscoped one, as a test alone may."""
    fw.as_user = lambda name: populated.site.handle(fw.tx, name)
    return work(fw)


async def test_write_refuses_values_beyond_scopes(populated: ShopSite) -> None:
    row = {"item": "a", "customer": "Bob"}
    for fn in (
        lambda fw: rest.insert(fw, ORDER, {"title": "t", "customer": "Bob"}),
        lambda fw: rest.insert(fw, ORDER, {"title": "t", "lines": [row]}),
        lambda fw: rest.insert(fw, "Customer", {"title": "Cid"}),
        lambda fw: rest.save(fw, ORDER, NEAR, {"customer": "Bob"}),
        lambda fw: rest.save(fw, ORDER, NONE, {"lines": [row]}),
        lambda fw: fw.get_doc(ORDER, NEAR).db_set("customer", "Bob"),
    ):  # fmt: skip
        await denied(populated, fn)


async def test_ignored_permissions_ignore_scopes_in_writes(populated: ShopSite) -> None:
    def work(fw: Any) -> str:
        doc = fw.new_doc(ORDER, title="t", customer="Bob").insert(ignore_permissions=True)
        doc.save(ignore_permissions=True).submit(ignore_permissions=True)
        return str(doc.customer)

    assert await populated.do(work, "sam") == "Bob"


async def test_scopes_add_values_and_intersect_doctypes(populated: ShopSite) -> None:
    def widen(fw: Any) -> None:
        fw.new_doc("User Permission", user="sam", allow="Customer", for_value="Bob").insert()

    await populated.do(widen)
    assert len(await populated.do(lambda fw: fw.get_list(ORDER), "sam")) == 5

    def narrow(fw: Any) -> None:
        fw.new_doc("User Permission", user="sam", allow=ORDER, for_value=FAR).insert()

    await populated.do(narrow)
    assert names(await populated.do(lambda fw: fw.get_list(ORDER), "sam")) == [FAR]


MANY_SCOPES = """
    INSERT INTO doc_user_permission (name, "user", allow, for_value)
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000)
    SELECT 'p' || i, 'sam', 'Customer', 'c' || i FROM n
"""


async def test_scopes_may_be_more_than_a_statement_has_parameters(populated: ShopSite) -> None:
    await populated.do(lambda fw: fw.db.sql(MANY_SCOPES))
    found = await populated.do(
        lambda fw: rest.list_documents(fw, ORDER, {"order_by": "name"}), "sam"
    )
    assert names(found["data"]) == [NEAR, NONE, LINES]
    found = await populated.do(lambda fw: rest.list_documents(fw, "Customer", {}), "sam")
    assert names(found["data"]) == ["Ada"]


async def test_user_without_scopes_is_not_limited(populated: ShopSite) -> None:
    other = await populated.add_account("Seller", name="other")
    assert len(await populated.do(lambda fw: fw.get_list(ORDER), other)) == 5
