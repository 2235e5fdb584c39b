"""The apps of a site that runs in the process of the tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def apps_as_they_were(folder: Path) -> Iterator[None]:
    """Forget the apps in the folder of a site at its end.

    The next site may have another app of the same name, which is refused while this one is loaded.
    """
    before = set(sys.modules)
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(str(folder))
        below = f"{folder}{os.sep}"
        for name in sys.modules.keys() - before:
            if (file := getattr(sys.modules[name], "__file__", None)) and file.startswith(below):
                del sys.modules[name]
