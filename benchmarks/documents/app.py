"""The app of the suite: an order with rows, as many sites have one."""

from __future__ import annotations

from fw_actors.app import Data, DocType, Float, Int, Link, Select, Table


class BenchCustomer(DocType, name="Bench Customer"):
    """The DocType that orders link to."""


class BenchLine(DocType, name="Bench Line", child=True):
    """A row of an order."""

    item = Data(required=True)
    qty = Int(default=1)
    rate = Float()


class BenchOrder(DocType, name="Bench Order", naming="random"):
    """An order: `customer` and `number` have indexes."""

    index_together = (("number",),)

    title = Data(required=True)
    customer = Link(options="Bench Customer")
    status = Select(options=["Open", "Closed"], default="Open")
    number = Int()
    amount = Float()
    lines = Table(BenchLine)
