"""An app for tests: a document with every kind of field, and hooks that record their calls."""

from __future__ import annotations

from typing import Any

from fw_actors.app import (
    JSON,
    Check,
    Data,
    Date,
    Datetime,
    DocType,
    Float,
    Int,
    Link,
    Password,
    Select,
    Table,
    Text,
    Vault,
    whitelist,
)
from fw_actors.errors import ValidationError

SELLER = "list read create write delete submit cancel"
CALLED: list[str] = []  # hooks, in the order they ran
LATE: list[str] = []  # names of committed orders


class Customer(DocType, naming="field:title", permissions={"Seller": "list read create write"}):
    """Named by a field."""

    title = Data(required=True)
    vat = Data(unique=True)
    parent_customer = Link(options="Customer")


class FileRow(DocType, child=True):
    """A row that may link to its own document."""

    file = Link(options="Customer File")


class CustomerFile(DocType, name="Customer File", naming="field:title"):
    """A document whose rows link to its own DocType."""

    title = Data(required=True)
    rows = Table(FileRow)


class Profile(DocType, naming="field:customer", permissions={"Seller": "list read create write"}):
    """Named by the document that it links to."""

    customer = Link(options="Customer", required=True)


class Grade(
    DocType,
    naming="field:code",
    permissions={"Seller": "create read write", "Boss": "read write read:1 write:1"},
):
    """Named by a field that few may write."""

    code = Data(permlevel=1)


class Permit(DocType, naming="field:code", permissions={"Seller": "read write"}):
    """Named by a field that no caller may write."""

    code = Data(read_only=True)


class OrderLine(DocType, child=True):
    """A child with secrets of its own."""

    item = Data(required=True)
    rate = Float(default=1.5)
    customer = Link(options="Customer")
    token = Vault()
    pin = Password()
    cost = Float(permlevel=1)
    line_secret = Data()
    note = Data(allow_on_submit=True)
    batch = Data(read_only=True)


class Order(
    DocType,
    name="Sales Order",
    naming="series:SO-.#####",
    submittable=True,
    permissions={
        "Seller": SELLER,
        "Boss": "read:1 write:1",
        "Auditor": "read:1",
        "Reader": "read list",
        "Exporter": "read export",
    },
):
    """The example of an app, with hooks (D-160, D-140)."""

    title = Data(required=True)
    margin = Float(permlevel=1)
    token = Vault()
    lines = Table(OrderLine)
    remark = Text(allow_on_submit=True)
    customer = Link(options="Customer")
    number = Int(read_only=True)

    def before_validate(self, fw: Any) -> None:
        CALLED.append("before_validate")
        if self.title == "fill in":
            self.title = "filled in"

    def validate(self, fw: Any) -> None:
        CALLED.append("validate")
        if self.remark == "change the title in validate":
            self.title = "changed"
        if self.title == "refuse":
            raise ValidationError("Not this one.", field="title")

    def before_save(self, fw: Any) -> None:
        CALLED.append("before_save")

    def on_insert(self, fw: Any) -> None:
        CALLED.append(f"on_insert {self.docstatus}")
        if self.title == "refuse late":
            raise ValidationError("Too late.")

    def on_update(self, fw: Any) -> None:
        CALLED.append("on_update")

    def on_submit(self, fw: Any) -> None:
        CALLED.append(f"on_submit {self.docstatus}")

    def on_cancel(self, fw: Any) -> None:
        CALLED.append("on_cancel")

    def on_trash(self, fw: Any) -> None:
        CALLED.append("on_trash")

    def after_commit(self, fw: Any) -> None:
        LATE.append(str(self.name))
        if self.title == "fail late":
            raise RuntimeError("after the commit")


class LedgerEntry(DocType, child=True):
    """A row with a field that few may read."""

    amount = Int()
    customer = Link(options="Customer", allow_on_submit=True)
    secret_rate = Int(permlevel=1)


class Ledger(DocType, permissions={"Seller": "read write"}):
    """A table that no caller may write."""

    entries = Table(LedgerEntry, read_only=True)
    note = Data()


class Paper(DocType, submittable=True):
    """JSON and rows that change once submitted, and JSON that does not."""

    extra = JSON(allow_on_submit=True)
    notes = Table(LedgerEntry, allow_on_submit=True)
    fixed = JSON(default=0)
    sealed = JSON(default=1, read_only=True)


class Sample(DocType, permissions={"Seller": SELLER}):
    """One field of every type."""

    data = Data(length=10)
    text = Text()
    count = Int()
    ratio = Float()
    done = Check(default=1)
    day = Date()
    moment = Datetime()
    kind = Select(options=["a", "b"])
    link = Link(options="Customer")
    extra = JSON(default={"a": []})
    pin = Password()
    token = Vault()


class Part(DocType, child=True):
    """A row with a unique column."""

    serial = Data(unique=True)


class Box(DocType, permissions={"Seller": SELLER}):
    """A DocType that holds parts."""

    parts = Table(Part)


class Hidden(DocType, child=True):
    """A row of secrets."""

    pin = Password()
    password = Data()
    wifi_password = Data()
    vault = Vault()
    unset_vault = Vault()
    margin = Float(permlevel=1)
    secretary = Data()


class Strongbox(DocType, permissions={"Seller": SELLER, "Boss": "read:1 write:1"}):
    """Every field that events redact, and some with similar names."""

    pin = Password()
    password = Data()
    password_hash = Data()
    new_password = Data()
    api_secret = Data()
    secret = Data()
    wifi_password = Data()
    client_secret = Data()
    vault = Vault()
    unset_vault = Vault()
    vault_secret = Vault()
    margin = Float(permlevel=1)
    hidden_pin = Password(permlevel=1)
    hidden_vault = Vault(permlevel=2)
    secretary = Data()
    passwords = Data()
    secret_santa = Data()
    api_key = Data()
    rows = Table(Hidden)
    hidden_rows = Table(Hidden, permlevel=1)


@whitelist(roles=["Seller"])
def close_order(fw: Any, name: str, reason: str = "", *, force: bool = False) -> dict[str, Any]:
    """Return the arguments."""
    return {"name": name, "reason": reason, "force": force}


@whitelist
def ping(fw: Any, **anything: Any) -> dict[str, Any]:
    """Every signed-in user may call this."""
    return anything


def not_whitelisted(fw: Any) -> None:
    """HTTP cannot call this."""
