"""`fw restore`: replaces the store by a backup."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from fw_cli.confirmation import confirm, yes_option
from fw_cli.context import ADMINISTRATOR, CommandContext
from fw_cli.errors import CommandFailed
from fw_cli.examples import examples
from fw_cli.exclusive import service_stopped
from fw_cli.output import as_json, counted, say, show_json
from fw_cli.progress import progress

if TYPE_CHECKING:
    from fw_actors.config import Config
    from fw_actors.ops.site import Site
    from fw_actors.store.backup import PresentAccess
    from fw_cli.restoration import Restored

UNREADABLE: Final = (
    "warning: the present store cannot be read, so API keys that were revoked since the backup "
    "would be valid again: --end-keys ends all"
)


@click.command(
    epilog=examples(
        "fw restore backup.db --dry-run                # check it and list its contents",
        "fw stop && fw restore backup.db --replace && fw start",
    )
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--replace", "replacing", is_flag=True, help="Replace a store that exists.")
@click.option("--end-keys", is_flag=True, help="End all API keys of the backup.")
@click.option("--dry-run", is_flag=True, help="Check the backup and list its contents.")
@yes_option
@as_json
@click.pass_obj
def restore(
    context: CommandContext,
    file: Path,
    replacing: bool,
    end_keys: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Replace the store with the backup FILE; the replaced store is kept.

    The service and every worker must be stopped. The backup is checked and migrated before anything
    is replaced. Its sessions and links end, and so do API keys that no longer exist in the replaced
    store; accounts disabled since are listed. Keep the FW_SECRET_KEY of the backup.

    --dry-run lists the numbers of documents by DocType, the time of the newest change and the
    version of the schema. Of a dump of PostgreSQL it lists only the time and the tables.
    """
    from fw_actors.store.backup import kind_of_backup

    config = context.config
    file = context.cwd / file
    kind = kind_of_backup(file)
    configured = "postgresql" if config.sqlite_file is None else "sqlite"
    if kind != configured:
        raise CommandFailed(f"{file} is a backup of {kind}, but FW_DATABASE is {configured}")
    opened = _restored_file if config.sqlite_file is not None else _restored_dump
    with nullcontext() if dry_run else service_stopped(context, "restoring a backup"):
        exists = _exists(context, dry_run=dry_run)
        if exists and not (replacing or dry_run):
            raise CommandFailed("the site already has a store; use --replace to replace it")
        if not dry_run:
            question = "Replace the store with the backup?" if exists else "Restore the backup?"
            confirm(question, yes=yes)
            _undo_killed_restore(context)
        before = _access_before(config, all_keys=end_keys) if exists else None
        with opened(context, file, dry_run=dry_run) as (draft, kept):
            if draft is None:
                _show_dump(context, file, as_json=as_json)
                return
            contents = _contents(context, draft) if dry_run else None
            restored = _end_revived_access(
                context, draft, before, all_keys=end_keys, source=file.name
            )
            result = _as_json(restored, None if dry_run or not exists else kept)
    if as_json:
        listed = {} if contents is None else {"contents": contents}
        show_json({**result, **listed, "dryRun": dry_run})
    else:
        if contents is not None:
            _show_contents(contents)
        _show_result(restored, result["kept"], file, dry_run=dry_run)


def _exists(context: CommandContext, *, dry_run: bool) -> bool:
    """Return whether there is a store that would be replaced.

    Unless `dry_run`, also checks that nothing else uses a server's database.
    """
    from fw_actors.store.backup import DatabaseRestore

    config = context.config
    if config.sqlite_file is not None:
        return config.sqlite_file.exists()
    if dry_run:
        return False
    return DatabaseRestore(config.deployment.database, context.environ).examine()


def _undo_killed_restore(context: CommandContext) -> None:
    """Put back the store that a killed restore into a server's database has replaced."""
    from fw_actors.store.backup import DatabaseRestore

    config = context.config
    if config.sqlite_file is not None:
        return  # a file is replaced at once
    kept = DatabaseRestore(config.deployment.database, context.environ).put_back()
    if kept:
        click.echo(f"fw: an interrupted restore was undone: schema {kept} is back", err=True)


def _access_before(config: Config, *, all_keys: bool) -> PresentAccess | None:
    """Return the access of the store that is replaced; None, with a warning, if it cannot be
    read."""
    from fw_cli.restoration import access_of_replaced_store

    try:
        return access_of_replaced_store(config)
    except Exception:  # a damaged store is a reason to restore one
        if not all_keys:
            click.echo(UNREADABLE, err=True)
        return None


RestoredStore = tuple["Config | None", str]
"""The configuration with which the restored store opens, and the place where the old store is
kept."""


