"""An app for comparing the stores: every kind of field with its options, links, rows and names."""

from __future__ import annotations

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
)

CLERK = "list read create write delete submit cancel export"
KINDS = ["a", "A", "ß", "SS", "ς", "\u03c3", "é", "e\u0301", " ", "1"]


class Peer(DocType, naming="field:title", permissions={"Clerk": CLERK}):
    """Named by a field, and linked from others and from itself."""

    title = Data(required=True)
    above = Link(options="Peer")
    weight = Int(minimum=-5, maximum=5)


class ThingLine(DocType, child=True):
    """A row with a unique field and with fields of several types."""

    item = Data(required=True)
    serial = Data(unique=True)
    mark = Int(unique=True)
    ratio = Float()
    day = Date()
    extra = JSON()
    peer = Link(options="Peer")
    cost = Int(permlevel=1)
    note = Text(allow_on_submit=True)


class Thing(
    DocType,
    submittable=True,
    permissions={"Clerk": CLERK, "Reader": "list read read:1", "Writer": "read:1 write:1"},
):
    """One field of every type, and of every unique type."""

    data = Data(allow_on_submit=True)
    short = Data(length=12)
    text = Text(allow_on_submit=True)
    code = Data(unique=True)
    tag = Data(unique=True, length=650)
    number = Int(unique=True)
    ratio_key = Float(unique=True)
    day_key = Date(unique=True)
    count = Int()
    small = Int(minimum=-5, maximum=5, default=1)
    ratio = Float()
    done = Check(default=1)
    day = Date()
    moment = Datetime()
    kind = Select(options=KINDS)
    peer = Link(options="Peer")
    extra = JSON(default={"a": []})
    pin = Password()
    token = Vault()
    cost = Float(permlevel=1)
    locked = Data(read_only=True)
    lines = Table(ThingLine)

    unique_together = (("short", "count"),)
    index_together = (("kind", "day"),)
