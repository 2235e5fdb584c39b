"""The command `fw`, also as `python -m fw_cli`; if libraries are missing, it names the extra to
install."""

from __future__ import annotations

import gc
import os
import sys
from typing import Final

from fw_cli.extras import advice

YOUNG_OBJECTS: Final = 200_000
"""Importing the modules of a command creates this many objects and no garbage. By default Python
collects garbage after every 700 objects, which takes 14 % of a short command's time."""


def main() -> None:
    """Run the command line. A wheel without extras lacks the libraries that it needs."""
    gc.set_threshold(YOUNG_OBJECTS)
    _open_streams()
    try:
        from fw_cli.main import main as run

        run()
    except ModuleNotFoundError as error:
        text = advice(error)
        if text is None:
            raise
        sys.exit(f"fw: {text}")


def _open_streams() -> None:
    """Open the standard streams that the caller has closed.

    Otherwise a socket or the database gets the number of one, and Python has None in its place.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
                os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


if __name__ == "__main__":
    main()
