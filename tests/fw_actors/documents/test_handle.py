"""`fw`, what application code gets (D-190)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fw_actors.documents.permissions import Rights
from fw_actors.errors import (
    BadRequestError,
    DuplicateError,
    NotFoundError,
    PermissionDeniedError,
    ValidationError,
)
from tests.fw_actors.documents.conftest import APPS, ShopSite
from tests.site_kit import database_of, inline_site

pytestmark = pytest.mark.usefixtures("on_both_stores")


def customer(fw: Any, title: str = "ada", **fields: Any) -> Any:
    return fw.new_doc("Customer", title=title, **fields).insert()


async def test_get_value_and_exists_accept_name_or_filters(desk: ShopSite) -> None:
    """`exists` gives the name or None (D-193)."""

    def work(fw: Any) -> list[Any]:
        customer(fw, vat="7")
        return [
            fw.get_value("Customer", "ada", "vat"),
            fw.get_value("Customer", {"vat": "7"}, "title"),
            fw.get_value("Customer", "bob", "vat"),
            fw.exists("Customer", "ada"),
            fw.exists("Customer", [["vat", "=", "8"]]),
            fw.exists("Customer", None),
            fw.get_value("Customer", None, "vat"),
        ]

    assert await desk.do(work) == ["7", "ada", None, "ada", None, None, None]


async def test_get_value_takes_one_field(desk: ShopSite) -> None:
    def work(fw: Any) -> None:
        with pytest.raises(BadRequestError, match=r"^field must be the name of one field"):
            fw.get_value("Customer", "ada", ["vat", "title"])

    await desk.do(work)


async def test_get_list_checks_permission_and_get_all_does_not(desk: ShopSite) -> None:
    """`get_all` skips permissions, `get_list` does not (D-192)."""
    sam = await desk.add_account()
    await desk.do(customer)

    def work(fw: Any) -> list[Any]:
        with pytest.raises(PermissionDeniedError):
            fw.get_list("Customer")
        lists = (fw.get_all("Customer"), fw.get_list("Customer", ignore_permissions=True))
        return [len(rows) for rows in lists]

    assert await desk.do(work, sam) == [1, 1]


async def test_get_doc_checks_permission_before_existence(desk: ShopSite) -> None:
    sam = await desk.add_account()
    for name in ("ada", "nobody"):
        with pytest.raises(PermissionDeniedError):
            await desk.do(lambda fw, name=name: fw.get_doc("Customer", name), sam)  # type: ignore[misc]
    with pytest.raises(NotFoundError):
        await desk.do(lambda fw: fw.get_doc("Customer", "nobody"))


NO_NAMES: list[Any] = [None, 5, "", "a/b", "nul \0", "half \ud800", "x" * 5000, ["Ada"]]


async def test_handle_reports_invalid_document_name_as_not_found(desk: ShopSite) -> None:
    """Both stores give the same answer for a value that cannot be a name."""
    for name in NO_NAMES:
        with pytest.raises(NotFoundError):
            await desk.do(lambda fw, name=name: fw.get_doc("Customer", name))  # type: ignore[misc]
        with pytest.raises(NotFoundError):
            await desk.do(lambda fw, name=name: fw.new_doc(name))  # type: ignore[misc]


async def test_handle_as_user_applies_rights_of_named_user(desk: ShopSite) -> None:
    sam = await desk.add_account("Reader")

    def work(fw: Any) -> tuple[str, str]:
        doc = customer(fw)
        other = fw.as_user(sam)
        with pytest.raises(PermissionDeniedError):
            other.get_doc("Customer", doc.name)
        return fw.user, other.user

    assert await desk.do(work) == ("Administrator", "sam")


@pytest.mark.parametrize("name", ["nobody", "", "x" * 1000, "a\x00b", "\ud800", "a/b", 7, None])
async def test_handle_as_user_reports_unknown_user_as_not_found(desk: ShopSite, name: Any) -> None:
    with pytest.raises(NotFoundError, match="no enabled user"):
        await desk.do(lambda fw: fw.as_user(name))


async def test_sql_accepts_parameters_and_returns_dicts(desk: ShopSite) -> None:
    """`fw.db.sql(text, {"name": value})` gives a list of dicts (D-197)."""
    found = await desk.do(lambda fw: fw.db.sql("SELECT :a AS x, :b AS y", {"a": 1, "b": "'"}))
    assert found == [{"x": 1, "y": "'"}]


BEYOND = ["COMMIT", "ROLLBACK", "BEGIN", "SAVEPOINT a", "RELEASE a", "ATTACH 'x' AS y",
          "PRAGMA user_version", "select nonsense(", "SELECT 1; SELECT 2"]  # fmt: skip


async def test_sql_refuses_unsupported_statement_and_keeps_transaction_usable(
    desk: ShopSite,
) -> None:
    def work(fw: Any) -> None:
        customer(fw)
        for text in BEYOND:
            with pytest.raises(ValidationError) as refusal:
                fw.db.sql(text)
            is_rule = "fw.db.sql does not allow " in refusal.value.message
            assert is_rule or text.lower().startswith("select")

    await desk.do(work)
    assert await desk.do(lambda fw: fw.exists("Customer", "ada")) == "ada"


@pytest.mark.parametrize(
    "value",
    [datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1), Decimal("1.5"), [1], {"a": 1},
     float("nan"), "nul \0", "half \ud800", 2**63, -(2**63) - 1],
)  # fmt: skip
async def test_sql_refuses_value_that_the_stores_would_take_differently(
    desk: ShopSite, value: Any
) -> None:
    """SQLite compared a datetime as a text, which no time in a column equals (D-197)."""

    def work(fw: Any) -> list[dict[str, Any]]:
        customer(fw)
        with pytest.raises(ValidationError, match=r"^The value of :since must be "):
            fw.db.sql("SELECT name FROM doc_customer WHERE creation > :since", {"since": value})
        found: list[dict[str, Any]] = fw.db.sql("SELECT name FROM doc_customer")
        return found

    assert await desk.do(work) == [{"name": "ada"}]


async def test_sql_accepts_all_plain_values(desk: ShopSite) -> None:
    """None, numbers, text and bytes are passed as they are (D-197)."""
    values = {
        "a": None, "b": True, "c": -(2**63), "d": 1.5, "e": "ü\n", "f": b"\0", "g": 2**63 - 1,
    }  # fmt: skip
    text = "SELECT " + ", ".join(f":{name} AS {name}" for name in values)
    assert await desk.do(lambda fw: fw.db.sql(text, values)) == [{**values, "b": 1}]


async def test_sql_constraint_violation_raises_document_error(desk: ShopSite) -> None:
    """Refusals are the exceptions of `fw_actors.errors` (D-196, D-63)."""

    def work(fw: Any) -> str | None:
        customer(fw)
        with pytest.raises(DuplicateError):
            fw.db.sql("INSERT INTO doc_customer (name) VALUES ('ada')")
        with pytest.raises(ValidationError, match="refused the SQL"):
            fw.db.sql("INSERT INTO doc_customer (name) VALUES (NULL)")
        found: str | None = fw.exists("Customer", "ada")
        return found

    assert await desk.do(work) == "ada"


async def test_sql_refuses_statement_with_nul_character(desk: ShopSite) -> None:
    """PostgreSQL would run the text up to the NUL: a DELETE without its WHERE."""

    def work(fw: Any) -> str | None:
        customer(fw)
        with pytest.raises(ValidationError, match="NUL"):
            fw.db.sql("DELETE FROM doc_customer \0 WHERE name = 'nobody'")
        found: str | None = fw.exists("Customer", "ada")
        return found

    assert await desk.do(work) == "ada"


@pytest.mark.parametrize("text", ["", " \n", ";", "-- all of it\n", "/* all */ -- of it", "/*"])
async def test_sql_refuses_text_without_statement(desk: ShopSite, text: str) -> None:
    """SQLite took it as one that returns no rows (D-198)."""

    def work(fw: Any) -> None:
        with pytest.raises(ValidationError, match="SQL must contain a statement"):
            fw.db.sql(text)

    await desk.do(work)


async def test_secret_is_read_by_lower_case_name(tmp_path: Path) -> None:
    """A secret is read by its name in lower case (D-200); `fw.secret("key")` is refused."""
    secrets = {"key": "the site's own", "crm_token": "abc"}
    database = database_of(tmp_path)
    async with inline_site(APPS, secrets=secrets, database=database) as site:
        found = await site.read("Administrator", lambda fw: fw.secret("crm_token"))
        assert found == "abc"
        for name, variable in (("key", "FW_SECRET_KEY"), ("other", "FW_SECRET_OTHER")):
            with pytest.raises(NotFoundError, match=variable):
                await site.read("Administrator", lambda fw, name=name: fw.secret(name))  # type: ignore[misc]


async def test_enqueue_records_job_of_user_within_transaction(desk: ShopSite) -> None:
    """`fw.enqueue` runs the function later as the same user (D-210)."""
    sam = await desk.add_account()
    shop = desk.shop

    def work(fw: Any) -> Any:
        fw.enqueue(shop.not_whitelisted)
        fw.enqueue(shop.ping, a=[1, "ü"])
        return None

    await desk.site.rollback(sam, work)
    await desk.do(work, sam)
    rows = await desk.do(
        lambda fw: fw.db.sql('SELECT queue, function, arguments, "user" FROM fw_job ORDER BY id')
    )
    assert [tuple(row.values()) for row in rows] == [
        ("app", "shop.not_whitelisted", "{}", "sam"),
        ("app", "shop.ping", '{"a": [1, "ü"]}', "sam"),
    ]


async def test_enqueue_refuses_unimportable_function_and_unserialisable_argument(
    desk: ShopSite,
) -> None:
    def ping(fw: Any) -> None:
        """A function that only has the name of one in the module."""

    ping.__module__ = "shop"
    jobs: list[tuple[Any, Any]] = [
        (lambda fw: None, 1), (ping, 1), ("shop.ping", 1), (None, 1),
        (desk.shop.ping, float("nan")), (desk.shop.ping, {1, 2}),
    ]  # fmt: skip
    for function, argument in jobs:
        with pytest.raises(ValidationError):
            await desk.do(lambda fw, f=function, a=argument: fw.enqueue(f, a=a))  # type: ignore[misc]


async def test_enqueue_refusal_states_what_json_lacks(desk: ShopSite) -> None:
    message = "The arguments of a job must be JSON: Object of type set is not JSON serializable."
    with pytest.raises(ValidationError) as refusal:
        await desk.do(lambda fw: fw.enqueue(desk.shop.ping, a={1}))
    assert refusal.value.message == message


async def later(fw: Any) -> None:
    """A coroutine function, which a worker would not await."""


def yields(fw: Any) -> Iterator[None]:
    """A generator function, of which a worker would run nothing."""
    yield


def sometime(fw: Any, when: str) -> None:
    """A function of a module that other processes can import."""


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (print, {}),
        (dict, {}),
        (partial(sometime, when="now"), {}),
        (later, {}),
        (yields, {}),
        ("".join, {}),
        (sometime, {}),
        (sometime, {"when": "now", "where": "here"}),
        (sometime, {"fw": 1}),
    ],
)
async def test_enqueue_refuses_function_or_arguments_uncallable_in_worker(
    desk: ShopSite, function: Any, arguments: dict[str, Any]
) -> None:
    """A job is found by its function's dotted path (D-212)."""
    with pytest.raises(ValidationError):
        await desk.do(lambda fw: fw.enqueue(function, **arguments))
    assert await desk.do(lambda fw: fw.db.sql("SELECT id FROM fw_job")) == []


