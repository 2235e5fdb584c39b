"""Keeps the secrets of this process from other programs: in its environment, and in core dumps.

`/proc/PID/environ`, which `ps eww` reads, shows the memory in which the kernel passed the
environment, even after a variable is unset. Therefore the values there are overwritten. That file
is readable by the process's own user and root, and so by apps and by programs that they start.

A core dump would contain the site's key, and passwords and sessions that were in use. systemd lets
services write one, and ends a service that hangs by SIGABRT, which writes it.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Collection, Mapping, MutableMapping
from pathlib import Path
from typing import Final

STAT: Final = Path("/proc/self/stat")
_MEMORY: Final = Path("/proc/self/mem")
_ENV_START, _ENV_END = 50 - 3, 51 - 3  # proc(5): the fields after the name start at number 3
PREFIX: Final = "FW_SECRET_"
_KEY_FILE: Final = "FW_SECRET_KEY_FILE"  # a path
# These may contain a password.
_FURTHER: Final = ("FW_DATABASE", "FW_SMTP_PASSWORD", "FW_OUTGOING_PROXY_AUTH")


def is_secret(variable: str) -> bool:
    """Return whether the value of an environment variable is a secret of the site."""
    return variable.startswith(PREFIX) and variable != _KEY_FILE


def take_secrets(
    environ: MutableMapping[str, str], raw: MutableMapping[bytes, bytes]
) -> tuple[Mapping[str, str], bool]:
    """Remove the variables with secrets from the process's environment.

    Args:
        environ: `os.environ`.
        raw: `posix.environ`, the interpreter's own copy, which `os.environ` does not change.

    Returns: the original environment, and whether the secrets are no longer visible in it; False
        where the system has no `/proc` that provides the address and allows the writes.
    """
    before = dict(environ)
    secret = [name for name in before if name.startswith(PREFIX) or name in _FURTHER]
    for name in secret:
        del environ[name]
        raw.pop(os.fsencode(name), None)
    return before, not secret or _overwrite({os.fsencode(name) for name in secret})


def _overwrite(names: Collection[bytes]) -> bool:
    """Overwrite the values of `names` with zeros; return whether that was possible."""
    try:
        stat = STAT.read_bytes()
        fields = stat[stat.rindex(b")") + 1 :].split()
        start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
        with _MEMORY.open("r+b", buffering=0) as memory:
            memory.seek(start)
            at = start
            for entry in memory.read(end - start).split(b"\0"):
                name, _, value = entry.partition(b"=")
                if name in names:
                    memory.seek(at + len(name) + 1)
                    memory.write(bytes(len(value)))
                at += len(entry) + 1
    except (OSError, ValueError, IndexError):
        return False
    return True


def forbid_core_dumps() -> None:
    """Set the size of core dumps of this process, and of programs that it starts, to 0.

    Only the soft limit: an operator can raise it again (`prlimit --core`).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
