"""Backups of the database as files, and their restore.

They are made by SQLite's online backup, or by PostgreSQL's `pg_dump`. SQLite's backup runs in one
read transaction: writers continue meanwhile, and the copy contains none of their later commits. The
copy is checked before it gets its name.

A restore keeps the replaced database under a name that contains the time, until an administrator
deletes it.

A file replaces a file at once. A dump is restored by another program, in several transactions, so
that a kill could leave a schema that is empty, or that has the backup's sessions. Until the last
transaction the schema therefore has a table by which every other command refuses it, and a second
restore first puts the replaced store back: the access that it has ended must not revive.

The module has more than 500 lines because both kinds of backup are restored by one command.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fw_actors.errors import ConfigurationError

_BESIDE: Final = ("-wal", "-shm", "-journal")  # files that SQLite creates next to the database


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Yield a draft next to `target`, readable by its owner only; the end of the block renames it.

    The file is synced to the disk before it gets its name. If the block raises, the draft is
    removed.

    Raises: ConfigurationError when `target` exists or cannot be written.
    """
    draft = _draft_of(target)
    try:
        # The draft of a killed process may be a hard link to a finished file, so it is never
        # reused.
        remove_draft_of(target)
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            yield draft
            _sync(draft)
            os.link(draft, target)  # unlike a rename, it never replaces an existing file
            _sync(target.parent)
        finally:
            remove_draft_of(target)
    except FileExistsError:
        raise ConfigurationError([f"{target} already exists; name another file."]) from None
    except OSError as error:
        raise ConfigurationError([f"{target} cannot be written: {error.strerror}."]) from error


def remove_draft_of(target: Path) -> None:
    """Remove the partial or complete draft that a killed process has left next to `target`."""
    for end in ("", *_BESIDE):
        Path(f"{_draft_of(target)}{end}").unlink(missing_ok=True)


def _draft_of(target: Path) -> Path:
    return target.with_name(f".{target.name}.part")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


WHOLE_CHECK_BYTES: Final = 1 << 30
"""Up to this size each index is also compared with its table, which reads the file many times."""
_MAX_FAULTS: Final = 5
_CHECK_BUSY_SECONDS: Final = 5.0


@dataclass(frozen=True)
class IntegrityReport:
    """The result of an examination. `faults` are SQLite's messages, empty for an intact file."""

    size: int  # bytes, with its write-ahead log
    free: int  # bytes of unused pages inside the file
    faults: tuple[str, ...]
    thorough: bool  # whether the indexes were compared with their tables


def check_integrity(path: Path) -> IntegrityReport:
    """Examine a database, which may be in use; blocks while the file is read.

    A file that cannot be read is reported as a fault; no exception is raised.
    """
    log = path.with_name(path.name + "-wal")
    size = 0
    for file in (path, log):
        with contextlib.suppress(OSError):  # the log is deleted when its last user closes it
            size += file.stat().st_size
    thorough = size <= WHOLE_CHECK_BYTES
    check = "integrity_check" if thorough else "quick_check"
    try:
        opened = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_CHECK_BUSY_SECONDS
        )
        with contextlib.closing(opened) as connection:
            lines = connection.execute(f"PRAGMA {check}({_MAX_FAULTS})").fetchall()
            pages, page = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("freelist_count", "page_size")
            )
    except sqlite3.Error as error:
        return IntegrityReport(size, 0, (str(error),), thorough)
    faults = tuple(str(line) for (line,) in lines if line != "ok")
    return IntegrityReport(size, pages * page, faults, thorough)


PAGES_AT_ONCE: Final = 1000
_BUSY_SECONDS: Final = 30.0

# Texts that are valid in stores of all versions, since tables only get more columns (O-22).
_KEYS: Final = "SELECT name FROM doc_api_key"
_USERS: Final = "SELECT name FROM doc_user WHERE enabled = 1"


@dataclass(frozen=True)
class PresentAccess:
    """The API keys and enabled accounts of a store, by name: all that can sign in to it."""

    keys: frozenset[str]
    users: frozenset[str]


def access_in_file(database: Path) -> PresentAccess:
    """Read the access of an SQLite store without opening the site, so that it is not migrated.

    Raises: sqlite3.Error if it cannot be read.
    """
    with contextlib.closing(_connect(database, "rw")) as connection:
        return _access(connection)


