"""The names that apps import: field types, `DocType`, `whitelist` and `migration` (D-161)."""

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
from fw_actors.documents.handle import DocType
from fw_actors.documents.registry import migration, whitelist

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
    "migration",
    "whitelist",
]