async def test_enqueue_refuses_function_of_script_module(desk: ShopSite) -> None:
    """`fw exec` runs a file as `__main__`, which is another module in another process."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("def work(fw): ...", names)
    sys.modules["__main__"].work = names["work"]  # type: ignore[attr-defined]
    try:
        with pytest.raises(ValidationError, match="__main__"):
            await desk.do(lambda fw: fw.enqueue(names["work"]))
    finally:
        del sys.modules["__main__"].work
    exec("def work(fw): ...", {**names, "__name__": "no_such_module"}, names)
    with pytest.raises(ValidationError, match="no_such_module"):
        await desk.do(lambda fw: fw.enqueue(names["work"]))


async def hook(desk: ShopSite) -> str:
    def make(fw: Any) -> str:
        values = {"url": "https://x.test", "event_type": "Custom", "custom_event": "a.b"}
        return str(fw.new_doc("Webhook", secret="s", **values).insert().name)

    return await desk.do(make)


def scoped(fw: Any) -> Any:
    """The handle of a System Manager with a User Permission."""
    fw.rights = Rights("sam", frozenset({"System Manager"}), {"Customer": frozenset({"Ada"})})
    return fw


async def test_scoped_handle_reads_no_webhook(desk: ShopSite) -> None:
    """`get_all` and `get_list` with `ignore_permissions` return no rows (A-316)."""
    name = await hook(desk)

    def work(fw: Any) -> list[Any]:
        fw = scoped(fw)
        for read in (fw.get_list, lambda doctype: fw.get_doc(doctype, name)):
            with pytest.raises(PermissionDeniedError):
                read("Webhook")
        return [
            fw.get_all("Webhook"), fw.get_list("Webhook", ignore_permissions=True),
            fw.get_value("Webhook", name, "url"), fw.exists("Webhook", name), fw.count("Webhook"),
        ]  # fmt: skip

    assert await desk.do(work) == [[], [], None, None, 0]


async def test_scoped_handle_writes_no_webhook(desk: ShopSite) -> None:
    """`insert`, `save`, `delete` and `db_set` are refused (A-316)."""
    name = await hook(desk)

    def work(fw: Any) -> None:
        doc = fw.get_doc("Webhook", name)
        scoped(fw)
        verbs: list[Any] = [
            fw.new_doc("Webhook").insert, doc.save, doc.delete,
            lambda **flag: doc.db_set("timeout", 5, **flag),
        ]  # fmt: skip
        for verb in verbs:
            for flag in (False, True):
                with pytest.raises(PermissionDeniedError):
                    verb(ignore_permissions=flag)

    await desk.do(work)


async def test_raw_sql_bypasses_scopes_of_handle(desk: ShopSite) -> None:
    """Raw `fw.db.sql` is not checked (A-317)."""
    await hook(desk)
    assert len(await desk.do(lambda fw: scoped(fw).db.sql("SELECT 1 FROM doc_webhook"))) == 1


async def test_handle_as_user_keeps_scopes_of_original_user(desk: ShopSite) -> None:
    other = await desk.add_account("System Manager", name="other")
    await hook(desk)

    def work(fw: Any) -> list[Any]:
        handle = scoped(fw).as_user(other)
        return [handle.user, handle.rights.scopes, handle.get_all("Webhook")]

    assert await desk.do(work) == ["other", {"Customer": {"Ada"}}, []]


async def test_enqueue_as_other_user_is_refused_within_scopes(desk: ShopSite) -> None:
    """A job cannot lift a refusal of scopes (A-316); it runs as its user (A-324)."""
    other = await desk.add_account("System Manager", name="other")

    def work(fw: Any) -> None:
        with pytest.raises(PermissionDeniedError, match="access scopes"):
            scoped(fw).as_user(other).enqueue(customer)

    await desk.do(work)
    assert await desk.do(lambda fw: fw.db.sql("SELECT id FROM fw_job WHERE queue = 'app'")) == []


async def test_scoped_user_enqueues_own_job(desk: ShopSite) -> None:
    """`fw.enqueue` runs the function later as the same user (D-210)."""
    sam = await desk.add_account()
    await desk.do(customer)
    permission = {"user": sam, "allow": "Customer", "for_value": "ada"}
    await desk.do(lambda fw: fw.new_doc("User Permission", **permission).insert())
    assert await desk.do(lambda fw: fw.enqueue(customer), sam) > 0


async def test_handle_refuses_non_text_arguments_with_clear_error(desk: ShopSite) -> None:
    """Bad input has a clear error, from code too."""

    def work(fw: Any) -> None:
        for text, params in ((None, {}), ("SELECT 1", [1]), ("SELECT :a", 1), ("SELECT :a", "a")):
            with pytest.raises(ValidationError, match="SQL must be text"):
                fw.db.sql(text, params)
        with pytest.raises(NotFoundError, match="FW_SECRET_7"):
            fw.secret(7)
        doc = customer(fw)
        for field in (["title"], "nothing", "title"):
            with pytest.raises(BadRequestError):
                doc.vault(field)
        for wrong in (["title"], None, "\ud800"):
            with pytest.raises(BadRequestError) as refusal:
                doc.db_set(wrong, "x")
            str(refusal.value.extra["field"]).encode()

    await desk.do(work)
