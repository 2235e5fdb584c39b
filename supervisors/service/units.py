"""Finds out whether systemd runs a process, as which unit."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_OF_THE_UNIT: Final = frozenset(
    {"INVOCATION_ID", "LISTEN_FDS", "LISTEN_PID", "NOTIFY_SOCKET", "SYSTEMD_EXEC_PID"}
    | {"WATCHDOG_PID", "WATCHDOG_USEC"}
)
_PARENT: Final = 4 - 3  # proc(5): field 4 of stat; the fields after the name start at number 3
_HIERARCHY: Final = re.compile(r"0::|\d+:name=systemd:")  # cgroups(7): version 2, version 1
_OWNER: Final = re.compile(r"(?:^|/)user@\d+\.service/")


@dataclass(frozen=True)
class Unit:
    """A service of systemd; `name` is empty if only its existence is known."""

    name: str
    of_user: bool = False

    def command(self, verb: str) -> str:
        """Return the command that an operator enters for `verb`, such as "stop"."""
        return f"systemctl {'--user ' if self.of_user else ''}{verb} {self.name or 'UNIT'}"


def unit_of(pid: int) -> Unit | None:
    """Return the unit whose main process this is; None if there is none, or it can't be
    determined."""
    process = Path(f"/proc/{pid}")
    try:
        environ = process.joinpath("environ").read_bytes()
        stat = process.joinpath("stat").read_text(errors="replace")
        cgroup = process.joinpath("cgroup").read_text(errors="replace")
    except OSError:
        return None
    entries = (entry.partition("=") for entry in os.fsdecode(environ).split("\0"))
    parent = int(stat[stat.rindex(")") + 1 :].split()[_PARENT])
    return judged_unit(pid, parent, {name: value for name, _, value in entries}, cgroup)


def judged_unit(pid: int, parent: int, environ: Mapping[str, str], cgroup: str) -> Unit | None:
    """Return the unit of a process with these facts of /proc, as `unit_of` does.

    The processes of a terminal are in a unit too, and inherit its INVOCATION_ID, which is therefore
    not sufficient.
    """
    paths = [line.split(":", 2)[2] for line in cgroup.splitlines() if _HIERARCHY.match(line)]
    path = paths[0] if paths else ""
    last = path.rpartition("/")[2]
    name = last if last.endswith(".service") else ""
    started = (
        "NOTIFY_SOCKET" in environ
        or environ.get("SYSTEMD_EXEC_PID") == str(pid)
        or ("INVOCATION_ID" in environ and parent == 1 and bool(name))
    )
    return Unit(name, bool(_OWNER.search(path))) if started else None


def without_unit(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables that are only for the main process of a unit."""
    return {name: value for name, value in environ.items() if name not in _OF_THE_UNIT}
