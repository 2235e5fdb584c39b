"""The command `fw`, also as `python -m fw_cli`; if libraries are missing, it names the extra to
install."""

from __future__ import annotations

import gc
import sys
from typing import Final

from fw_cli.extras import advice

YOUNG_OBJECTS: Final = 200_000
"""Importing the modules of a command creates this many objects and no garbage. By default Python
collects garbage after every 700 objects, which takes 14 % of a short command's time."""


def main() -> None:
    """Run the command line. A wheel without extras lacks the libraries that it needs."""
    gc.set_threshold(YOUNG_OBJECTS)
    try:
        from fw_cli.main import main as run

        run()
    except ModuleNotFoundError as error:
        text = advice(error)
        if text is None:
            raise
        sys.exit(f"fw: {text}")


if __name__ == "__main__":
    main()
