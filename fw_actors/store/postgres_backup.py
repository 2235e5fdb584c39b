"""A consistent copy of a PostgreSQL database, made by its own `pg_dump`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fw_actors.errors import ConfigurationError
from fw_actors.store.files import new_file

PG_DUMP: Final = "pg_dump"
_OURS: Final = "FW_"
_MOST_LINES: Final = 5


def back_up_database(url: str, target: Path, environ: Mapping[str, str]) -> int:
    """Dump the database to `target`, which must not exist, in the format of `pg_restore`.

    `environ`: the process's; pg_dump is looked for on its PATH, and gets all of it but what is
    ours. A password goes by environment, where `ps` does not show it.

    Returns: the size of the dump, in bytes.
    Raises: ConfigurationError when there is no pg_dump, it fails, or `target` can't be written.
    """
    program = shutil.which(PG_DUMP, path=environ.get("PATH"))
    if program is None:
        raise ConfigurationError([f"A backup of PostgreSQL needs {PG_DUMP}, which is not there."])
    facts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    password = facts.pop("password", None)
    passed = {name: value for name, value in environ.items() if not name.startswith(_OURS)}
    if password is not None:
        passed["PGPASSWORD"] = password
    with new_file(target) as draft:
        command = [program, "--format=custom", "--no-owner", f"--file={draft}"]
        _run([*command, f"--dbname={make_conninfo(**facts)}"], passed)
    return target.stat().st_size


def _run(command: list[str], environ: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").splitlines()
        lines = [line for line in said if line[:1] not in ("", "\t")]  # after a tab it guesses why
        raise ConfigurationError(lines[-_MOST_LINES:] or [f"{PG_DUMP} failed and does not say why"])
