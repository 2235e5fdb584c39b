"""What the serving process says of itself: a small file, whole or absent, for its owner only.

The file alone proves nothing, since a killed process leaves it behind and its number may go to
another one: it counts while the site's lock is held (`lock`), and a signal is sent only to the
process that wrote it (`process`).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from supervisors.service.process import birth
from supervisors.service.refusals import UnusableDataFolder


class Presence(msgspec.Struct, frozen=True):
    """One serving process: `url` is None until it accepts; `born` as `process.birth` gives it."""

    pid: int
    born: int | None
    version: str
    url: str | None = None


def presence(version: str, url: str | None = None) -> Presence:
    """Return what this process has to say of itself."""
    return Presence(pid=os.getpid(), born=birth(os.getpid()), version=version, url=url)


def write(path: Path, said: Presence) -> None:
    """Put the file in place in one step: a reader sees the old one or the new one, never a part.

    Only the holder of the site's lock may call it. Not made durable: it means nothing after a
    power cut.

    Raises: UnusableDataFolder.
    """
    draft = path.with_name(f".{path.name}.{said.pid}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            file.write(msgspec.json.encode(said) + b"\n")
        os.replace(draft, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise UnusableDataFolder(path, error) from error


def read(path: Path) -> Presence | None:
    """Return what stands there; None when there is no file, or none of ours."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Presence)
    except (OSError, msgspec.MsgspecError):
        return None


def remove(path: Path) -> None:
    """Take the file away; without effect when it has gone. For the holder of the lock only."""
    with contextlib.suppress(OSError):
        path.unlink()
