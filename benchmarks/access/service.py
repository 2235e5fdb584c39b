"""Ours: `fw serve` on a site of its own, a process of its own, as a user would start it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
# A file system as a site would have it: on many machines /tmp is memory, where a commit is free.
FOLDER: Final = _ROOT / "build"
KEY: Final = "a key of the benchmarks, forty characters"
PASSWORD: Final = "correct horse battery staple"
TUNABLES: Final = "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1"  # as scripts/fw sets them
USERS: Final = 8  # who sign in at once; one alone would meet the budget of the own name


@dataclass(frozen=True)
class Served:
    """A server that listens, and the folder of the site that it serves, if it serves one."""

    port: int
    folder: Path | None = None


@contextmanager
def site(
    *preparations: str,
    ops: Mapping[str, object] = MappingProxyType({}),
    users: int = USERS,
    in_order: bool = False,
) -> Iterator[Served]:
    """Serve a site with so many accounts and throttles that are out of the way.

    `preparations` are expressions for `fw eval --commit`, run before the service starts.
    `in_order`: it is stopped in order at the end, and not killed.
    """
    FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=FOLDER) as folder:
        policy = {
            "site": {"name": "benchmark"},
            "auth": {"addressAttempts": 1_000_000, "maxLoginAttempts": 5},
            "ops": dict(ops),
        }
        (Path(folder) / "fw.json").write_text(json.dumps(policy))
        environ = {k: v for k, v in os.environ.items() if not k.startswith("FW_")}
        environ |= {"FW_BIND": "127.0.0.1:0", "FW_LOG_LEVEL": "error", "PYTHONPATH": str(_ROOT)}
        environ["FW_SECRET_KEY"] = KEY
        environ.setdefault("GLIBC_TUNABLES", TUNABLES)
        for number in range(users):
            name = f"user{number}"
            add = ["user", "add", name, "--email", f"{name}@x.test", "--password-stdin"]
            _run(add, folder, environ)
        for expression in preparations:
            _run(["eval", "--commit", expression], folder, environ)
        serve = [sys.executable, "-P", "-m", "fw_cli", "serve"]
        with _started(serve, folder, environ, in_order=in_order) as line:
            yield Served(int(line.rpartition(":")[2]), Path(folder))


@contextmanager
def empty_route() -> Iterator[Served]:
    """Serve the reference."""
    command = [sys.executable, "-m", "benchmarks.access.empty_route"]
    with _started(command, str(_ROOT), dict(os.environ)) as line:
        yield Served(int(line))


@contextmanager
def front_end() -> Iterator[Served]:
    """Serve our front end without a service behind it."""
    command = [sys.executable, "-m", "benchmarks.access.front_end"]
    with _started(command, str(_ROOT), dict(os.environ)) as line:
        yield Served(int(line))


def _run(arguments: list[str], folder: str, environ: dict[str, str]) -> None:
    subprocess.run(
        [sys.executable, "-P", "-m", "fw_cli", *arguments],
        cwd=folder,
        env=environ,
        input=PASSWORD,
        text=True,
        check=True,
        stdout=subprocess.DEVNULL,
    )


@contextmanager
def _started(
    command: list[str], folder: str, environ: dict[str, str], *, in_order: bool = False
) -> Iterator[str]:
    with subprocess.Popen(
        command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            (process.terminate if in_order else process.kill)()
