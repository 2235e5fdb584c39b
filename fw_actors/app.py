"""What an app imports: field types, `DocType` and `whitelist` (interface §3)."""

from fw_actors.documents.document import DocType
from fw_actors.documents.fields import (
    Check,
    Data,
    Float,
    Int,
    Link,
    Password,
    Select,
    Table,
    Text,
    Vault,
)
from fw_actors.documents.json_field import JSON
from fw_actors.documents.time_fields import Date, Datetime
from fw_actors.documents.whitelisting import whitelist

__all__ = [
    "JSON",
    "Check",
    "Data",
    "Date",
    "Datetime",
    "DocType",
    "Float",
    "Int",
    "Link",
    "Password",
    "Select",
    "Table",
    "Text",
    "Vault",
    "whitelist",
]
