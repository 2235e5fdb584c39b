"""The apps of a site that runs in the process of the tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def apps_as_they_were(folder: Path) -> Iterator[None]:
    """Forget the apps in the folder of a site at its end.

    The next site may have another app of the same name, which is refused while this one is loaded.
    """
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(str(folder))
        for name, module in list(sys.modules.items()):
            if (file := getattr(module, "__file__", None)) and Path(file).is_relative_to(folder):
                del sys.modules[name]