def access_in_database(url: str) -> PresentAccess:
    """Read the access of a store on PostgreSQL, as `access_in_file` does.

    Raises: ConfigurationError if it cannot be read.
    """
    with _connected(url) as connection:
        return _access(connection)


def _access(connection: Any) -> PresentAccess:
    keys, users = (connection.execute(text).fetchall() for text in (_KEYS, _USERS))
    return PresentAccess(frozenset(name for (name,) in keys), frozenset(name for (name,) in users))


ReportProgress = Callable[[int, int], None]
"""Called with the number of copied pages and the number of all pages."""


def back_up_file(source: Path, target: Path, progress: ReportProgress) -> int:
    """Copy the database to `target`, which must not exist; blocks until the copy is on the disk.

    Returns: the size of the copy, in bytes.
    Raises: ConfigurationError when there is no database, `target` exists or cannot be written, or
        the copy is not intact; no file remains then.
    """
    if not source.is_file():
        raise ConfigurationError([f"There is no database {source}."])
    with new_file(target) as draft:
        try:
            _copy(source, draft, progress)
        except sqlite3.Error as error:
            reason = _reason_of_folder(source.parent) or str(error)
            raise ConfigurationError([f"{source} cannot be copied: {reason}."]) from error
        faults = check_integrity(draft).faults
        if faults:
            raise ConfigurationError([f"The copy is not intact: {'; '.join(faults)}."])
    return target.stat().st_size


