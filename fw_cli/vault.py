"""`fw vault rekey`: encrypts Vault values with another key."""

from __future__ import annotations

import os
import stat
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from fw_cli.backup import copy_store
from fw_cli.context import CommandContext
from fw_cli.errors import CommandFailed
from fw_cli.examples import examples
from fw_cli.exclusive import service_stopped
from fw_cli.lazy import FullHelpGroup
from fw_cli.output import as_json, counted, show, show_json
from fw_cli.progress import progress

if TYPE_CHECKING:
    from fw_actors.ops.stored_secrets import Count, Rekeying, StoredValue

T = TypeVar("T")

_COLUMNS: Final = {
    "doctype": "DocType",
    "field": "Field",
    "old": "Old key",
    "new": "New key",
    "unreadable": "Unreadable",
}

_file = click.Path(dir_okay=False, path_type=Path)


@click.group(cls=FullHelpGroup)
def vault() -> None:
    """Encrypted values: encrypt them with another key."""


@vault.command(
    epilog=examples(
        "fw vault rekey --dry-run                  # how many there are",
        "fw vault rekey --backup before.db         # a new secret.key",
        "fw vault rekey --new-key-file new.key --no-backup",
    )
)
@click.option(
    "--old-key-file", type=_file, help="A file with the old key; default: the configured one."
)
@click.option(
    "--new-key-file",
    type=_file,
    help="A file with the new key; default: replace secret.key by a new random key.",
)
@click.option("--backup", type=_file, help="Copy the store to this file first.")
@click.option("--no-backup", is_flag=True, help="Do not copy the store.")
@click.option("--dry-run", is_flag=True, help="Count the values without changing them.")
@click.option(
    "--leave-unreadable",
    is_flag=True,
    help="Continue even if the old key decrypts no value at all.",
)
@as_json
@click.pass_obj
def rekey(
    context: CommandContext,
    old_key_file: Path | None,
    new_key_file: Path | None,
    backup: Path | None,
    no_backup: bool,
    dry_run: bool,
    leave_unreadable: bool,
    as_json: bool,
) -> None:
    """Encrypt all Vault values with another FW_SECRET_KEY.

    The service and every worker must be stopped. An interrupted run is resumed by starting it again
    with the same keys; until it completes, the site does not open. Values that neither key decrypts
    are listed and left unchanged.
    """
    if not dry_run and (backup is None) != no_backup:
        raise click.UsageError("Either --backup FILE or --no-backup is required.")
    with nullcontext() if dry_run else service_stopped(context, "changing the key"):
        keys = RotationKeys(context, old_key_file, new_key_file)
        if dry_run:
            counts = _count(context, keys)
            show([vars(each) for each in counts.fields], _COLUMNS, json=as_json)
            _report_lost(counts.lost)
            return
        keys.check_old_file()
        _require_no_other_nodes(context)
        if backup is not None:
            copy_store(context, backup, silent=as_json)
            _require_no_other_nodes(context)  # for a large store the copy takes minutes
        moved, counts = _move(context, keys, leave_unreadable=leave_unreadable)
        keys.put_in_place()
    if as_json:
        _report_lost(counts.lost)
        show_json(
            {
                "reencrypted": moved,
                "alreadyNew": counts.new,
                "unreadable": len(counts.lost),
                "backup": None if backup is None else str(context.cwd / backup),
                "next": keys.advice,
            }
        )
        return
    already = f", {counts.new} already had the new key" if counts.new else ""
    click.echo(f"re-encrypted {counted(moved, 'value')} with the new key{already}")
    _report_lost(counts.lost)
    click.echo(keys.advice)


