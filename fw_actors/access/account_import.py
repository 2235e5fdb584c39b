"""Imports accounts of another system with their password hashes.

A hash is stored as it came, verified by its own scheme, and made anew at its owner's first sign-in,
as one with outdated parameters is. An import may be run again: accounts that are there are skipped.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from io import StringIO
from typing import Any, Final

import msgspec

from fw_actors.access.users import add_user
from fw_actors.documents.handle import Fw
from fw_actors.errors import ValidationError
from fw_actors.hashing import UnusableHashError, usable_hash

MAX_LINE_BYTES: Final = 64 * 1024
_ROLES_SEPARATOR: Final = ";"
_NO: Final = frozenset({"0", "false", "no"})


class AccountToImport(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """An account as a line of the file gives it; without a hash it is to be invited."""

    name: str
    email: str
    full_name: str = ""
    roles: tuple[str, ...] = ()
    enabled: bool = True
    hash: str = ""

    def __repr__(self) -> str:
        return f"<AccountToImport {self.name}>"  # without the hash


def account_from_json(line: bytes) -> AccountToImport:
    """Return the account of a line of JSON; its hash is checked and in the stored form.

    Raises: ValidationError, which never quotes the hash.
    """
    try:
        found = msgspec.json.decode(line, type=AccountToImport)
    except (
        msgspec.ValidationError,
        msgspec.DecodeError,
        UnicodeDecodeError,
        RecursionError,
    ) as why:
        text = str(why).replace("`", "").removeprefix("Object ")
        raise ValidationError(f"A line must be an account as JSON: {text[:140]}.") from None
    return _checked(found)


def accounts_from_csv(text: str) -> Iterator[tuple[int, AccountToImport | ValidationError]]:
    """Yield the accounts of a CSV file by line; the first line names the columns.

    Roles are separated by semicolons. Raises: ValidationError for unusable columns.
    """
    rows = csv.DictReader(StringIO(text, newline=""), strict=True)
    known = [each.encode_name for each in msgspec.structs.fields(AccountToImport)]
    columns = rows.fieldnames or ()
    strange = [each for each in columns if each not in known]
    if strange or not {"name", "email"} <= set(columns):
        raise ValidationError(f"The columns must be name, email, and of {', '.join(known[2:])}.")
    try:
        for row in rows:
            yield rows.line_num, _from_row(row)
    except csv.Error as error:
        raise ValidationError(f"Line {rows.line_num} is not valid CSV: {error}.") from None


def _from_row(row: Mapping[str, Any]) -> AccountToImport | ValidationError:
    if None in row or None in row.values():
        return ValidationError("A line must have as many fields as the first one.")
    roles = [each.strip() for each in row.get("roles", "").split(_ROLES_SEPARATOR)]
    try:
        return _checked(
            AccountToImport(
                name=row["name"],
                email=row["email"],
                full_name=row.get("fullName", ""),
                roles=tuple(filter(None, roles)),
                enabled=row.get("enabled", "").strip().lower() not in _NO,
                hash=row.get("hash", ""),
            )
        )
    except ValidationError as error:
        return error


def _checked(account: AccountToImport) -> AccountToImport:
    if not account.hash:
        return account
    try:
        return msgspec.structs.replace(account, hash=usable_hash(account.hash))
    except UnusableHashError as error:
        raise ValidationError(f"{error}.", field="hash") from None


def import_account(fw: Fw, account: AccountToImport) -> bool:
    """Create an account; return False if it is there already, by name and e-mail.

    Raises: DuplicateError if another account has its name or its e-mail; ValidationError.
    """
    if fw.get_value("User", account.name, "email") == account.email:
        return False
    add_user(
        fw,
        account.name,
        account.email,
        account.full_name,
        account.roles,
        account.hash or None,
        enabled=account.enabled,
    )
    return True