def _reason_of_folder(folder: Path) -> str | None:
    """Return why SQLite cannot create its files in a folder; None if it can."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return f"SQLite needs files of its own in {folder}: {error.strerror}"
    return None


def _copy(source: Path, target: Path, progress: ReportProgress) -> None:
    with (
        contextlib.closing(_connect(source, "ro")) as old,
        contextlib.closing(_connect(target, "rw")) as new,
    ):
        # An open read transaction: without it, each commit of another connection restarts the copy.
        old.execute("BEGIN")
        old.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        old.backup(
            new,
            pages=PAGES_AT_ONCE,
            progress=lambda status, remaining, total: progress(total - remaining, total),
        )
        new.execute("PRAGMA journal_mode=DELETE")  # so that the copy is one file


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
    )


PG_DUMP: Final = "pg_dump"
KEPT_SCHEMAS: Final = "before_[0-9][0-9][0-9][0-9]*t*z"
"""The schemas that restores have kept, as a pattern for pg_dump. A dump excludes them: they are no
part of the site, and a restore would collide with them."""
_PREFIX: Final = "FW_"
_MAX_ERROR_LINES: Final = 5
_ATTEMPTS: Final = 10


def back_up_database(url: str, target: Path, environ: Mapping[str, str]) -> int:
    """Dump the database to `target`, which must not exist, in the format of `pg_restore`.

    `environ`: the process's environment; pg_dump is searched on its PATH, and gets all variables
    but those of fw. A password is passed in the environment, where `ps` does not show it.

    Returns: the size of the dump, in bytes.
    Raises: ConfigurationError when there is no pg_dump, it fails, or `target` cannot be written,
        and for a database whose restore was killed.
    """
    program = shutil.which(PG_DUMP, path=environ.get("PATH"))
    if program is None:
        raise ConfigurationError([f"A backup of PostgreSQL needs {PG_DUMP}, which was not found."])
    with new_file(target) as draft, connection_of(url, environ) as (arguments, passed, files):
        command = [program, "--format=custom", "--no-owner", f"--file={draft}"]
        excluded = [KEPT_SCHEMAS, *map(_quoted, _closed_schemas(url))]
        command += [f"--exclude-schema={pattern}" for pattern in excluded]
        _run([*command, f"--dbname={arguments}"], passed, files=files)
        with _connected(url) as connection:
            if kept_by_killed_restore(connection) is not None:
                raise ConfigurationError([INTERRUPTED])
    return target.stat().st_size


def _closed_schemas(url: str) -> list[str]:
    """Return the schemas that the account may not use, such as one for monitoring: pg_dump would
    fail, and no app can have anything there. None if the server refuses: pg_dump reports it."""
    with contextlib.suppress(ConfigurationError), _connected(url) as connection:
        return [name for (name,) in connection.execute(_CLOSED_SCHEMAS)]
    return []


_CLOSED_SCHEMAS: Final = (
    "SELECT nspname FROM pg_namespace "
    "WHERE nspname !~ '^pg_' AND NOT has_schema_privilege(oid, 'USAGE')"
)


@contextmanager
def connection_of(
    url: str, environ: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, str], tuple[int, ...]]]:
    """Yield the connection string without its secrets, and the environment and the descriptors
    with which PostgreSQL's programs get them.

    The environment has the password, and none of fw's variables. libpq takes the password of a
    client's key (sslpassword) from no variable, but from a service file: one without a name, which
    the programs inherit.

    Raises: ConfigurationError for a URL with a service of its own and an sslpassword.
    """
    from psycopg.conninfo import make_conninfo  # few sites need its driver

    facts = {name: str(value) for name, value in _parameters(url).items()}
    password, key_password = facts.pop("password", None), facts.pop("sslpassword", None)
    passed = _without_fw(environ)
    if password is not None:
        passed["PGPASSWORD"] = password
    if key_password is None:
        yield make_conninfo(**facts), passed, ()
        return
    if "service" in facts:
        raise ConfigurationError(["FW_DATABASE has a service: name the sslpassword in its file."])
    with tempfile.TemporaryFile() as file:
        file.write(f"[{_SERVICE}]\nsslpassword={key_password}\n".encode())
        file.flush()
        passed["PGSERVICEFILE"] = f"/dev/fd/{file.fileno()}"
        yield make_conninfo(**facts, service=_SERVICE), passed, (file.fileno(),)


_SERVICE: Final = "fw"


def _parameters(url: str) -> dict[str, Any]:
    """Return libpq's parameters from a URL.

    Of several hosts, the primary is used, as by the store. A standby may lag behind it, and shows
    no connection of the services that write.

    Raises: psycopg.Error for a URL that libpq refuses.
    """
    from psycopg.conninfo import conninfo_to_dict  # few sites need its driver

    return {"target_session_attrs": "primary", **conninfo_to_dict(url)}


def _without_fw(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith(_PREFIX)}


def _run(
    command: list[str],
    environ: Mapping[str, str],
    stdin: str = "",
    files: Sequence[int] = (),
    *,
    may_ignore: str = "",
) -> str:
    """Run a program of PostgreSQL, with `stdin` as its input; return its output.

    It is repeated if its first query failed, which changed nothing: that query runs before the
    program ends the time limit of the account (see `_end_time_limit`).

    `files`: descriptors that it inherits. `may_ignore`: the one statement that may fail.

    Raises: ConfigurationError.
    """
    attempts = 0
    while True:
        attempts += 1
        done = subprocess.run(
            command,
            env=dict(environ),
            input=stdin.encode(),
            capture_output=True,
            check=False,
            pass_fds=files,
        )
        if _FIRST_QUERY not in done.stderr or attempts == _ATTEMPTS:
            break
    if done.returncode != 0 and not (may_ignore and _ignored_only(done.stderr, may_ignore)):
        name = Path(command[0]).name
        problems = error_lines(done.stderr) or [f"{name} failed without a message"]
        if any(message in done.stderr for message in _TOO_OLD):
            problems.append(
                f"{command[0]} is too old: install the client programs of the server's version "
                "of PostgreSQL, or of a newer one, such as Debian's package postgresql-client-17."
            )
        raise ConfigurationError(problems)
    return done.stdout.decode(errors="replace")


def _ignored_only(stderr: bytes, statement: str) -> bool:
    """Return whether a pg_restore that continues after errors had one, which is of `statement`."""
    lines = stderr.decode(errors="replace").splitlines()
    ignored = "pg_restore: warning: errors ignored on restore: 1"
    return f"Command was: {statement};" in lines and ignored in lines


_FIRST_QUERY: Final = b"Query was: SELECT pg_catalog.set_config('search_path', '', false)"
"""The first query of pg_dump and pg_restore, as they name one that failed."""
_TOO_OLD: Final = (b"server version mismatch", b"unsupported version (")
"""The messages of pg_dump for a newer server, and of pg_restore for a newer file."""


def error_lines(stderr: bytes) -> list[str]:
    """Return the last lines of an error of PostgreSQL's programs, without the indented hints."""
    lines = stderr.decode(errors="replace").splitlines()
    return [line for line in lines if line[:1] not in ("", "\t")][-_MAX_ERROR_LINES:]


