"""Looks passwords up in a local file of breached ones, without reading it into memory.

The downloader of Have I Been Pwned writes the file: lines `SHA-1:count` in the order of the hashes,
40 GB in all. Hashes may be cut to their first 16 digits or more, and counts may be missing, which
reduces the size to a third. Nothing is sent over the network (A-360 to A-362).
"""

from __future__ import annotations

import hashlib
import os
import re
import weakref
from itertools import pairwise
from pathlib import Path
from typing import Final

from fw_actors.errors import ConfigurationError, OverloadedError, PasswordPolicyError

MAX_LINE_BYTES: Final = 80
SAMPLES: Final = 64
_LINE: Final = re.compile(rb"(?:\xef\xbb\xbf)?([0-9A-Fa-f]{16,40})(?::[0-9]{1,20})?\r?\Z")
_REMEDY: Final = (
    "Download the file of SHA-1 hashes with the haveibeenpwned-downloader (a single file, ordered "
    "by hash), or remove auth.breachedPasswords"
)


class BreachedPasswords:
    """A sorted file of hashes; a binary search takes about 35 small reads in the largest one."""

    def __init__(self, path: Path) -> None:
        """Open a file and check a sample of its lines.

        Raises: ConfigurationError for a file that cannot be read or is not a sorted list of hashes.
        """
        self._path = path
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise self._unusable(f"cannot be read: {reason}") from None
        try:
            self._size = os.fstat(self._file).st_size
            self._examine()
        except OSError as error:
            os.close(self._file)
            raise self._unusable(f"cannot be read: {error.strerror}") from None
        except ConfigurationError:
            os.close(self._file)
            raise
        weakref.finalize(self, os.close, self._file)

    def refuse(self, password: str) -> None:
        """Refuse a password that the file lists. Reads the disk: call it in a thread.

        Raises: PasswordPolicyError; OverloadedError if the file can no longer be read.
        """
        try:
            listed = self.lists(password)
        except (OSError, ConfigurationError):
            raise OverloadedError("The file of breached passwords cannot be read now.") from None
        if listed:
            raise PasswordPolicyError(
                "This password is in lists of stolen passwords, which are guessed first. "
                "Choose another one.",
                rule="breached",
            )

    def lists(self, password: str) -> bool:
        """Return whether the file has the hash of a password."""
        text = password.encode("utf-8", "surrogatepass")
        digest = hashlib.sha1(text, usedforsecurity=False).hexdigest().upper().encode()
        low, high = 0, self._size  # the line, if it is there, begins in [low, high)
        while low < high:
            begin, end, line_hash = self._line_around((low + high) // 2)
            cut = digest[: len(line_hash)]
            if line_hash == cut:
                return True
            if line_hash < cut:
                low = end
            else:
                high = begin
        return False

    def _line_around(self, at: int) -> tuple[int, int, bytes]:
        """Return the start and the end of the line around a byte, and the line's hash."""
        begin = max(0, at - MAX_LINE_BYTES)
        block = os.pread(self._file, 2 * MAX_LINE_BYTES + 2, begin)
        place = at - begin
        first = block.rfind(b"\n", 0, place) + 1
        last = block.find(b"\n", place)
        if last < 0:
            last = len(block)
        line = _LINE.match(block[first:last])
        if line is None or (first == 0 and begin > 0):
            raise self._unusable(f"has no hash at byte {begin + first:,}")
        return begin + first, begin + last + 1, line[1].upper()

    def _examine(self) -> None:
        """Check that lines from all parts of the file are hashes in ascending order."""
        if self._size == 0:
            raise self._unusable("is empty")
        places = (self._size * number // SAMPLES for number in range(SAMPLES))
        hashes = [self._line_around(place)[2] for place in (*places, self._size - 1)]
        if any(later < earlier for earlier, later in pairwise(hashes)):
            raise self._unusable("is not ordered by hash")

    def _unusable(self, why: str) -> ConfigurationError:
        return ConfigurationError([f"auth.breachedPasswords: {self._path} {why}. {_REMEDY}."])
