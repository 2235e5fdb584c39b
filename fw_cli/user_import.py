"""`fw user import`: accounts of another system, with their password hashes."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from fw_cli.context import ADMINISTRATOR, CommandContext
from fw_cli.errors import CommandFailed
from fw_cli.examples import examples
from fw_cli.output import as_json, counted, say, show_json, show_refusals
from fw_cli.progress import progress

if TYPE_CHECKING:
    from fw_actors.access.users import AccountToImport
    from fw_actors.documents.handle import Fw
    from fw_actors.ops.site import Site

_ACCOUNTS_PER_TRANSACTION: Final = 100  # accounts; keeps the waits of other writers short


@dataclass
class Import:
    """The result: counts, and the refused lines; `known` counts accounts that existed before."""

    imported: int = 0
    known: int = 0
    without_password: int = 0
    refused: list[dict[str, Any]] = field(default_factory=list)

    def refuse(self, line: int, error: object) -> None:
        self.refused.append({"line": line, "error": str(error)})


@click.command(
    "import",
    epilog=examples(
        "fw user import accounts.jsonl --dry-run",
        "fw user import accounts.csv",
    ),
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Report refusals only; import nothing.")
@as_json
@click.pass_obj
def import_accounts(context: CommandContext, file: Path, dry_run: bool, as_json: bool) -> None:
    """Import the accounts of FILE with their password hashes; no mail is sent.

    A line is JSON {name, email, fullName?, roles?, enabled?, hash?}; FILE may be a .csv with these
    columns and roles separated by semicolons. A hash must be argon2, bcrypt, scrypt or PBKDF2; it
    is replaced at the first sign-in. Without a hash, fw user invite lets the owner set a password.
    Refused lines are listed and do not affect the others; a second run skips existing accounts.
    """
    result = Import()
    try:
        accounts = _parse_file(context.cwd / file, result)
    except OSError as error:
        raise CommandFailed(f"{file} cannot be read: {error.strerror}.") from None
    with progress("importing") as advance:

        async def use(site: Site) -> None:
            run = site.rollback if dry_run else site.write
            earlier = _EarlierAccounts() if dry_run else None
            for begin in range(0, len(accounts), _ACCOUNTS_PER_TRANSACTION):
                part = accounts[begin : begin + _ACCOUNTS_PER_TRANSACTION]
                done = await run(ADMINISTRATOR, partial(_import, part, earlier))
                result.imported += done.imported
                result.known += done.known
                result.without_password += done.without_password
                result.refused += done.refused
                advance(begin + len(part), len(accounts))

        context.on_site(use)
    result.refused.sort(key=lambda refusal: refusal["line"])
    if as_json:
        show_json({**vars(result), "dryRun": dry_run})
    else:
        _show(result, dry_run=dry_run)
    if result.refused:
        others = "would be" if dry_run else "were"
        raise CommandFailed(
            f"{counted(len(result.refused), 'line')} refused; the other accounts {others} imported"
        )


def _parse_file(file: Path, result: Import) -> list[tuple[int, AccountToImport]]:
    """Return the usable lines of a file with their numbers; note the others."""
    accounts = []
    for number, each in _lines(file):
        if isinstance(each, Exception):
            result.refuse(number, each)
        else:
            accounts.append((number, each))
    return accounts


def _lines(file: Path) -> Iterator[tuple[int, AccountToImport | Exception]]:
    from fw_actors.access.users import (
        MAX_LINE_BYTES,
        account_from_json,
        accounts_from_csv,
    )
    from fw_actors.errors import ValidationError

    if file.suffix.lower() == ".csv":
        try:
            yield from accounts_from_csv(file.read_bytes().decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise CommandFailed(f"{file} is not valid UTF-8.") from None
        return
    with file.open("rb") as stream:
        number = 0
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if len(line) > MAX_LINE_BYTES:
                raise CommandFailed(f"Line {number} has more than {MAX_LINE_BYTES // 1024} KiB.")
            if not line.strip():
                continue
            try:
                yield number, account_from_json(line)
            except ValidationError as error:
                yield number, error


class _EarlierAccounts:
    """The accounts of the earlier transactions of a dry run, which were rolled back."""

    def __init__(self) -> None:
        self._emails: dict[str, str] = {}
        self._identifiers: set[str] = set()

    def has(self, account: AccountToImport) -> bool:
        """Return whether an account would be there already; otherwise add it.

        Raises: DuplicateError, as the import of an account that has a name or an e-mail of theirs.
        """
        from fw_actors.errors import DuplicateError
        from fw_actors.rules.identifiers import canonical

        if self._emails.get(account.name) == account.email:
            return True
        identifiers = {"name": canonical(account.name), "email": canonical(account.email)}
        for part, identifier in identifiers.items():
            if identifier in self._identifiers:
                raise DuplicateError(f"Another account has this {part}.", field=part)
        self._emails[account.name] = account.email
        self._identifiers.update(identifiers.values())
        return False


def _import(
    accounts: list[tuple[int, AccountToImport]], earlier: _EarlierAccounts | None, fw: Fw
) -> Import:
    from fw_actors.access.users import import_account
    from fw_actors.errors import FwError, OverloadedError

    done = Import()
    for number, account in accounts:
        try:
            with fw.tx.savepoint():
                is_new = import_account(fw, account)
                if is_new and earlier is not None:
                    is_new = not earlier.has(account)
        except OverloadedError:  # the store has failed, whatever the line
            raise
        except FwError as error:
            done.refuse(number, error)
            continue
        if is_new:
            done.imported += 1
            done.without_password += not account.hash
        else:
            done.known += 1
    return done


def _show(result: Import, *, dry_run: bool) -> None:
    say(f"{'would import' if dry_run else 'imported'} {counted(result.imported, 'account')}")
    if result.known:
        say(f"skipped {counted(result.known, 'existing account')}")
    if result.without_password:
        say(f"without a password: {result.without_password:,}; fw user invite USER sends a link")
    show_refusals(result.refused)