PG_RESTORE: Final = "pg_restore"
_SQLITE_HEAD: Final = b"SQLite format 3\0"
_DUMP_HEAD: Final = b"PGDMP"
_LEAVING_SECONDS: Final = 2.0


def kind_of_backup(file: Path) -> str:
    """Return `sqlite` or `postgresql`. Raises: ConfigurationError for any other file."""
    try:
        with file.open("rb") as opened:
            head = opened.read(len(_SQLITE_HEAD))
    except OSError as error:
        raise ConfigurationError([f"{file} cannot be read: {error.strerror}."]) from None
    if head == _SQLITE_HEAD:
        return "sqlite"
    if head.startswith(_DUMP_HEAD):
        return "postgresql"
    raise ConfigurationError([f"{file} is not a backup: neither a file of SQLite nor a dump."])


@contextmanager
def file_draft(
    backup: Path, database: Path, progress: Callable[[int, int], None]
) -> Iterator[Path]:
    """Yield a checked copy of a backup next to the database; it is removed after the block.

    Raises: ConfigurationError if the backup is not intact or the copy cannot be written.
    """
    draft = database.with_name(f"{database.name}.restoring")
    _remove(draft)
    remove_draft_of(draft)
    try:
        database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        back_up_file(backup, draft, progress)
        _require_site(draft)
        yield draft
    except OSError as error:
        raise ConfigurationError([f"{draft} cannot be written: {error.strerror}."]) from error
    finally:
        _remove(draft)


def _require_site(file: Path) -> None:
    with contextlib.closing(
        sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
    ) as opened:
        tables = opened.execute("SELECT name FROM sqlite_schema WHERE name = 'fw_meta'").fetchall()
    if not tables:
        raise ConfigurationError(["The backup is of another program: it has no table fw_meta."])


def schema_version_of(file: Path) -> int:
    """Return the version of the schema of an SQLite store, before any migration."""
    with contextlib.closing(
        sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
    ) as opened:
        row = opened.execute("SELECT value FROM fw_meta WHERE key = 'schema_version'").fetchone()
    return int(row[0]) if row else 0