class RotationKeys:
    """The old and the new key, and where the new one is stored."""

    def __init__(
        self, context: CommandContext, old_file: Path | None, new_file: Path | None
    ) -> None:
        from fw_actors.config.parsing import OWN_FILE

        secrets, folder = context.config.secrets, context.config.folder
        configured = secrets.key if old_file is None else _read(context.cwd / old_file)
        if configured is None:
            raise CommandFailed("FW_SECRET_KEY is not set: give the old key with --old-key-file")
        self.old: str = configured
        self._own = folder / OWN_FILE
        self._next, self._kept = folder / f"{OWN_FILE}.new", folder / f"{OWN_FILE}.old"
        self._replaces = new_file is None
        if new_file is not None:
            self._given: str | None = _read(context.cwd / new_file)
        elif secrets.key_file != self._own:
            raise CommandFailed(
                f"the key does not come from {self._own}: give the new one with --new-key-file"
            )
        elif secrets.key != self.old:
            raise CommandFailed(
                f"{self._own} holds another key than the old one: give the new one with "
                f"--new-key-file, or {self._own} itself if it holds the new one"
            )
        else:
            self._given = None
        if self._given == self.old:
            raise CommandFailed("the new key must differ from the old one")

    @property
    def known_new(self) -> str | None:
        """The new key; None if it is still to be generated."""
        if self._given is None and self._next.exists():
            self._given = _read(self._next)
        return self._given

    def new(self) -> str:
        """Return the new key, generated and stored on disk."""
        if self.known_new is None:
            from fw_actors.store.backup import new_file
            from fw_cli.init import new_key

            with new_file(self._next) as draft:
                draft.write_text(new_key())
                # With the same owner, group and mode as the old file.
                now = self._own.stat()
                os.chown(draft, now.st_uid, now.st_gid)
                draft.chmod(stat.S_IMODE(now.st_mode))
        assert self.known_new is not None
        return self.known_new

    def check_old_file(self) -> None:
        """Check that no key kept by an earlier rotation would be overwritten."""
        if self._replaces and self._kept.exists() and _read(self._kept) != self.old:
            raise CommandFailed(
                f"{self._kept} already exists, with the key of an earlier rotation: move "
                "it elsewhere, or remove it if no backup needs it any more"
            )

    def put_in_place(self) -> None:
        """Write the new key to secret.key, which exists at every moment, and keep the old one."""
        from fw_actors.store.backup import remove_draft_of

        if not self._replaces:
            return
        remove_draft_of(self._next)  # left by a killed run: another copy of the key
        if not self._kept.exists():
            os.link(self._own, self._kept)
        os.replace(self._next, self._own)
        folder = os.open(self._own.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @property
    def advice(self) -> str:
        """Return the remaining steps for the user."""
        if self._replaces:
            return (
                f"the new key is in {self._own}; {self._kept} opens backups from before: keep "
                "both in a safe place"
            )
        return "set the new key as FW_SECRET_KEY now: with the old one the site does not open"


def _require_no_other_nodes(context: CommandContext) -> None:
    """Check that no other process uses the store, such as a program that emits events."""
    from fw_actors.store.backup import require_no_other_nodes, require_unused

    file = context.config.sqlite_file
    if file is None:
        require_no_other_nodes(context.config.deployment.database)
    elif file.exists():
        require_unused(file)


def _count(context: CommandContext, keys: RotationKeys) -> Count:
    return _rekeying(context, keys.old, lambda: keys.known_new, lambda rekeying: rekeying.count())


def _move(
    context: CommandContext, keys: RotationKeys, *, leave_unreadable: bool
) -> tuple[int, Count]:
    async def use(rekeying: Rekeying) -> tuple[int, Count]:
        counts = await rekeying.count()
        if counts.lost and not counts.old and not counts.new and not leave_unreadable:
            raise CommandFailed(
                f"none of the {len(counts.lost)} stored values can be decrypted with the old "
                "key: is it the right one? --leave-unreadable continues and leaves them "
                "unreadable"
            )
        done = 0

        def moved(number: int) -> None:
            nonlocal done
            done += number
            advance(done, counts.old)

        await rekeying.run(moved)
        return done, counts

    with progress("re-encrypting stored values") as advance:
        return _rekeying(context, keys.old, keys.new, use)


def _rekeying(
    context: CommandContext,
    old: str,
    new: Callable[[], str | None],
    use: Callable[[Rekeying], Awaitable[T]],
) -> T:
    """Open the site, and return the result of `use`; `new` is called once the site is open."""
    import trio

    from fw_actors.documents.vault import VaultCipher
    from fw_actors.ops.site import open_site
    from fw_actors.ops.stored_secrets import Rekeying
    from fw_actors.runtime import SystemEntropy

    async def run() -> T:
        entropy = SystemEntropy()
        async with open_site(context.config, rekeying=True) as site:
            ciphers = VaultCipher(old, entropy), VaultCipher(new(), entropy)
            return await use(Rekeying(site.store, site.registry, *ciphers))

    context.logger(service=False)
    return trio.run(run)


def _report_lost(lost: list[StoredValue]) -> None:
    from fw_actors.rules.safe_output import escaped

    for value in lost:
        place = f"{value.doctype}, field {value.field}, {value.name}"
        click.echo(f"fw: {escaped(place)}: neither key decrypts it; left unchanged", err=True)


def _read(file: Path) -> str:
    from fw_actors.config.parsing import UnusableKeyFileError, read_key

    try:
        return read_key(file)
    except UnusableKeyFileError as error:
        raise CommandFailed(str(error)) from None
