"""The app of the browser tests; copied into the site's folder, where it is the module `shop`."""

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
    Select,
    Table,
    Text,
    Vault,
)
from fw_actors.errors import ValidationError


class Customer(DocType, naming="field:title", permissions={"Sales": "list read create write"}):
    """A buyer."""

    title = Data(required=True)
    city = Data()


class OrderLine(DocType, name="Order Line", child=True):
    """One line of an order."""

    item = Data(required=True)
    quantity = Int(default=1, minimum=1)
    rate = Float()
    packed = Datetime(allow_on_submit=True)
    seal = Vault()


class Order(
    DocType,
    name="Sales Order",
    naming="series:SO-.####",
    submittable=True,
    permissions={"Sales": "list read create write submit cancel delete"},
):
    """An order, from the first call to the invoice."""

    title = Data(required=True)
    customer = Link(options="Customer")
    status = Select(options=["New", "Packed", "Shipped"], default="New")
    due = Date()
    called = Datetime()
    urgent = Check()
    notes = Text(allow_on_submit=True)
    facts = JSON()
    margin = Float(permlevel=1)
    token = Vault()
    lines = Table(OrderLine)

    def validate(self, fw: Any) -> None:
        """Refuse an order that cannot be packed."""
        if self.title == "refuse me":
            raise ValidationError("No order is called that.", field="title")


class Reply(DocType, child=True):
    """An answer to a complaint."""

    remark = Data()
    text = Text()
    facts = JSON()


class Complaint(DocType, permissions={"Sales": "list read create write"}):
    """What a customer says of an order."""

    order = Link(options="Sales Order")
    remark = Data()
    replies = Table(Reply)

    def validate(self, fw: Any) -> None:
        """Refuse a complaint that states nothing."""
        if self.remark == "refuse me":
            raise ValidationError("A complaint must state something.", field="remark")
