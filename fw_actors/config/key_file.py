"""The key of Vault fields out of a file: the places where it may lie, and what makes one unusable.

A file keeps the key out of the environment, which `ps` shows to its user. In order: the file that
FW_SECRET_KEY_FILE names; systemd's credential `fw_secret_key`; `secret.key` beside fw.json.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

KEY_VARIABLE: Final = "FW_SECRET_KEY"
KEY_FILE_VARIABLE: Final = "FW_SECRET_KEY_FILE"
CREDENTIALS_VARIABLE: Final = "CREDENTIALS_DIRECTORY"
"""Set by systemd for a unit that has credentials (systemd.exec(5))."""
CREDENTIAL: Final = "fw_secret_key"
OWN_FILE: Final = "secret.key"
_MOST_BYTES: Final = 4096
_OPEN_TO_OTHERS: Final = stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP


class UnusableKeyFileError(Exception):
    """Raised for a file that holds no key; the message is a sentence that names the file."""


def credential_file(environ: Mapping[str, str]) -> Path | None:
    """Return the file of systemd's credential, None when the process was given none."""
    folder = environ.get(CREDENTIALS_VARIABLE)
    file = Path(folder, CREDENTIAL) if folder else None
    return file if file is not None and file.exists() else None


def read_key(file: Path, *, guarded: bool = True) -> str:
    """Return the key that a file holds: its text without line ends after it.

    `guarded`: refuse a file that others may read, or its group may write. Its group may read it,
    since that is how containers hand out files; systemd guards its credentials itself.

    Raises: UnusableKeyFileError.
    """
    try:
        with file.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            content = stream.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        reason = getattr(error, "strerror", None) or "its name is no file's"
        raise UnusableKeyFileError(f"{file} can't be read: {reason}") from None
    if guarded and mode & _OPEN_TO_OTHERS:
        raise UnusableKeyFileError(f"{file} is open to other users: chmod 600 {file}")
    if len(content) > _MOST_BYTES:
        raise UnusableKeyFileError(f"{file} is larger than {_MOST_BYTES} bytes: it holds no key")
    try:
        key = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise UnusableKeyFileError(f"{file} is not UTF-8: use base64 of random bytes") from None
    if not key.strip() or "\0" in key:
        raise UnusableKeyFileError(f"{file} holds no key: it is empty or has zero bytes")
    return key