def put_file(draft: Path, database: Path, kept: Path) -> None:
    """Replace a database by a draft; the replaced database gets the name `kept`.

    As root, the draft is given the owner of the database, or of its folder, so that the service can
    write it.

    Raises: ConfigurationError if another process has one of them open.
    """
    _fold_log(draft)
    was_there = database.exists()
    if os.geteuid() == 0:
        owner = (database if was_there else database.parent).stat()
        os.chown(draft, owner.st_uid, owner.st_gid)
    if was_there:
        with contextlib.suppress(sqlite3.DatabaseError):  # a damaged one is moved with its log
            _fold_log(database)
    # Also those of a database that is missing: SQLite would write them over the draft.
    for end in _BESIDE:
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{database}{end}", f"{kept}{end}")
    if was_there:
        # Not renamed: if this process was killed now, the next command would create an empty store.
        os.link(database, kept)
    os.rename(draft, database)
    descriptor = os.open(database.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_unused(file: Path) -> None:
    """Check that no other process has an SQLite file open, such as a program that uses the site.

    Raises: ConfigurationError if one has.
    """
    with contextlib.suppress(sqlite3.DatabaseError):  # a damaged one is refused when it is opened
        _fold_log(file)


def _fold_log(file: Path) -> None:
    """Checkpoint the write-ahead log into the file, which no other connection may have open.

    Raises: ConfigurationError if one has; sqlite3.DatabaseError for a damaged file.
    """
    with contextlib.closing(sqlite3.connect(file, timeout=1.0, isolation_level=None)) as opened:
        try:
            opened.execute("PRAGMA journal_mode=DELETE").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            raise ConfigurationError(
                [f"Another process has {file} open: stop every worker and command first."]
            ) from None


def _remove(file: Path) -> None:
    for end in ("", *_BESIDE):
        Path(f"{file}{end}").unlink(missing_ok=True)


@dataclass(frozen=True)
class DumpFacts:
    """The facts in the contents of a dump, which has no row counts; unknown facts are empty."""

    created: str  # as pg_restore prints it
    server: str  # the version of PostgreSQL
    tables: tuple[str, ...]


def examine_dump(file: Path, environ: Mapping[str, str]) -> DumpFacts:
    """Return the facts of a dump. Raises: ConfigurationError if pg_restore cannot read it."""
    untranslated = {**_without_fw(environ), "LC_ALL": "C"}
    lines = _run([_program(environ), "--list", str(file)], untranslated).splitlines()
    heads = {}
    tables = []
    for line in lines:
        if line.startswith(";"):
            name, _, value = line.lstrip("; ").partition(": ")
            heads[name] = value
            if name.startswith(_CREATED):
                heads[_CREATED] = name.removeprefix(_CREATED)
        elif _ROWS in line:  # 3456; 0 16385 TABLE DATA public doc_user owner
            tables.append(line.partition(_ROWS)[2].split()[1])
    return DumpFacts(
        heads.get(_CREATED, ""), heads.get("Dumped from database version", ""), tuple(tables)
    )


_CREATED: Final = "Archive created at "
_ROWS: Final = " TABLE DATA "


RESTORING: Final = "fw_restoring"
"""A table that exists while a dump is restored into its schema. Its row names the schema that keeps
the replaced store; it is empty if there was none. No dump has this table."""
INTERRUPTED: Final = (
    "The restore of a backup was interrupted: run `fw restore FILE --replace`, which first puts "
    "the former store back."
)
"""What every command but a restore answers while that table exists."""


class DatabaseRestore:
    """The restore of a dump into the current schema of a PostgreSQL database."""

    def __init__(self, url: str, environ: Mapping[str, str]) -> None:
        """`environ`: the process's, as in `back_up_database`."""
        self._url, self._environ = url, environ

    def examine(self) -> bool:
        """Return whether the database has a site already, in its place or kept by a killed restore.

        Raises: ConfigurationError if other connections use the database, or if the schema belongs
            to another program.
        """
        with _connected(self._url) as connection:
            _require_no_others(connection, _OTHERS)
            kept = kept_by_killed_restore(connection)
            if kept is not None:
                return bool(kept)
            if _has_table(connection, "fw_meta"):
                return True
            if connection.execute(_COUNT_RELATIONS).fetchone()[0]:
                raise ConfigurationError(
                    [
                        "The schema has tables, but no site: restore into an empty schema, because "
                        "a failed restore drops all that is in it."
                    ]
                )
            return False

    def put_back(self) -> str | None:
        """Undo a restore that was killed; return the schema that had the store.

        It is empty if there was no store; None if no restore was killed.
        """
        with _connected(self._url) as connection:
            kept = kept_by_killed_restore(connection)
            if kept is not None:
                _put_back(connection, _current_schema(connection), kept)
            return kept

    @contextmanager
    def replaced(self, file: Path, kept: str) -> Iterator[None]:
        """Restore a dump for the block; the replaced store is kept in the schema `kept`.

        If the block raises, nothing is changed. If the process is killed, the site is not opened
        until another restore puts the replaced store back. The block must call `end_restore`.

        Raises: ConfigurationError if the dump cannot be restored.
        """
        with _connected(self._url) as connection:
            schema = _current_schema(connection)
            if not _has_table(connection, "fw_meta"):
                kept = ""
            with connection.transaction():
                if kept:
                    connection.execute(f"CREATE SCHEMA {_quoted(kept)}")
                    _move(connection, schema, kept)
                connection.execute(f"CREATE TABLE {RESTORING} AS SELECT %s::text AS kept", [kept])
        try:
            self._restore(file, schema)
            yield
        except BaseException:
            with _connected(self._url) as connection:
                _put_back(connection, schema, kept)
            raise

    def _restore(self, file: Path, schema: str) -> None:
        try:
            self._load(file, schema)
        except ConfigurationError as error:
            if not any(_NEW_PARAMETER in problem for problem in error.problems):
                raise
            # The first statement has failed, so that nothing was changed.
            self._load(file, schema, may_ignore=_NEW_PARAMETER)
        with _connected(self._url) as connection:
            if not _has_table(connection, "fw_meta"):
                raise ConfigurationError(
                    ["The dump is of another program, or of a schema with another name."]
                )

    def _load(self, file: Path, schema: str, *, may_ignore: str = "") -> None:
        """Run pg_restore. With `may_ignore` it continues after errors, but only one of this
        statement counts as success; the caller undoes what a failure leaves."""
        program = _program(self._environ)
        with connection_of(self._url, self._environ) as (arguments, passed, files):
            contents = _run([program, "--list", str(file)], passed).splitlines(keepends=True)
            with _connected(self._url) as connection:
                present = PresentObjects.of(connection)
            kept = "".join(line for line in contents if not present.includes(line))
            command = [program, "--no-owner"]
            command += [] if may_ignore else ["--exit-on-error", "--single-transaction"]
            command += ["--no-publications", "--no-subscriptions", "--use-list=/dev/stdin"]
            command += [f"--exclude-schema={name}" for name in present.schemas if name != schema]
            command += [f"--dbname={arguments}", str(file)]
            _run(command, {**passed, "LC_ALL": "C"}, kept, files, may_ignore=may_ignore)


_NEW_PARAMETER: Final = "SET transaction_timeout = 0"
"""The first statement of pg_restore since PostgreSQL 17, which older servers refuse."""


@contextmanager
def _connected(url: str) -> Iterator[Any]:
    import psycopg  # few sites need its driver

    try:
        options = {**_parameters(url), "connect_timeout": 10, "fallback_application_name": "fw"}
        with psycopg.connect(autocommit=True, **options) as connection:
            _end_time_limit(connection)
            yield connection
    except psycopg.Error as error:
        from fw_actors.store.postgres_connection import one_line

        reason = error.diag.message_primary or one_line(error)
        raise ConfigurationError([f"The database refused: {reason}."]) from None


def _end_time_limit(connection: Any) -> None:
    """End the time limit of the account. The statement runs within it, so that one of milliseconds
    may end it on a busy server; it is then repeated."""
    from psycopg.errors import QueryCanceled

    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(QueryCanceled):
            connection.execute("SET statement_timeout = 0")
            return
    connection.execute("SET statement_timeout = 0")


def kept_by_killed_restore(connection: Any) -> str | None:
    """Return the schema that keeps the store which a killed restore has replaced.

    It is empty if no store was replaced, or none is left; None if no restore was killed.
    """
    if not _has_table(connection, RESTORING):
        return None
    row = connection.execute(
        f"SELECT kept FROM {RESTORING} JOIN pg_namespace ON nspname = kept"  # nosec B608
    ).fetchone()
    return "" if row is None else str(row[0])


def _has_table(connection: Any, name: str) -> bool:
    """Whether the current schema has a table; the others of the search path do not count."""
    here = "SELECT to_regclass(quote_ident(current_schema()) || '.' || %s) IS NOT NULL"
    return bool(connection.execute(here, [name]).fetchone()[0])


def _put_back(connection: Any, schema: str, kept: str) -> None:
    """Replace the objects of a schema by those of the schema `kept`, or by none."""
    with connection.transaction():
        for kind, name in _objects(connection, schema):
            # An earlier statement may have dropped it, or a type in its name.
            connection.execute(f"DROP {kind} IF EXISTS {name} CASCADE")
        if kept:
            _move(connection, kept, schema)
            connection.execute(f"DROP SCHEMA {_quoted(kept)}")


def _move(connection: Any, schema: str, target: str) -> None:
    """Move the objects of a schema to another one.

    The schema is not renamed: it may belong to another account, as `public` does by default in
    PostgreSQL 14, other accounts may have rights on it, and extensions would be renamed with it.
    """
    for kind, name in _objects(connection, schema):
        connection.execute(f"ALTER {kind} {name} SET SCHEMA {_quoted(target)}")


def _objects(connection: Any, schema: str) -> list[tuple[str, str]]:
    """Return the objects of a schema that are not parts of others, as the words with which DDL
    names them. Routines come before the types of their parameters, which are in their names."""
    found = connection.execute(_OBJECTS, [schema]).fetchall()
    return [(_KINDS.get(kind, kind.upper()), name) for kind, name in found]


_KINDS: Final = {"composite type": "TYPE", "statistics object": "STATISTICS"}
_OBJECTS: Final = """
SELECT found.type, found.identity
FROM pg_depend AS place, pg_identify_object(place.classid, place.objid, 0) AS found
WHERE place.refclassid = 'pg_namespace'::regclass
    AND place.refobjid = (SELECT oid FROM pg_namespace WHERE nspname = %s)
    AND place.deptype = 'n' AND found.type NOT IN ('extension', 'default acl')
    AND NOT EXISTS (
        SELECT FROM pg_depend AS owner WHERE owner.classid = place.classid
            AND owner.objid = place.objid AND (
                owner.deptype = 'e' OR owner.deptype IN ('a', 'i') AND found.type = 'sequence'))
ORDER BY found.type IN ('type', 'composite type', 'table', 'view', 'materialized view')
"""


@dataclass(frozen=True)
class PresentObjects:
    """The schemas and extensions of a database, which a restore leaves as they are."""

    schemas: tuple[str, ...]
    extensions: tuple[str, ...]

    @classmethod
    def of(cls, connection: Any) -> PresentObjects:
        """Read them."""
        schemas, extensions = (
            tuple(name for (name,) in connection.execute(query))
            for query in (_SCHEMAS, _EXTENSIONS)
        )
        return cls(schemas, extensions)

    def includes(self, line: str) -> bool:
        """Return whether a line of pg_restore's list makes one of them, or sets its rights or
        comment.

        The comments of missing extensions count too, because only a superuser may set them, and so
        do all default rights, which belong to a schema.
        """
        if re.match(r"\d+; \d+ \d+ DEFAULT ACL ", line):
            return True
        made = re.match(r"\d+; \d+ \d+ (?:(?:COMMENT|ACL) - )?(SCHEMA|EXTENSION) (?:- )?(.*)", line)
        if made is None:
            return False
        kind, rest = made.groups()
        if kind == "EXTENSION" and " COMMENT - " in line:
            return True
        names = self.schemas if kind == "SCHEMA" else self.extensions
        return any(rest.startswith(f"{name} ") for name in names)


_SCHEMAS: Final = (
    "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
)
_EXTENSIONS: Final = "SELECT extname FROM pg_extension"


_COUNT_RELATIONS: Final = (
    "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND NOT "
    "EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid "
    "AND deptype = 'e')"
)
"""Those of extensions are not counted."""


def _current_schema(connection: Any) -> str:
    return str(connection.execute("SELECT current_schema()").fetchone()[0])


def require_no_other_nodes(url: str) -> None:
    """Check that no other process of fw, on any machine, is connected to a server's database.

    They are recognised by the name that the URL, or else fw, gives to its connections.

    Raises: ConfigurationError, which names their machines.
    """
    with _connected(url) as connection:
        _require_no_others(connection, f"{_OTHERS} AND application_name = {_OWN_NAME}")


def _require_no_others(connection: Any, query: str) -> None:
    """Raise ConfigurationError for connections that `query` still finds after a moment."""
    end = time.monotonic() + _LEAVING_SECONDS
    while others := connection.execute(query).fetchall():
        if time.monotonic() > end:
            clients = sorted({f"{name or 'a program'} {place}" for name, place in others})
            more = ", …" if len(clients) > _NAMED_CLIENTS else ""
            raise ConfigurationError(
                [
                    f"The database has other connections ({', '.join(clients[:_NAMED_CLIENTS])}"
                    f"{more}): stop every service and worker, on all machines, first."
                ]
            )
        time.sleep(0.05)  # backends end a moment after their clients


_NAMED_CLIENTS: Final = 3
_OWN_NAME: Final = "current_setting('application_name')"
# Of connections of other accounts the server shows the account and the program's name only.
_OTHERS: Final = (
    "SELECT application_name, CASE WHEN backend_type IS NULL THEN 'of the account ' || usename"
    " ELSE 'from ' || coalesce(host(client_addr), 'this machine') END FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND usename IS NOT NULL"
    " AND (backend_type = 'client backend' OR backend_type IS NULL)"
)


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _program(environ: Mapping[str, str]) -> str:
    program = shutil.which(PG_RESTORE, path=environ.get("PATH"))
    if program is None:
        raise ConfigurationError([f"This restore needs {PG_RESTORE}, which was not found."])
    return program
