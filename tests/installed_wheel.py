"""The wheel of this checkout, and a virtual environment in which it is installed.

Both are made once for a whole run, whichever of its processes asks first. The libraries are those
of this environment, by a path, so that no index is needed; fw itself is the wheel's.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
_KEPT: Final = ("PATH", "HOME", "LANG", "TMPDIR")


@dataclass(frozen=True)
class InstalledWheel:
    """A wheel, and the environment that has it."""

    wheel: Path
    venv: Path

    def environ(self, **given: str) -> dict[str, str]:
        """Return the environment of a user's terminal: none of this checkout, none of fw."""
        return {name: os.environ[name] for name in _KEPT if name in os.environ} | given


def build_wheel(sources: Path, to: Path, *, version: str = "") -> Path:
    """Build the wheel of `sources` into the folder `to`; `version` is for sources without git."""
    command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(to))
    _run(*command, cwd=sources, **({"FW_BUILD": version} if version else {}))
    (made,) = to.glob("*.whl")
    return made


def empty_environment(venv: Path) -> None:
    """Make a virtual environment without fw, whose libraries are those of this one."""
    _run(sys.executable, "-m", "venv", "--without-pip", str(venv), cwd=venv.parent)
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")


def install(wheel: Path, venv: Path) -> None:
    """Install a wheel over the installed one, as users do: without a flag that forces it.

    Modules are compiled at their first use: all of them would take as long as half of the tests
    that run them.
    """
    pip = (sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"))
    options = ("--quiet", "--no-compile", "--no-index", "--no-deps")
    _run(*pip, "install", *options, str(wheel), cwd=venv)


def installed_wheel(folder: Path) -> InstalledWheel:
    """Make wheel and environment in `folder`, or return those that another process has made."""
    folder.mkdir(exist_ok=True)
    venv, finished = folder / "venv", folder / "finished"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not finished.exists():
            made = build_wheel(ROOT, folder)
            empty_environment(venv)
            install(made, venv)
            finished.touch()
    (wheel,) = folder.glob("*.whl")
    return InstalledWheel(wheel, venv)


def _run(*command: str, cwd: Path, **environ: str) -> None:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environ}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
