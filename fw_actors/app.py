"""The names that apps import: field types, `DocType` and `whitelist` (D-161)."""

from fw_actors.documents.document import DocType
from fw_actors.documents.fields import (
    JSON,
    Check,
    Data,
    Date,
    Datetime,
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
