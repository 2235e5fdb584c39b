"""Takes secrets out of the environment of this process, also out of the block that others see.

`/proc/PID/environ`, which `ps eww` reads, shows the memory in which the kernel handed the
environment over, whatever the process unsets later. So the values in it are overwritten. It is
readable by the process's own user and root alone, and so by apps and by programs that they start.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, MutableMapping
from pathlib import Path
from typing import Final

_STAT: Final = Path("/proc/self/stat")
_MEMORY: Final = Path("/proc/self/mem")
_ENV_START, _ENV_END = 50 - 3, 51 - 3  # proc(5): fields after the name begin with number 3
PREFIX: Final = "FW_SECRET_"
_FURTHER: Final = ("FW_DATABASE", "FW_SMTP_PASSWORD")  # these may hold a password


def take_secrets(
    environ: MutableMapping[str, str], raw: MutableMapping[bytes, bytes]
) -> tuple[Mapping[str, str], bool]:
    """Remove the variables that hold secrets from the process's environment.

    Args:
        environ: `os.environ`.
        raw: `posix.environ`, the interpreter's own copy, which `os.environ` leaves alone.

    Returns: what the environment was, and whether nobody sees the secrets in it any more; False
        where the system has no `/proc` that tells and takes memory.
    """
    before = dict(environ)
    secret = [name for name in before if name.startswith(PREFIX) or name in _FURTHER]
    for name in secret:
        del environ[name]
        raw.pop(os.fsencode(name), None)
    return before, not secret or _overwrite({os.fsencode(name) for name in secret})


def _overwrite(names: Collection[bytes]) -> bool:
    """Put zeros in the place of the values of `names`; whether it could be done."""
    try:
        stat = _STAT.read_bytes()
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