@contextmanager
def _restored_file(
    context: CommandContext, file: Path, *, dry_run: bool
) -> Iterator[RestoredStore]:
    """Yield a draft of the store; it takes the store's place at the end, unless `dry_run`."""
    from fw_actors.store.backup import file_draft, put_file

    config = context.config
    database = config.sqlite_file
    assert database is not None
    kept = database.with_name(f"{database.name}.before-{_moment()}")
    with progress("copying the backup") as advance, file_draft(file, database, advance) as draft:
        deployment = replace(config.deployment, database=f"sqlite:///{draft}")
        yield replace(config, deployment=deployment), str(kept)
        if not dry_run:
            with _uninterrupted():
                put_file(draft, database, kept)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Disregard Ctrl-C, which would come too late: `Aborted!` would say that nothing was replaced,
    and hide the accounts that are enabled again."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _restored_dump(
    context: CommandContext, file: Path, *, dry_run: bool
) -> Iterator[RestoredStore]:
    """Yield the database with the dump in its schema; a dry run only reads the dump."""
    from fw_actors.store.backup import DatabaseRestore, examine_dump

    if dry_run:
        yield None, ""
        return
    examine_dump(file, context.environ)
    kept = f"before_{_moment().lower()}"
    database = DatabaseRestore(context.config.deployment.database, context.environ)
    with database.replaced(file, kept):
        yield context.config, f"schema {kept}"


def _moment() -> str:
    """Return the time for the name of the kept store."""
    from datetime import UTC, datetime

    from fw_actors.runtime import SystemClock

    return datetime.fromtimestamp(SystemClock().now() / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")


def _end_revived_access(
    context: CommandContext,
    config: Config,
    before: PresentAccess | None,
    *,
    all_keys: bool,
    source: str,
) -> Restored:
    """Open and migrate the restored store, and end the access that it revives."""
    import trio

    from fw_actors.ops.site import open_site
    from fw_cli.restoration import end_revived_access

    async def run() -> Restored:
        async with open_site(config, limited=False, restoring=True) as site:
            await _warn_of_secrets(site)
            return await site.write(
                ADMINISTRATOR,
                lambda fw: end_revived_access(site, fw, before, all_keys=all_keys, source=source),
            )

    context.logger(service=False)
    return trio.run(partial(run))


async def _warn_of_secrets(site: Site) -> None:
    """Print the stored secrets that the configured key does not decrypt."""
    from fw_actors.ops.stored_secrets import secret_facts

    for complaint in (await secret_facts(site, first_batches=True)).complaints():
        click.echo(f"warning: {complaint}", err=True)


def _as_json(restored: Restored, kept: str | None) -> dict[str, Any]:
    return {
        "sessionsEnded": restored.sessions,
        "linksEnded": restored.links,
        "keysEnded": restored.keys_ended,
        "keys": restored.keys,
        "usersRevived": list(restored.users_revived),
        "waiting": restored.waiting,
        "replay": None if restored.replay is None else restored.replay.id,
        "kept": kept,
    }


def _contents(context: CommandContext, config: Config) -> dict[str, Any]:
    """Return what a draft of an SQLite store contains; it is migrated."""
    import trio

    from fw_actors.ops.site import open_site
    from fw_actors.store.backup import schema_version_of
    from fw_cli.restoration import contents_of

    assert config.sqlite_file is not None
    version = schema_version_of(config.sqlite_file)

    async def run() -> dict[str, Any]:
        async with open_site(config, limited=False) as site:
            return await site.read(ADMINISTRATOR, partial(contents_of, site))

    context.logger(service=False)
    return {"schemaVersion": version, **trio.run(run)}


def _show_contents(contents: dict[str, Any]) -> None:
    newest = contents["newest"] or "none"
    say(f"schema version {contents['schemaVersion']}; newest change: {newest}")
    say(", ".join(f"{doctype}: {count:,}" for doctype, count in contents["documents"].items()))


def _show_dump(context: CommandContext, file: Path, *, as_json: bool) -> None:
    from fw_actors.store.backup import examine_dump

    facts = examine_dump(file, context.environ)
    if as_json:
        contents = {
            "created": facts.created,
            "serverVersion": facts.server,
            "tables": list(facts.tables),
        }
        show_json({"contents": contents, "dryRun": True})
        return
    say(f"dumped at {facts.created} from PostgreSQL {facts.server}")
    say(f"{counted(len(facts.tables), 'table')}: {', '.join(facts.tables)}")
    say(f"{file} can be restored by pg_restore")


def _show_result(restored: Restored, kept: str | None, file: Path, *, dry_run: bool) -> None:
    say(f"{file} is intact; nothing was replaced" if dry_run else f"restored {file}")
    verb = "would end" if dry_run else "ended"
    say(
        f"{verb} {counted(restored.sessions, 'session')}, {counted(restored.links, 'link')} and "
        f"{counted(restored.keys_ended, 'API key')}"
    )
    if restored.keys:
        say(
            f"{counted(restored.keys, 'API key')} of the backup can be used; fw key list shows them"
        )
    if restored.users_revived:
        names = ", ".join(restored.users_revived[:20])
        say(f"enabled again, though disabled or deleted later: {names}; disable them again")
    waiting = restored.waiting
    if any(waiting.values()):
        jobs = ", ".join(f"{queue} {count:,}" for queue, count in waiting.items())
        say(f"the service will run these jobs, some of them again: {jobs}")
    if (replay := restored.replay) is not None:
        say(
            f"the service will continue the bulk replay {replay.id} of {replay.user} after "
            f"{replay.replayed:,} of {replay.total:,} deliveries; fw webhooks replays shows it"
        )
    say("passwords, roles and Webhooks are those of the backup")
    if kept is not None:
        say(f"the replaced store is kept: {kept}")
