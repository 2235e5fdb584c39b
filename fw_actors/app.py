"""The names that apps import: field types, `DocType` and `whitelist` (D-161)."""

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
from fw_actors.documents.functions import whitelist
from fw_actors.documents.special_fields import JSON, Date, Datetime

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
