"""A PostgreSQL server of our own for tests and measurements: a temporary cluster."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

USER: Final = "postgres"  # a server refuses to run as root; Debian's package makes this account
DATABASE: Final = "fw"
MISSING: Final = (
    "The tests need PostgreSQL's server (initdb and pg_ctl). ./scripts/test installs Debian's "
    "package as root; elsewhere install what tests/debian-packages.txt names."
)
_DEBIAN: Final = Path("/usr/lib/postgresql")
_WITHOUT_THE_DISK: Final = ("fsync = off", "full_page_writes = off")
_SETTINGS: Final = (
    "listen_addresses = ''",  # a port could be taken while the server is down
    "max_connections = 60",
    "shared_buffers = 32MB",
    "autovacuum = off",  # plans and timings of tests stay their own
    "deadlock_timeout = 100ms",
    "log_min_messages = fatal",
)


class PostgresMissing(Exception):
    """Raised when there is no PostgreSQL to test with."""


@dataclass
class PostgresCluster:
    """A server on a socket in its own folder.

    `url(schema)` names a schema, so that each test has tables of its own in the one database.
    """

    folder: Path
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _owner: psycopg.Connection[Any] | None = None

    def url(self, schema: str = "public", database: str = DATABASE) -> str:
        """Return the value of FW_DATABASE that keeps all tables in `schema`."""
        patient = f"host={self.folder}&connect_timeout=60"
        return f"postgresql://{USER}@/{database}?{patient}&options=-csearch_path%3D{schema}"

    @contextmanager
    def schema(self) -> Iterator[str]:
        """Make an empty schema; give its URL, and drop it at the end."""
        name = self.new_schema()
        try:
            yield self.url(name)
        finally:
            self.drop_schema(name)

    def new_schema(self) -> str:
        """Make an empty schema; return its name."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE SCHEMA {name}")
        return name

    def drop_schema(self, name: str) -> None:
        """Drop a schema with all that is in it."""
        self.execute("SET client_min_messages = warning", f"DROP SCHEMA {name} CASCADE")

    @contextmanager
    def empty_database(self) -> Iterator[str]:
        """Make an empty database; give its URL, and drop it at the end."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield self.url(database=name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    @contextmanager
    def owned_database(self) -> Iterator[str]:
        """Make an empty database that belongs to an account of its own, without further rights, as
        in production; give its URL, and drop both at the end."""
        name = f"account_{next(self._numbers)}"
        self.execute(f"CREATE ROLE {name} LOGIN")
        try:
            with self.empty_database() as url:
                with self.administered(url) as owner:
                    owner.execute(f"ALTER DATABASE {owner.info.dbname} OWNER TO {name}".encode())
                yield url.replace(f"//{USER}@", f"//{name}@")
        finally:
            self.execute(f"DROP ROLE {name}")

    @contextmanager
    def administered(self, url: str) -> Iterator[psycopg.Connection[Any]]:
        """Connect to the database of a URL as the server's owner."""
        database = conninfo_to_dict(url)["dbname"]
        assert database is not None
        with psycopg.connect(self.url(database=str(database)), autocommit=True) as connection:
            yield connection

    def execute(self, *statements: str) -> None:
        """Run statements as the server's owner."""
        for statement in statements:
            self.owner.execute(statement.encode())

    def end_connections(self) -> None:
        """End all connections of stores, as a restarted server or a firewall would."""
        self.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE application_name = 'fw'"
        )

    @property
    def owner(self) -> psycopg.Connection[Any]:
        """The owner's connection, outside of transactions; kept, because a backend that begins
        costs more than most of what a test has it do."""
        if self._owner is None:
            self._owner = psycopg.connect(self.url(), autocommit=True)
        return self._owner

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        self._control("start", "-o", f"-k {self.folder}", "-l", str(self.folder / "log"))

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: `fast` ends its connections, `immediate` is a crash."""
        if self._owner is not None:
            self._owner.close()
            self._owner = None
        self._control("stop", "-m", mode)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop all processes of the server for the duration of the block, without their end."""
        server = (self.folder / "data" / "postmaster.pid").read_text().splitlines()[0]
        found = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", server], capture_output=True, text=True, check=True
        )
        processes = [int(server), *map(int, found.stdout.split())]
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)

    def restart_as_standby(self) -> None:
        """Restart the server as a read-only copy of a primary that is gone, as after a failover."""
        self.stop()
        marker = self.folder / "data" / "standby.signal"
        marker.touch()
        if os.getuid() == 0:
            shutil.chown(marker, USER, USER)
        self.start()

    def promote(self) -> None:
        """Make a standby the primary."""
        self.execute("SELECT pg_promote()")

    def _control(self, *args: str) -> None:
        run("pg_ctl", "-D", str(self.folder / "data"), "-w", *args)


@contextmanager
def postgres_cluster(*, durable: bool = False) -> Iterator[PostgresCluster]:
    """Make a cluster, start it, and remove it at the end.

    `durable` is for measurements: no test pulls the plug of the machine, and none waits for disks.

    Raises: PostgresMissing.
    """
    folder = Path(tempfile.mkdtemp(prefix="fw-postgres-"))
    try:
        if os.getuid() == 0:
            if not _has_account():
                raise PostgresMissing(MISSING)
            shutil.chown(folder, USER, USER)
        data = folder / "data"
        run(
            "initdb", "-D", str(data), "-U", USER, "-A", "trust", "-E", "UTF8",
            "--locale=C.UTF-8", "--no-sync", "--no-instructions",
        )  # fmt: skip
        with (data / "postgresql.auto.conf").open("a") as settings:
            settings.writelines(
                f"{line}\n" for line in (*_SETTINGS, *(() if durable else _WITHOUT_THE_DISK))
            )
        cluster = PostgresCluster(folder)
        cluster.start()
        try:
            with psycopg.connect(cluster.url(database="postgres"), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {DATABASE}".encode())
            yield cluster
        finally:
            cluster.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(program: str, *args: str) -> None:
    """Run one of the server's programs, as its account where we are root."""
    as_account = ["runuser", "-u", USER, "--"] if os.getuid() == 0 else []
    done = subprocess.run(
        [*as_account, _find(program), *args], cwd="/", stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, f"{program} failed: {done.stdout}"


def _find(program: str) -> str:
    """Return a program of the server in POSTGRES_BIN, or else of the newest version; Debian keeps
    them outside PATH."""
    if "POSTGRES_BIN" in os.environ:
        return str(Path(os.environ["POSTGRES_BIN"], program))
    versions = sorted(_DEBIAN.glob(f"*/bin/{program}"), key=lambda path: int(path.parts[-3]))
    found = str(versions[-1]) if versions else shutil.which(program)
    if found is None:
        raise PostgresMissing(MISSING)
    return found


def _has_account() -> bool:
    try:
        pwd.getpwnam(USER)
    except KeyError:
        return False
    return True
