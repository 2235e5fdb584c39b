"""The rules that a Webhook must satisfy before it is written (B-12 to B-28)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fw_actors.errors import PermissionDeniedError, ValidationError
from fw_actors.webhooks.signing_keys import rotate
from tests.fw_actors.virtual_site_kit import VirtualSite, open_virtual_site

pytestmark = pytest.mark.usefixtures("on_both_stores")

CUSTOM = {
    "url": "https://receiver.test/hook", "event_type": "Custom", "custom_event": "note.shared",
    "secret": "a signing secret",
}  # fmt: skip
DOCUMENT = {
    "url": "https://receiver.test/hook", "event_type": "Document", "webhook_doctype": "Sales Order",
    "on_insert": 1, "secret": "a signing secret",
}  # fmt: skip

GOOD: list[dict[str, Any]] = [
    CUSTOM, DOCUMENT,
    {**CUSTOM, "url": "http://localhost:9000/x"}, {**CUSTOM, "url": "http://127.0.0.1/x"},
    {**CUSTOM, "url": "http://[::1]:9000/"}, {**CUSTOM, "custom_event": "doc"},
    {**CUSTOM, "timeout": 1, "max_attempts": 1}, {**CUSTOM, "timeout": 60, "max_attempts": 10},
    {**CUSTOM, "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, {**CUSTOM, "secret": "x"},
    {**DOCUMENT, "webhook_doctype": "User"}, {**DOCUMENT, "on_insert": 0, "on_trash": True},
    {**CUSTOM, "webhook_doctype": "Nothing"},  # not used with Custom
    {**DOCUMENT, "custom_event": "Not A Name"},  # nor this one with Document
]  # fmt: skip


async def test_webhook_accepts_valid_fields(site: VirtualSite) -> None:
    def work(fw: Any) -> None:
        for fields in GOOD:
            fw.new_doc("Webhook", **fields).insert()

    await site.do(work)
    assert await site.sql("SELECT count(*) FROM doc_webhook") == [(len(GOOD),)]


@pytest.mark.parametrize("empty", [{"rate_limit": None}, {"ordering": None}, {"ordering": ""}])
async def test_emptied_limit_or_ordering_is_stored_as_the_default(
    site: VirtualSite, empty: dict[str, Any]
) -> None:
    """`rate_limit` is a number, and `ordering` is one of two values (B-310, B-320)."""

    def shown(fw: Any, webhook: Any) -> list[object]:
        stored = fw.get_doc("Webhook", webhook.name)
        return [stored.rate_limit, stored.ordering]

    def work(fw: Any) -> list[list[object]]:
        made = fw.new_doc("Webhook", **{**CUSTOM, **empty}).insert()
        changed = fw.new_doc("Webhook", **CUSTOM, rate_limit=5, ordering="document").insert()
        for field, value in empty.items():
            setattr(changed, field, value)
        return [shown(fw, made), shown(fw, changed.save())]

    rest = [5, "none"] if "ordering" in empty else [0, "document"]
    assert await site.do(work) == [[0, "none"], rest]


UNWATCHABLE = [  # B-18
    "Webhook", "Webhook Delivery", "Audit Event", "Version", "Error Log", "Email Delivery",
]  # fmt: skip
BAD: list[tuple[dict[str, Any], str]] = [  # fields, the field of the refusal
    ({**CUSTOM, "url": None}, "url"),
    ({**CUSTOM, "url": "http://receiver.test/"}, "url"),
    ({**CUSTOM, "url": "http://resolves-to-loopback.test/"}, "url"),
    ({**CUSTOM, "url": "ftp://receiver.test/"}, "url"),
    ({**CUSTOM, "url": "receiver.test"}, "url"),
    ({**CUSTOM, "url": "https://user:pw@receiver.test/"}, "url"),
    ({**CUSTOM, "url": "https://receiver.test/#f"}, "url"),
    ({**CUSTOM, "url": "https://receiver.test/" + "x" * 2048}, "url"),
    ({**CUSTOM, "event_type": None}, "event_type"),
    ({**CUSTOM, "event_type": "Other"}, "event_type"),
    ({**CUSTOM, "custom_event": None}, "custom_event"),
    ({**CUSTOM, "custom_event": ""}, "custom_event"),
    ({**CUSTOM, "custom_event": "doc.on_insert"}, "custom_event"),
    ({**CUSTOM, "custom_event": "Not.A.Name"}, "custom_event"),
    ({**DOCUMENT, "webhook_doctype": None}, "webhook_doctype"),
    ({**DOCUMENT, "webhook_doctype": "Nothing"}, "webhook_doctype"),
    *(({**DOCUMENT, "webhook_doctype": name}, "webhook_doctype") for name in UNWATCHABLE),
    ({**DOCUMENT, "webhook_doctype": "OrderLine"}, "webhook_doctype"),
    ({**DOCUMENT, "on_insert": 0}, "on_insert"),
    ({**CUSTOM, "secret": None}, "secret"),
    ({**CUSTOM, "secret": ""}, "secret"),
    ({**CUSTOM, "secret": " padded "}, "secret"),
    ({**CUSTOM, "secret": "v1,abc"}, "secret"),
    ({**CUSTOM, "secret": "whsec_"}, "secret"),
    ({**CUSTOM, "secret": "whsec_***"}, "secret"),
    ({**CUSTOM, "secret": "tab\tinside"}, "secret"),
    ({**CUSTOM, "title": "\u200b \u2060"}, "title"),
    ({**CUSTOM, "timeout": 0}, "timeout"),
    ({**CUSTOM, "timeout": None}, "timeout"),
    ({**CUSTOM, "timeout": 61}, "timeout"),
    ({**CUSTOM, "max_attempts": 0}, "max_attempts"),
    ({**CUSTOM, "max_attempts": None}, "max_attempts"),
    ({**CUSTOM, "max_attempts": 11}, "max_attempts"),
]


async def test_webhook_refusal_names_its_field(site: VirtualSite) -> None:
    """A refusal names its field in `extra.field` (H-63, B-15, B-17)."""

    def work(fw: Any) -> None:
        for fields, field in BAD:
            with pytest.raises(ValidationError) as refusal:
                fw.new_doc("Webhook", **fields).insert()
            assert refusal.value.extra == {"field": field}, fields

    await site.do(work)
    assert await site.sql("SELECT count(*) FROM doc_webhook") == [(0,)]


async def test_webhook_has_documented_defaults(site: VirtualSite) -> None:
    """`timeout` is 10, `max_attempts` 6 (B-26, B-27); enabled is 1, the five `on_…` are 0
    (B-11, B-16)."""

    def work(fw: Any) -> dict[str, object]:
        shown: dict[str, object] = fw.new_doc("Webhook", **CUSTOM).insert().as_dict()
        return shown

    shown = await site.do(work)
    assert (shown["enabled"], shown["timeout"], shown["max_attempts"]) == (1, 10, 6)
    ticked = ("on_insert", "on_update", "on_submit", "on_cancel", "on_trash")
    assert [shown[event] for event in ticked] == [0] * 5


async def test_webhook_rules_apply_to_save_and_db_set(site: VirtualSite) -> None:
    def work(fw: Any) -> None:
        doc = fw.new_doc("Webhook", **CUSTOM).insert()
        with pytest.raises(ValidationError):
            doc.db_set("url", "http://receiver.test/")
        with pytest.raises(ValidationError):
            doc.db_set("secret", "v1,abc")
        doc.custom_event = "doc.x"
        with pytest.raises(ValidationError):
            doc.save()

    await site.do(work)


async def test_http_url_requires_development_mode(tmp_path: Path) -> None:
    """https is required outside development mode, except for a loopback address (B-12, C-57)."""
    async with open_virtual_site(tmp_path, mode="development") as site:
        name = await site.subscribe(url="http://receiver.test/")
    async with open_virtual_site(tmp_path) as site:
        with pytest.raises(ValidationError) as refusal:
            await site.do(lambda fw: fw.get_doc("Webhook", name).save())
        assert refusal.value.extra == {"field": "url"}
        await site.do(lambda fw: fw.get_doc("Webhook", name).delete())


async def test_webhook_secret_requires_site_key(tmp_path: Path) -> None:
    """The write fails without FW_SECRET_KEY (B-21)."""
    async with open_virtual_site(tmp_path, secrets={}) as site:
        with pytest.raises(ValidationError) as refusal:
            await site.subscribe()
    assert refusal.value.extra == {"field": "secret"}


async def test_webhook_saves_other_fields_without_key(site: VirtualSite, tmp_path: Path) -> None:
    hook = await site.subscribe()

    def change(fw: Any) -> None:
        doc = fw.get_doc("Webhook", hook)
        doc.timeout = 5
        doc.save()

    async with open_virtual_site(tmp_path, secrets={}) as keyless:
        await keyless.do(change)
    doc = await site.do(lambda fw: fw.get_doc("Webhook", hook))
    assert (doc.timeout, doc.vault("secret")) == (5, "a signing secret")


async def test_webhook_read_never_returns_secret(site: VirtualSite) -> None:
    """The secret is encrypted at rest and never returned by a read (B-20)."""
    hook = await site.subscribe()
    shown = await site.do(lambda fw: fw.get_doc("Webhook", hook).as_dict())
    assert shown["secret"] == {"configured": True}
    assert "signing" not in str(await site.sql("SELECT * FROM doc_webhook"))


async def test_webhooks_are_restricted_to_system_managers(site: VirtualSite) -> None:
    """Webhooks are managed by System Managers without access scopes (B-10)."""
    sam = await site.add_account("sam", "Seller", "Event Publisher")
    hook = await site.subscribe()
    for work in (
        lambda fw: fw.new_doc("Webhook", **CUSTOM).insert(),
        lambda fw: fw.get_doc("Webhook", hook),
        lambda fw: fw.get_list("Webhook"),
        lambda fw: fw.get_list("Webhook Delivery"),
    ):
        with pytest.raises(PermissionDeniedError):
            await site.do(work, sam)
    boss = await site.add_account("boss", "System Manager")
    await site.do(lambda fw: fw.get_doc("Webhook", hook).save(), boss)


async def test_webhook_of_missing_doctype_may_be_disabled(tmp_path: Path) -> None:
    """`fw doctor` advises to disable a Webhook whose app was removed (B-16)."""
    async with open_virtual_site(tmp_path, apps=("boxes",)) as site:
        name = await site.watch("Box", "on_insert")
    async with open_virtual_site(tmp_path, apps=("examples.notes",), seed=2) as site:

        def change(fw: Any, **values: Any) -> None:
            doc = fw.get_doc("Webhook", name)
            for field, value in values.items():
                setattr(doc, field, value)
            doc.save()

        with pytest.raises(ValidationError, match="There is no DocType Bix"):
            await site.do(lambda fw: change(fw, enabled=0, webhook_doctype="Bix"))
        await site.do(lambda fw: change(fw, enabled=0))
        await site.do(lambda fw: change(fw, title="t"))
        with pytest.raises(ValidationError, match="There is no DocType Box"):
            await site.do(lambda fw: change(fw, enabled=1))


async def test_enabled_webhook_of_missing_doctype_may_be_changed(tmp_path: Path) -> None:
    """Deliveries may still wait for it, and its secret may have leaked (B-16)."""
    async with open_virtual_site(tmp_path, apps=("boxes",)) as site:
        name = await site.watch("Box", "on_insert")
    async with open_virtual_site(tmp_path, apps=("examples.notes",), seed=2) as site:

        def change(fw: Any) -> None:
            doc = fw.get_doc("Webhook", name)
            doc.url = "https://new.example/"
            doc.save()

        await site.do(change)
        await site.do(lambda fw: rotate(fw, site.site.audit, name, "another secret", 0))
        stored = await site.do(lambda fw: fw.get_doc("Webhook", name).vault("secret"))
        assert stored == "another secret"


async def test_custom_webhook_cannot_begin_to_watch_missing_doctype(site: VirtualSite) -> None:
    """A value that the field has kept is not the DocType of its deliveries (B-16)."""
    name = await site.subscribe()
    await site.sql("UPDATE doc_webhook SET webhook_doctype = 'Bix' WHERE name = :n", n=name)

    def change(fw: Any) -> None:
        doc = fw.get_doc("Webhook", name)
        doc.event_type, doc.on_insert = "Document", 1
        doc.save()

    with pytest.raises(ValidationError, match="There is no DocType Bix"):
        await site.do(change)


async def test_webhook_of_child_table_may_be_disabled(site: VirtualSite) -> None:
    """An app may have made its DocType a child table (B-16, B-19)."""
    name = await site.watch("Note", "on_insert")
    await site.sql("UPDATE doc_webhook SET webhook_doctype = 'Decision' WHERE name = :n", n=name)

    def change(fw: Any, enabled: int) -> None:
        doc = fw.get_doc("Webhook", name)
        doc.enabled = enabled
        doc.save()

    await site.do(lambda fw: change(fw, 0))
    with pytest.raises(ValidationError, match="Decision is a child table"):
        await site.do(lambda fw: change(fw, 1))


async def test_webhook_of_development_mode_may_be_disabled(tmp_path: Path) -> None:
    """Its deliveries go on in production, to a URL of http, until it is disabled (B-12)."""
    async with open_virtual_site(tmp_path, mode="development") as site:
        name = await site.subscribe(url="http://receiver.test/")
    async with open_virtual_site(tmp_path, seed=2) as site:

        def change(fw: Any, **values: Any) -> None:
            doc = fw.get_doc("Webhook", name)
            for field, value in values.items():
                setattr(doc, field, value)
            doc.save()

        for values in ({"title": "t"}, {"enabled": 0, "url": "http://another.test/"}):
            with pytest.raises(ValidationError, match="must begin with https"):
                await site.do(lambda fw, v=values: change(fw, **v))  # type: ignore[misc]
        await site.do(lambda fw: change(fw, enabled=0))
        await site.do(lambda fw: change(fw, title="t"))
        with pytest.raises(ValidationError, match="must begin with https"):
            await site.do(lambda fw: change(fw, enabled=1))
        await site.do(lambda fw: change(fw, enabled=1, url="https://receiver.test/"))
